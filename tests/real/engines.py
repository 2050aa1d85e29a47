#!/usr/bin/env python3
"""Starts, freezes, kills and stops the real SGLang and vLLM on a CPU.

    engines.py sglang MODEL_DIR         starts one, prints its URL and the pid of its core, waits for a newline
    engines.py vllm MODEL_DIR

An engine is a tree of processes: one that speaks HTTP and one that computes (SGLang's scheduler, vLLM's engine
core). Freezing and killing are done to the computing one, because that is the one that a load runs in; stopping is
done to the whole tree, which has a session of its own.

The options are those of the measurements in docs/engines.md: one thread, eager, small caches, so that two engines,
two trainers and a gateway share two cores.
"""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ports  # noqa: E402
import wire  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
# Start of one engine alone is 20 to 40 s on two quiet cores; on a busy machine 170 s were seen.
START_SECONDS = 420


def environment_folder():
    """Where install_env.sh has put (or would put) the environment."""
    script = os.path.join(HERE, "install_env.sh")
    return subprocess.run([script, "--path"], check=True, capture_output=True, text=True).stdout.strip()


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            direct = [int(word) for word in f.read().split()]
    except OSError:
        return []
    found = list(direct)
    for child in direct:
        found += children_of(child)
    return found


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def kill_tree(process):
    """Kills a process that leads a session, what is in that session, and its children in sessions of their own
    (torchrun's ranks are such). Listed before the first is killed: an orphan has no parent to be found by."""
    members = set(session_members(process.pid)) | set(children_of(process.pid)) | {process.pid}
    for pid in members if process.poll() is None else session_members(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def session_members(session):
    out = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.getsid(int(name)) == session:
                    out.append(int(name))
            except OSError:
                pass
    return out


class Engine:
    """One engine process tree. start() may be called again after kill() or stop(), on the same port: that is a restart."""

    dialect = ""
    core_title = ""
    # Where it tells the directory of its model.
    model_at = ""

    def __init__(self, model, log_dir, python=None, options=()):
        self.model = model
        self.python = python or os.path.join(environment_folder(), "bin", "python")
        self.options = list(options)
        self.held = ports.HeldPort()
        self.port = self.held.number
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_dir = log_dir
        self.starts = 0
        self.log = ""
        self.process = None
        self._core = 0

    # What differs between the two.
    def command(self):
        raise NotImplementedError

    def variables(self):
        raise NotImplementedError

    def is_ready(self):
        """Healthy, and ours: its port is held, but not from a process that insists on this one."""
        return self.call("GET", "/health", timeout=5).status == 200 and self.model in self.call("GET", self.model_at).text

    # What both share.
    def call(self, method, path, body=None, timeout=10.0):
        return wire.call(self.url, method, path, body, timeout)

    def begin(self, method, path, body=None, timeout=60.0):
        return wire.Pending(self.url, method, path, body, timeout)

    def start(self, wait=True):
        self.starts += 1
        self._core = 0
        os.makedirs(self.log_dir, exist_ok=True)
        self.log = os.path.join(self.log_dir, f"{self.dialect}-{self.port}-{self.starts}.log")
        common = {
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "DO_NOT_TRACK": "1",
            "no_proxy": "127.0.0.1,localhost",
            "PATH": os.path.dirname(self.python) + os.pathsep + os.environ.get("PATH", ""),
            "PYTHONUNBUFFERED": "1",
        }
        env = {**os.environ, **common, **self.variables()}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
            )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout=START_SECONDS):
        began = time.monotonic()
        while not self.is_ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.dialect} ended with {self.process.returncode} before it was ready:\n{self.tail()}")
            if time.monotonic() - began > timeout:
                raise TimeoutError(f"{self.dialect} is not ready after {timeout} s:\n{self.tail()}")
            time.sleep(0.25)
        return time.monotonic() - began

    def tail(self, lines=30):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-lines:])

    @property
    def core(self):
        """The pid of the process that computes. Kept, since a frozen process is looked for as well."""
        if not self._core:
            found = [p for p in children_of(self.process.pid) if self.core_title in command_of(p)]
            if not found:
                raise RuntimeError(f"{self.dialect} has no process titled {self.core_title}")
            self._core = found[0]
        return self._core

    def freeze(self):
        os.kill(self.core, signal.SIGSTOP)

    def thaw(self):
        os.kill(self.core, signal.SIGCONT)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill_core(self):
        os.kill(self.core, signal.SIGKILL)

    def kill(self):
        """The whole tree, at once, as a machine that loses its power."""
        if self.process is not None:
            kill_tree(self.process)

    def stop(self):
        """In order first; what is left after 15 s is killed."""
        if self.process is None:
            return
        if self.alive():
            if self._core:
                try:
                    self.thaw()
                except ProcessLookupError:
                    pass
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def restart(self):
        self.stop()
        return self.start()

    def prefer(self, niceness):
        """Sets the priority of all threads of the core and of this one, where that is allowed (root)."""
        try:
            for thread in [0, *os.listdir(f"/proc/{self.core}/task")]:
                os.setpriority(os.PRIO_PROCESS, int(thread), niceness)
        except OSError:
            return  # Not allowed, or the core has just ended.

    def freeze_while_reading(self, path, over, timeout=60.0, slice_seconds=0.0004):
        """Freezes the core while it has a file under `path` mapped, which is while it loads it.

        The load of a tiny model takes milliseconds. So the core is run in slices, and looked at between them; it
        stays frozen at the first look that finds the file. True if that came about before over() says that the load
        has ended unseen. That happens: SGLang has a tiny file mapped for less than a millisecond, and on a busy machine
        a slice lasts until this process gets a processor again (hence the priority). So callers try more than once.
        """
        end = time.monotonic() + timeout
        self.prefer(-20)
        try:
            while time.monotonic() < end and not over():
                self.freeze()
                with open(f"/proc/{self.core}/maps", encoding="utf-8", errors="replace") as f:
                    if path in f.read():
                        return True
                slice_end = time.monotonic() + slice_seconds
                self.thaw()
                while time.monotonic() < slice_end:
                    pass
            return False
        finally:
            self.prefer(0)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()


