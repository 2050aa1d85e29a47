"""A worker as AReaL's are on the wire, with the real package behind it: a training rank, or an inference engine.

Both have AReaL's /awex routes. A training rank has an engine thread with a queue, and answers /health beside it. An engine has
SGLang's control routes too, and answers nothing at all while it takes part in a bring-up or an update.

    POST /debug/set_weights {"seed": N}     the whole model, generated
    POST /debug/memory {"released": [tags]} what is released now: the trainer's doing between two updates, and the rollouts'
    GET  /debug/digests                     of each tensor and rank, what the last transfer moved, what memory is released
    GET  /debug/expected?seed=N             an engine's digests, if it has the weights of that seed
    GET  /debug/seen                        bodies of the /awex calls so far, by name
    POST /debug/fault {"call", "kind", "times": 1, "seconds"}
         call: the last part of a route. kind: refuse (500, without taking part), hang (takes no part for some seconds),
         die (before it takes part), die_midway (update_weights only: when half is transferred; "rank" of the engine's)
"""
import asyncio
import concurrent.futures
import dataclasses
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable
from typing import Any

from engine import Engine
from http_loop import Answer, Request, serve
from model import Shape, TrainPart
from rank import Rank

CALLS = (
    "report_weight_meta", "init_weights_update_group", "batch_isend_irecv", "update_weights", "init_colocate_weight_update",
    "execute_colocate_weight_update", "release_memory", "resume_memory",
)  # fmt: skip
VERSIONED = ("update_weights", "execute_colocate_weight_update")


@dataclasses.dataclass
class Options:
    """One worker. rank, world and layout are a trainer's, tp is an engine's."""

    role: str
    host: str = "127.0.0.1"
    port: int = 0
    rank: int = 0
    world: int = 1
    layout: str = "fsdp"
    tp: int = 1
    group_seconds: float = 60
    shape: Shape = dataclasses.field(default_factory=Shape)

    @staticmethod
    def of(members: dict[str, Any]) -> "Options":
        return Options(**{**members, "shape": Shape(**members.get("shape", {}))})


class Faults:
    """What is to go wrong, by call."""

    def __init__(self) -> None:
        self.armed: dict[str, dict[str, Any]] = {}

    def arm(self, fault: dict[str, Any]) -> None:
        self.armed[fault["call"]] = {"times": 1, **fault}

    def take(self, call: str) -> dict[str, Any]:
        fault = self.armed.get(call)
        if not fault or fault["times"] <= 0:
            return {"kind": ""}
        fault["times"] -= 1
        return fault


