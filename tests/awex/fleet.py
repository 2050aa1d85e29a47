"""The workers as the tests handle them: start, kill, start again at the same URL, and every question they answer."""
import dataclasses
import json
import os
import signal
import subprocess
import sys
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "real"))
import ports  # noqa: E402
import wire  # noqa: E402


@dataclasses.dataclass
class Worker:
    """A process, or what is left of one: url stays when it is started again."""

    name: str
    options: dict[str, Any]
    log: str
    pid: int = 0
    held: ports.HeldPort = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.held = ports.HeldPort(self.host)

    @property
    def host(self) -> str:
        return self.options.get("host", "127.0.0.1")

    @property
    def port(self) -> int:
        return self.held.number

    @property
    def url(self) -> str:
        return f"http://{wire.in_url(self.host)}:{self.port}"

    @property
    def infers(self) -> bool:
        return self.options["role"] == "infer"

    def ask(self, method: str, path: str, body: Any = None, timeout: float = 60) -> Any:
        answer = wire.call(self.url, method, path, body, timeout)
        if answer.status != 200:
            raise AssertionError(f"{self.name} {method} {path}: {answer}")
        return answer.body

    def alive(self) -> bool:
        return wire.call(self.url, "GET", "/debug/seen", timeout=5).status == 200

    def kill(self) -> None:
        """The whole worker, its ranks too: each leads a session."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def fail(self, call: str, kind: str, **more: Any) -> None:
        self.ask("POST", "/debug/fault", {"call": call, "kind": kind, **more})

    def seen(self, call: str) -> list[dict[str, Any]]:
        return self.ask("GET", "/debug/seen").get(call, [])

    def digests(self) -> list[dict[str, Any]]:
        """Of its ranks: {"names": {tensor: digest}, "last": what the last transfer moved}."""
        got = self.ask("GET", "/debug/digests")
        return got if self.infers else [got]

    def differing(self, seed: int) -> list[str]:
        """An engine's tensors that aren't, byte by byte, those of this seed."""
        wanted = self.ask("GET", f"/debug/expected?seed={seed}")
        return [
            f"rank {rank}: {name}"
            for rank, (have, want) in enumerate(zip(self.digests(), wanted, strict=True))
            for name in want
            if have["names"].get(name) != want[name]
        ]

    def paused(self) -> bool:
        return wire.call(self.url, "GET", "/ready").status == 503

    def label(self) -> str:
        return self.ask("GET", "/model_info")["weight_version"]


class Fleet:
    """Owns the nursery and every worker that it has started."""

    def __init__(self, python: str, folder: str) -> None:
        self.folder = folder
        self.workers: list[Worker] = []
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "nursery.log"), "wb") as log:
            self.nursery = subprocess.Popen(
                [python, os.path.join(HERE, "nursery.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
            )  # fmt: skip
        self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self.nursery.stdout.readline()
        if not line:
            raise RuntimeError(f"the nursery ended with {self.nursery.wait()}; see nursery.log in {self.folder}")
        return json.loads(line)

    def train(self, rank: int, world: int, **more: Any) -> Worker:
        return self._new(f"train{rank}", {"role": "train", "rank": rank, "world": world, **more})

    def trainers(self, world: int, **more: Any) -> list[Worker]:
        return [self.train(rank, world, **more) for rank in range(world)]

    def engine(self, tp: int, **more: Any) -> Worker:
        return self._new(f"engine{sum(w.infers for w in self.workers)}", {"role": "infer", "tp": tp, **more})

    def engines(self, count: int, tp: int, **more: Any) -> list[Worker]:
        return [self.engine(tp, **more) for _ in range(count)]

    def _new(self, name: str, options: dict[str, Any]) -> Worker:
        worker = Worker(name, options, os.path.join(self.folder, f"{len(self.workers):02}-{name}.log"))
        self.workers.append(worker)
        return self.start(worker)

    def start(self, worker: Worker) -> Worker:
        """Also one that was killed: at its old port."""
        order = {**worker.options, "port": worker.port, "log": worker.log}
        self.nursery.stdin.write(json.dumps(order) + "\n")
        self.nursery.stdin.flush()
        made = self._answer()
        if "error" in made:
            raise RuntimeError(f"{worker.name}: {made['error']}")
        worker.pid = made["pid"]
        return worker

    def clear(self) -> None:
        """The next scenario begins with nobody."""
        for worker in self.workers:
            worker.kill()
        self.workers = []

    def end(self) -> None:
        self.clear()
        self.nursery.stdin.close()
        try:
            self.nursery.wait(10)
        except subprocess.TimeoutExpired:
            self.nursery.kill()
            self.nursery.wait()