class Sglang(Engine):
    dialect = "sglang"
    core_title = "sglang::scheduler"
    model_at = "/model_info"

    def command(self):
        return [
            self.python, "-m", "sglang.launch_server",
            "--model-path", self.model, "--served-model-name", "policy",
            "--host", "127.0.0.1", "--port", str(self.port), "--device", "cpu",
            "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
            "--disable-overlap-schedule", "--disable-cuda-graph",
            "--max-total-tokens", "4096", "--context-length", "2048",
            "--max-running-requests", "4", "--mem-fraction-static", "0.1",
            *self.options,
        ]  # fmt: skip

    def variables(self):
        return {"SGLANG_USE_CPU_ENGINE": "1", "PYTHONPATH": os.path.join(HERE, "stubs")}


class Vllm(Engine):
    dialect = "vllm"
    core_title = "VLLM::EngineCore"
    model_at = "/v1/models"

    def command(self):
        # The command line program of this wheel doesn't find its own metadata; the module is the same server.
        return [
            self.python, "-m", "vllm.entrypoints.openai.api_server",
            "--model", self.model, "--served-model-name", "policy",
            "--host", "127.0.0.1", "--port", str(self.port), "--dtype", "bfloat16", "--enforce-eager",
            "--max-model-len", "2048", "--max-num-seqs", "4", "--max-num-batched-tokens", "2048",
            "--kv-cache-memory-bytes", "67108864", "--distributed-executor-backend", "uni",
            "--enable-prompt-tokens-details",
            *self.options,
        ]  # fmt: skip

    def variables(self):
        return {
            # Without it the control routes are 404.
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            # Two processes instead of three.
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            # Else every server pins its worker to core 0.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # Else the first request with logprobs compiles for half a minute.
            "TORCHDYNAMO_DISABLE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            # From here on it looks for a port of its ranks; else it takes one that anybody may have before it is bound.
            "VLLM_PORT": str(self.port + 1),
        }


KINDS = {"sglang": Sglang, "vllm": Vllm}


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in KINDS:
        print(__doc__, file=sys.stderr)
        return 2
    with KINDS[sys.argv[1]](sys.argv[2], os.getcwd(), options=sys.argv[3:]) as engine:
        engine.start()
        print(engine.url, engine.core, flush=True)
        sys.stdin.readline()
    return 0


if __name__ == "__main__":
    sys.exit(main())
