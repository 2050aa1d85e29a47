"""What an engine serves, seen from outside: log-probabilities of fixed sequences, and whether it is paused.

The expectation comes from the trainer's /reference, which computes the same sequences from the files with
transformers. Nothing of the gateway is used here.
"""
import wire

# Three sequences of token ids, made of what the tokenizer has letters for.
SEQUENCES = (
    list(range(40, 64)),
    list(range(200, 180, -1)),
    [10, 250, 10, 250, 17, 99, 99, 180, 33],
)
# Longer than one block of either engine's prefix cache (vLLM's CPU blocks hold 128), so that a cache that was not
# flushed is used, and shows.
CACHED = [3 + (7 * n) % 250 for n in range(300)]
CONTINUED = 6


class Sglang:
    def __init__(self, engine):
        self.engine = engine

    def scores(self, ids, timeout=60, adapter=None):
        body = {
            "input_ids": ids,
            "lora_path": adapter,
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": 0,
        }
        answer = checked(self.engine.call("POST", "/generate", body, timeout))
        # The first has no token before it, and no value.
        return [entry[0] for entry in answer["meta_info"]["input_token_logprobs"][1:]]

    @staticmethod
    def request(ids, count):
        parameters = {"max_new_tokens": count, "temperature": 0, "ignore_eos": True}
        return "/generate", {"input_ids": ids, "sampling_params": parameters, "return_logprob": True}

    @staticmethod
    def generated(body):
        """(ids, their logprobs, why it ended)"""
        meta = body["meta_info"]
        pairs = meta["output_token_logprobs"]
        return [p[1] for p in pairs], [p[0] for p in pairs], meta["finish_reason"]["type"]

    @staticmethod
    def from_cache(body):
        return body["meta_info"]["cached_tokens"]

    def paused(self):
        return self.engine.call("GET", "/ready", timeout=5).status == 503

    def label(self):
        return checked(self.engine.call("GET", "/model_info"))["weight_version"]

    # Requests that change something, as they stand in the engine's own log.
    writes = ("POST /pause_generation", "POST /continue_generation", "POST /update_", "POST /flush_cache")


class Vllm:
    def __init__(self, engine):
        self.engine = engine

    def scores(self, ids, timeout=60, adapter=None):
        body = {"model": adapter or "policy", "prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        answer = checked(self.engine.call("POST", "/v1/completions", body, timeout))
        entries = answer["choices"][0]["prompt_logprobs"]
        return [entry[str(ids[at])]["logprob"] for at, entry in enumerate(entries) if at > 0]

    @staticmethod
    def request(ids, count):
        body = {"model": "policy", "prompt": ids, "max_tokens": count, "temperature": 0, "ignore_eos": True}
        return "/v1/completions", {**body, "logprobs": 1, "return_token_ids": True}

    @staticmethod
    def generated(body):
        choice = body["choices"][0]
        return choice["token_ids"], choice["logprobs"]["token_logprobs"], choice["finish_reason"]

    @staticmethod
    def from_cache(body):
        return (body["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0

    def paused(self):
        answer = self.engine.call("GET", "/is_paused", timeout=5)
        return bool(answer.status == 200 and answer.body["is_paused"])

    def label(self):
        return checked(self.engine.call("GET", "/weight_info"))["weight_version"]

    writes = ("POST /pause", "POST /resume", "POST /collective_rpc", "POST /update_weight", "POST /reset_")


def checked(answer):
    if answer.status != 200:
        raise AssertionError(f"not answered: {answer}")
    return answer.body


def probe_of(engine):
    return {"sglang": Sglang, "vllm": Vllm}[engine.dialect](engine)


def all_scores(probe, adapter=None):
    return [value for ids in SEQUENCES for value in probe.scores(ids, adapter=adapter)]


def adapters(probe):
    """Name and directory of each adapter that the engine lists; both list them alike, with a parent."""
    entries = checked(probe.engine.call("GET", "/v1/models"))["data"]
    return {entry["id"]: entry["root"] for entry in entries if entry["parent"]}


def continued(probe):
    """A continuation of the sequence that stays in the prefix cache: (ids, their logprobs, how many tokens the cache gave)."""
    path, body = probe.request(CACHED, CONTINUED)
    answer = checked(probe.engine.call("POST", path, body, 60))
    ids, scores, _ = probe.generated(answer)
    return ids, scores, probe.from_cache(answer)


def begin(probe, ids, count, timeout=120):
    path, body = probe.request(ids, count)
    return wire.Pending(probe.engine.url, "POST", path, body, timeout)


def farthest(one, other):
    if len(one) != len(other):
        raise AssertionError(f"{len(one)} values against {len(other)}")
    return max(abs(a - b) for a, b in zip(one, other))


def writes_in_log(probe):
    with open(probe.engine.log, encoding="utf-8", errors="replace") as f:
        return sum(1 for line in f if any(word in line for word in probe.writes))
