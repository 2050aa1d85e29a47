#!/usr/bin/env python3
"""A small trainer with AReaL's worker interface: PyTorch FSDP2 over gloo on a CPU, one HTTP server for each rank.

    torchrun --standalone --nproc-per-node 2 train_worker.py --model DIR --urls DIR

Each rank writes its URL to URLS/rank<N>.url when it can be called. Calls go through one queue to one thread, as in
AReaL's worker: a call waits for those before it, and for the other ranks when it is collective.

    POST /save       collective; body as AReaL's gateway sends it; rank 0 gathers the whole state and writes the files
    POST /adapter    {"rank": R}: from now on /save writes a LoRA adapter of that rank, another one each time; 0 ends it
    POST /step       collective; {"steps": N, "rate": R}: N optimizer steps, answers the losses
    POST /reference  one rank alone; {"path", "sequences": [[ids]], "adapter": PATH|null}: log-probabilities of each next
                     id, computed by transformers in float32 from the files in path, with the adapter's product added to
                     its weights; this is what the engines are compared with
    GET /health
    GET /saved       the paths of all saves so far
"""
import argparse
import json
import os
import queue
import sys
import threading
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402


class Trainer:
    """The rank's shards, and what the calls do. Used by the one engine thread only."""

    def __init__(self, model_dir):
        self.rank = dist.get_rank()
        self.tokenizer = AutoTokenizer.from_pretrained(model_dir)
        # Master weights in float32; the files are bfloat16, which is what the engines compute in.
        self.model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in self.model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        # Each rank draws other sequences: the gradients that are averaged differ, as they do in real training.
        self.random = torch.Generator().manual_seed(100 + self.rank)
        # The same on all ranks.
        self.topics = torch.Generator().manual_seed(99)
        self.adapter_rank = 0
        self.saved = []

    def step(self, steps=1, rate=0.01):
        # A new optimizer for each call: its first steps have the full rate, whatever the calls before were.
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate, weight_decay=0.0)
        # Each call trains on another quarter of the token ids: later versions move as far as the first ones, where one
        # distribution would be learnt and the versions would become alike.
        vocab = self.model.config.vocab_size
        topic = torch.randperm(vocab, generator=self.topics)[: vocab // 4]
        losses = []
        for _ in range(steps):
            ids = topic[torch.randint(0, len(topic), (4, 48), generator=self.random)]
            loss = self.model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(round(loss.item(), 4))
        return losses

    def save(self, path):
        if not os.path.isabs(path):
            raise ValueError(f"path must be absolute: {path}")
        self.saved.append(path)
        if self.adapter_rank:
            if self.rank == 0:
                write_adapter(path, self.model.config, self.adapter_rank, len(self.saved))
            dist.barrier()
            return
        # Collective: rank 0 gets the whole tensors, the others an empty dictionary.
        state = get_model_state_dict(self.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if self.rank == 0:
            self.write(path, {name: t.to(torch.bfloat16).contiguous() for name, t in state.items()})
        # No rank answers before the files are there.
        dist.barrier()

    def write(self, path, state):
        os.makedirs(path, exist_ok=True)
        save_file(state, os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
        self.model.config.dtype = torch.bfloat16
        self.model.config.save_pretrained(path)
        self.tokenizer.save_pretrained(path)


ADAPTED = ("q_proj", "v_proj")
# Of the values of lora_A and lora_B: wide enough that each adapter moves the log-probabilities by more than one.
ADAPTER_DEVIATION = 0.15


def write_adapter(path, config, rank, number):
    """PEFT's two files, with values that are drawn anew for each number."""
    draw = torch.Generator().manual_seed(7000 + number)
    sizes = {"q_proj": config.num_attention_heads, "v_proj": config.num_key_value_heads}
    tensors = {}
    for layer in range(config.num_hidden_layers):
        for module in ADAPTED:
            at = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            outputs = sizes[module] * config.head_dim
            for part, size in (("lora_A", (rank, config.hidden_size)), ("lora_B", (outputs, rank))):
                tensors[f"{at}.{part}.weight"] = ADAPTER_DEVIATION * torch.randn(size, generator=draw)
    os.makedirs(path, exist_ok=True)
    save_file(tensors, os.path.join(path, "adapter_model.safetensors"), metadata={"format": "pt"})
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank, "lora_dropout": 0.0}
    settings |= {"target_modules": list(ADAPTED), "bias": "none", "modules_to_save": None, "use_dora": False}
    with open(os.path.join(path, "adapter_config.json"), "w", encoding="utf-8") as f:
        json.dump(settings, f)


def add_adapter(model, path):
    """W + lora_alpha / r * B A, as the definition of LoRA has it."""
    with open(os.path.join(path, "adapter_config.json"), encoding="utf-8") as f:
        settings = json.load(f)
    scale = settings["lora_alpha"] / settings["r"]
    tensors = load_file(os.path.join(path, "adapter_model.safetensors"))
    for name, down in tensors.items():
        module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        if name.endswith(".lora_A.weight"):
            up = tensors[name.replace(".lora_A.", ".lora_B.")]
            model.get_submodule(module).weight.data += scale * (up.float() @ down.float())


def reference(path, sequences, adapter=None):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    if adapter:
        add_adapter(model, adapter)
    out = []
    with torch.no_grad():
        for ids in sequences:
            given = torch.tensor([ids])
            logprobs = torch.log_softmax(model(given).logits[0, :-1], dim=-1)
            out.append(logprobs.gather(1, given[0, 1:, None])[:, 0].tolist())
    return out


def path_of(body):
    """AReaL sends one dataclass as the first argument. It is read as plain data: nothing is imported by name."""
    try:
        path = body["args"][0]["data"]["path"]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"no path in args[0].data: {error!r}") from error
    if body["args"][0]["data"].get("weight_format") != "hf":
        raise ValueError(f"Unknown weight format {body['args'][0]['data'].get('weight_format')}")
    return path


class EngineThread:
    """One thread that does the calls in the order in which they came."""

    def __init__(self):
        self.jobs = queue.Queue()

    def submit(self, job):
        future = Future()
        self.jobs.put((job, future))
        return future

    def run(self):
        while True:
            job, future = self.jobs.get()
            try:
                future.set_result(job())
            except Exception as error:  # The caller is told; the rank serves on.
                future.set_exception(error)


def handler(trainer, engine, lock):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, fmt, *args):
            print(f"rank {trainer.rank}: {fmt % args}", flush=True)

        def answer(self, status, value):
            data = json.dumps(value).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            if self.path == "/saved":
                return self.answer(200, {"result": trainer.saved, "status": "success"})
            if self.path != "/health":
                return self.answer(404, {"error": "Not found"})
            self.answer(200, {"status": "healthy", "rank": trainer.rank, "role": "train_worker", "ready": True})

        def do_POST(self):
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                body = json.loads(text or b"{}")
                if self.path == "/save":
                    path = path_of(body)
                    result = engine.submit(lambda: trainer.save(path)).result()
                elif self.path == "/step":
                    result = engine.submit(lambda: trainer.step(**body)).result()
                elif self.path == "/adapter":
                    result = trainer.adapter_rank = int(body["rank"])
                elif self.path == "/reference":
                    with lock:
                        result = reference(body["path"], body["sequences"], body.get("adapter"))
                else:
                    return self.answer(404, {"error": "Not found"})
            except (RuntimeError, ValueError) as error:
                return self.answer(400, {"error": str(error)})
            except Exception as error:
                return self.answer(500, {"error": f"Internal server error: {error}"})
            self.answer(200, {"result": result, "status": "success"})

    return Handler


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--urls", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainer = Trainer(args.model)
    engine = EngineThread()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(trainer, engine, threading.Lock()))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    dist.barrier()
    final = os.path.join(args.urls, f"rank{trainer.rank}.url")
    with open(final + ".part", "w", encoding="ascii") as f:
        f.write(f"http://127.0.0.1:{server.server_address[1]}")
    os.rename(final + ".part", final)
    # FSDP's collectives have to come from one thread: it is this one.
    engine.run()


if __name__ == "__main__":
    sys.exit(main())
