"""Recording imposters of an SGLang engine and of a rank of AReaL's trainer, over real sockets.

An engine answers what a gateway asks it in an update, from the files it was told to load, so that the gateway's own checks
pass; rank 0 really writes a small checkpoint. In AWEX mode both report what they did when they were recorded, and take part in
collectives. Every request is recorded with the times at which it came and was answered.
"""
import http.server
import json
import os
import struct
import threading
import time

LAYER = "model.layers.0.self_attn.q_proj"
LORA_RANK = 4
COLLECTIVE_S = 20
WIDTH = 8


class Recorded:
    def __init__(self, worker, handler, body):
        self.worker, self.method, self.path = worker, handler.command, handler.path.partition("?")[0]
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.text = body.decode()
        self.began = time.monotonic()
        self.ended = None

    @property
    def body(self):
        return json.loads(self.text) if self.text else None


class Imposter:
    """One worker; `log` is shared by all of them."""

    def __init__(self, name, log):
        self.name, self.log, self.lock = name, log, threading.Lock()
        imposter = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                recorded = Recorded(imposter.name, self, body)
                imposter.log.append(recorded)
                with imposter.lock:
                    status, answer = imposter.answer(recorded)
                text = b"" if answer is None else json.dumps(answer).encode()
                recorded.ended = time.monotonic()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                for header, value in imposter.answer_headers:
                    self.send_header(header, value)
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_DELETE = do

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_):
                pass  # the gateway may close a connection whenever it likes

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    answer_headers = ()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Awex:
    """The /awex routes of one worker. A collective is answered when each of its members was asked."""

    COLLECTIVES = ("init_weights_update_group", "batch_isend_irecv", "update_weights", "init_colocate_weight_update",
                   "execute_colocate_weight_update")

    def __init__(self, good, reports, everyone, noted):
        self.good, self.reports, self.everyone, self.noted = good, reports, everyone, noted
        self.versions = []

    def answer(self, asked):
        if asked.path in self.reports:
            return 200, self.reports[asked.path]
        call = asked.path.rpartition("/")[2]
        if call in self.COLLECTIVES:
            try:
                self.everyone.wait(COLLECTIVE_S)
            except threading.BrokenBarrierError:
                return 500, {"error": "the other ranks were not asked"}
        if call in self.noted:
            self.versions.append(asked.body["version"])
        return 200, self.good


class Engine(Imposter):
    awex = None

    def __init__(self, name, log, start, adapters):
        self.path, self.label, self.paused = start, "default", False
        self.pauses = self.continues = 0
        self.loads, self.adapters = [], {adapter: start for adapter in adapters}
        super().__init__(name, log)

    def state(self):
        return {"paused": self.paused, "loaded": self.loads[-1] if self.loads else None, "loads": self.loads,
                "adapters": list(self.adapters), "awex": self.awex.versions if self.awex else []}

    def answer(self, asked):
        if self.awex and asked.path.startswith("/awex/"):
            return self.awex.answer(asked)
        body = asked.body if asked.method == "POST" else None
        handler = getattr(self, asked.method.lower() + asked.path.replace("/", "_"), None)
        return handler(body) if handler else (404, {"detail": "Not Found"})

    def get_server_info(self, _):
        return 200, {"version": "0.5.10.post1", "startup_time": 12.5, "model_path": self.path, "enable_lora": True,
                     "max_lora_rank": 64}

    def get_model_info(self, _):
        return 200, {"model_path": self.path, "weight_version": self.label}

    def get_ready(self, _):
        return (503 if self.paused else 200), None

    get_health = get_ready

    def get_v1_models(self, _):
        base = {"id": "base", "object": "model", "root": self.path, "parent": None}
        adapters = [{"id": name, "object": "model", "root": path, "parent": "base"} for name, path in self.adapters.items()]
        return 200, {"object": "list", "data": [base] + adapters}

    def post_pause_generation(self, _):
        self.paused = True
        self.pauses += 1
        return 200, {"message": "Generation paused successfully.", "status": "ok"}

    def post_continue_generation(self, _):
        self.paused = False
        self.continues += 1
        return 200, {"message": "Generation continued successfully.", "status": "ok"}

    def post_flush_cache(self, _):
        return 200, {"success": True, "message": "Cache flushed."}

    def post_update_weight_version(self, body):
        self.label = body["new_version"]
        return 200, {"success": True, "message": "Weight version updated to " + self.label, "new_version": self.label}

    def post_update_weights_from_disk(self, body):
        self.path = body["model_path"]
        self.label = body.get("weight_version") or self.label
        self.loads.append(self.path)
        return 200, {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}

    def post_get_weights_by_name(self, body):
        rows = read_rows(self.path, body["name"])
        return (200, rows[: body["truncate_size"]]) if rows else (400, {"message": "no such parameter"})

    def post_load_lora_adapter(self, body):
        name = body["lora_name"]
        if name in self.adapters:
            return 400, self.adapter_answer("LoRA with name %s already exists." % name)
        self.adapters[name] = body["lora_path"]
        return 200, self.adapter_answer(None)

    def post_unload_lora_adapter(self, body):
        if self.adapters.pop(body["lora_name"], None) is None:
            return 400, self.adapter_answer("LoRA with name %s does not exist." % body["lora_name"])
        return 200, self.adapter_answer(None)

    def adapter_answer(self, failure):
        return {"rid": None, "http_worker_ipc": None, "success": failure is None, "error_message": failure,
                "loaded_adapters": dict(self.adapters)}