class Worker:
    """What both have in common. `do` runs something on the rank or ranks and may block."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.faults = Faults()
        self.seen: dict[str, list[Any]] = {}

    def do(self, name: str, **arguments: Any) -> Any:
        raise NotImplementedError

    async def on_engine(self, action: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def parallelism(self) -> dict[str, Any]:
        raise NotImplementedError

    def answer_awex(self, call: str, value: Any, body: dict[str, Any]) -> Answer:
        raise NotImplementedError

    def answer_failure(self, error: Exception) -> Answer:
        raise NotImplementedError

    async def control(self, request: Request) -> Answer:
        raise NotImplementedError

    async def handle(self, request: Request) -> Answer:
        if request.path.startswith("/awex/"):
            return await self._awex(request)
        if request.path.startswith("/debug/"):
            return await self._debug(request)
        return await self.control(request)

    async def _awex(self, request: Request) -> Answer:
        call = request.path.removeprefix("/awex/")
        self.seen.setdefault(call, []).append(request.body)
        if request.route == "GET /awex/report_parallelism":
            return Answer(200, self.parallelism())
        known = call in CALLS or (call == "teardown" and self.options.role == "train")
        if request.method != "POST" or not known:
            return Answer(404, {"detail": "Not Found"})
        fault = self.faults.take(call)
        if fault["kind"] == "refuse":
            return Answer(500, {"error": f"{call}: the worker was told to refuse"})
        body = {"version": request.body.get("version", 0)} if call in VERSIONED else request.body
        try:
            value = await self.on_engine(lambda: self._take_part(call, body, fault))
        except Exception as error:
            traceback.print_exc()
            return self.answer_failure(error)
        return self.answer_awex(call, value, body)

    def _take_part(self, call: str, body: dict[str, Any], fault: dict[str, Any]) -> Any:
        if fault["kind"] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault["kind"] == "hang":
            time.sleep(fault["seconds"])
        if fault["kind"] == "die_midway":
            self.do("die_midway", rank=fault.get("rank", self.options.rank))
        return self.do(call, **body)

    async def _debug(self, request: Request) -> Answer:
        if request.route == "POST /debug/fault":
            self.faults.arm(request.body)
            return Answer(200, {})
        if request.route == "GET /debug/seen":
            return Answer(200, self.seen)
        if request.route == "POST /debug/set_weights":
            await self.on_engine(lambda: self.do("set_weights", seed=request.body["seed"]))
            return Answer(200, {})
        if request.route == "POST /debug/memory":
            await self.on_engine(lambda: self.do("set_released", tags=request.body["released"]))
            return Answer(200, {})
        if request.route == "GET /debug/digests":
            return Answer(200, await self.on_engine(lambda: self.do("digests")))
        if request.route == "GET /debug/expected":
            return Answer(200, await self.on_engine(lambda: self.do("expected", seed=int(request.query["seed"]))))
        return Answer(404, {"detail": "Not Found"})


class TrainWorker(Worker):
    """AReaL's Flask worker: requests are taken at any time, the engine does one thing after the other."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.rank = Rank(TrainPart(options.shape, options.rank, options.world, options.layout), 1, options.group_seconds)
        self.rank.set_weights(1)
        self.thread = concurrent.futures.ThreadPoolExecutor(1)

    def do(self, name: str, **arguments: Any) -> Any:
        return getattr(self.rank, name)(**arguments)

    async def on_engine(self, action: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.thread, action)

    def parallelism(self) -> dict[str, Any]:
        world = self.options.world
        return {"world_size": world, "tp_size": 1, "pp_size": 1, "dp_size": world, "ep_size": 1, "dp_replicated": False}

    def answer_awex(self, call: str, value: Any, body: dict[str, Any]) -> Answer:
        return Answer(200, {"status": "success", "result": value})

    def answer_failure(self, error: Exception) -> Answer:
        if isinstance(error, (RuntimeError, ValueError)):
            return Answer(400, {"error": str(error)})
        return Answer(500, {"error": f"Internal server error: {error}"})

    async def control(self, request: Request) -> Answer:
        if request.route == "GET /health":
            return Answer(200, {"status": "healthy", "rank": self.options.rank, "role": "train_worker", "ready": True})
        if request.path == "/get_version":
            return Answer(200, {"status": "success", "result": await self.on_engine(lambda: self.rank.part.seed)})
        if request.route == "POST /save":
            directory = request.body["args"][0]["data"]["path"]
            await self.on_engine(lambda: self.rank.save(directory))
            return Answer(200, {"status": "success", "result": None})
        return Answer(404, {"detail": "Not Found"})


