"""Starts workers as forks of itself: the imports of torch and of the package, three seconds of a core, are paid once.

Reads one line of JSON for each worker ({"log": FILE, and worker.Options}), answers {"pid", "port"} or {"error"}. Ends with its
input, and its workers with it. A worker leads a session, so that it can be killed with its ranks.
"""
import json
import os
import signal
import sys
import traceback

import torch
import worker
from engine import die_with_parent


def become(order: dict, told: int) -> None:
    """In the fork; never returns."""
    code = 1
    try:
        os.setsid()
        die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(order.pop("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        worker.run(worker.Options.of(order), lambda port: os.write(told, str(port).encode()))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def start(order: dict) -> dict:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        become(order, write)
    os.close(write)
    port = os.read(read, 8)  # Nothing, if the last that could write has gone.
    os.close(read)
    return {"pid": pid, "port": int(port)} if port else {"error": f"the worker ended before it listened; see {order['log']}"}


def main() -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for a worker.
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(start(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