class Trainer(Imposter):
    awex = None
    answer_headers = (("Connection", "close"),)  # as Werkzeug's server does

    def __init__(self, name, log, writes, all_ranks):
        self.writes, self.saves, self.all_ranks = writes, [], all_ranks
        super().__init__(name, log)

    def state(self):
        return {"saves": self.saves, "awex": self.awex.versions if self.awex else []}

    def answer(self, asked):
        if self.awex and asked.path.startswith("/awex/"):
            return self.awex.answer(asked)
        if (asked.method, asked.path) != ("POST", "/save"):
            return 404, {"error": "Not Found"}
        directory = asked.body["args"][0]["data"]["path"]
        self.saves.append(directory)
        try:
            self.all_ranks.wait(COLLECTIVE_S)  # a save is a collective: it ends when every rank was asked
        except threading.BrokenBarrierError:
            return 500, {"error": "Internal server error: the other ranks were not asked to save"}
        if self.writes:
            self.writes(directory, len(self.saves))
        return 200, {"result": None, "status": "success"}


def write_tensors(path, tensors):
    """{name: (shape, values)} as F32 safetensors."""
    header, data = {}, b""
    for name, (shape, values) in sorted(tensors.items()):
        packed = struct.pack("<%df" % len(values), *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_json(path, value):
    with open(path, "w") as file:
        json.dump(value, file)


def ramp(shape, seed):
    return shape, [seed + i / 64 for i in range(shape[0] * shape[1])]


def write_model(directory, seed):
    os.makedirs(directory, exist_ok=True)
    names = ("lm_head.weight", "model.embed_tokens.weight", LAYER + ".weight")
    write_json(os.path.join(directory, "config.json"), {"model_type": "llama", "tie_word_embeddings": False})
    write_tensors(os.path.join(directory, "model.safetensors"), {name: ramp([WIDTH, WIDTH], seed) for name in names})


def write_adapter(directory, seed):
    os.makedirs(directory, exist_ok=True)
    prefix = "base_model.model." + LAYER
    write_json(os.path.join(directory, "adapter_config.json"),
               {"peft_type": "LORA", "r": LORA_RANK, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"})
    write_tensors(os.path.join(directory, "adapter_model.safetensors"),
                  {prefix + ".lora_A.weight": ramp([LORA_RANK, WIDTH], seed),
                   prefix + ".lora_B.weight": ramp([WIDTH, LORA_RANK], seed)})


def read_rows(directory, name):
    with open(os.path.join(directory, "model.safetensors"), "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        entry = json.loads(file.read(length)).get(name)
        if not entry:
            return None
        begin, end = entry["data_offsets"]
        file.seek(8 + length + begin)
        values = struct.unpack("<%df" % ((end - begin) // 4), file.read(end - begin))
    columns = entry["shape"][1]
    return [list(values[i : i + columns]) for i in range(0, len(values), columns)]