class InferWorker(Worker):
    """SGLang's server as far as the gateway needs it."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.engine = Engine(options.shape, options.tp, options.group_seconds)
        self.label, self.directory = "default", "/models/start"
        self.startup = {"load_model": time.monotonic_ns(), "pid": os.getpid()}
        self.serving = asyncio.Event()
        self.serving.set()
        self.pauses = 0

    def do(self, name: str, **arguments: Any) -> Any:
        return self.engine.on_all(name, **arguments)

    async def on_engine(self, action: Callable[[], Any]) -> Any:
        return action()  # On the loop: nobody else is answered meanwhile.

    def parallelism(self) -> dict[str, Any]:
        tp = self.options.tp
        return {"world_size": tp, "tp_size": tp, "pp_size": 1, "dp_size": 1, "ep_size": 1, "num_engines": 1}

    def answer_awex(self, call: str, value: Any, body: dict[str, Any]) -> Answer:
        if call == "report_weight_meta":
            return Answer(200, {"status": "ok", "meta": [tensor for rank in value for tensor in rank]})
        return Answer(200, {"status": "ok", "version": body["version"]} if call in VERSIONED else {"status": "ok"})

    def answer_failure(self, error: Exception) -> Answer:
        return Answer(500, {"error": str(error)})

    async def control(self, request: Request) -> Answer:
        routes: dict[str, Callable[[dict[str, Any]], Any]] = {
            "GET /server_info": lambda body: {
                "version": "0.5.23", "startup_time": self.startup, "model_path": "/models/start", "internal_states": []},
            "GET /model_info": self._model_info,
            "GET /v1/models": lambda body: {"object": "list", "data": [{"id": self.directory, "root": self.directory}]},
            "GET /ready": lambda body: Answer(200 if self.serving.is_set() else 503),
            "POST /pause_generation": self._pause,
            "POST /continue_generation": self._continue,
            "POST /update_weight_version": self._set_label,
            "POST /flush_cache": lambda body: "Cache flushed.\n",
            "POST /update_weights_from_disk": self._load,
            "POST /get_weights_by_name": self._leading,
        }
        if request.path == "/health":
            return await self._health()
        if request.path == "/generate":
            return await self._generate()
        route = routes.get(request.route)
        if route is None:
            return Answer(404, {"detail": "Not Found"})
        answer = route(request.body)
        return answer if isinstance(answer, Answer) else Answer(200, answer)

    async def _health(self) -> Answer:
        """It makes a token, so it hangs while generation is paused."""
        try:
            await asyncio.wait_for(self.serving.wait(), 20)
        except asyncio.TimeoutError:
            return Answer(503)
        return Answer(200)

    async def _generate(self) -> Answer:
        await self.serving.wait()
        told = {"output_token_logprobs": [[-0.5, 7, None]], "weight_version": self.label, "finish_reason": {"type": "length"}}
        return Answer(200, {"text": "g", "output_ids": [7], "meta_info": told})

    def _model_info(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"model_path": self.directory, "served_model_name": self.directory, "weight_version": self.label}

    def _pause(self, body: dict[str, Any]) -> dict[str, Any]:
        self.pauses += 1
        self.serving.clear()
        return {"message": "Generation paused successfully.", "status": "ok"}

    def _continue(self, body: dict[str, Any]) -> dict[str, Any]:
        self.serving.set()
        return {"message": "Generation continued successfully.", "status": "ok"}

    def _set_label(self, body: dict[str, Any]) -> dict[str, Any]:
        self.label = body["new_version"]
        return {"success": True, "message": f"Weight version updated to {self.label}", "new_version": self.label}

    def _load(self, body: dict[str, Any]) -> Answer:
        try:
            self.do("load", directory=body["model_path"])
        except RuntimeError as error:
            return Answer(400, {"success": False, "message": f"Failed to load: {error}", "num_paused_requests": 0})
        self.directory = body["model_path"]
        self.label = body.get("weight_version") or self.label
        return Answer(200, {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0})

    def _leading(self, body: dict[str, Any]) -> Answer:
        rows = self.do("leading", name=body["name"], count=body.get("truncate_size", 100))[0]
        return Answer(200, rows) if rows is not None else Answer(400, {"error": {"message": "Get parameter by name failed"}})


def listen(host: str, port: int) -> socket.socket:
    """On a port that a killed predecessor has just left, too."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=256)
    listener.setblocking(False)
    return listener


def run(options: Options, announce: Callable[[int], None]) -> None:
    """Serves until the process ends; announces its port when it answers."""
    made = TrainWorker(options) if options.role == "train" else InferWorker(options)
    listener = listen(options.host, options.port)
    announce(listener.getsockname()[1])
    asyncio.run(serve(listener, made.handle))
