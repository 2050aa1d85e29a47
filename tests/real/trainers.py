"""Starts and stops the ranks of train_worker.py."""
import os
import subprocess

import wire
from engines import HERE, kill_tree

# AReaL's gateway sends the fields of this dataclass, in this order.
SAVE_CLASS = "areal.api.io_struct.SaveLoadMeta"


def save_body(path):
    data = {
        "path": path,
        "weight_format": "hf",
        "with_optim": False,
        "tokenizer": None,
        "processor": None,
        "base_model_path": None,
        "naive_distributed": False,
    }
    return {"args": [{"type": "dataclass", "class_path": SAVE_CLASS, "data": data}], "kwargs": {}}


class Ranks:
    def __init__(self, model, folder, python, count=2):
        self.model = model
        self.folder = folder
        self.python = python
        self.count = count
        self.urls = []
        self.log = os.path.join(folder, "trainers.log")
        self.process = None

    def start(self, wait=True):
        os.makedirs(self.folder, exist_ok=True)
        env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        worker = os.path.join(HERE, "train_worker.py")
        command = [
            self.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.count),
            worker, "--model", self.model, "--urls", self.folder,
        ]  # fmt: skip
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
            )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout=240):
        names = [os.path.join(self.folder, f"rank{n}.url") for n in range(self.count)]

        def all_there():
            if self.process.poll() is not None:
                with open(self.log, encoding="utf-8", errors="replace") as f:
                    raise RuntimeError(f"the trainers ended with {self.process.returncode}:\n{f.read()[-3000:]}")
            return all(os.path.exists(name) for name in names)

        wire.wait_until(all_there, timeout, "the ranks' URLs")
        self.urls = []
        for name in names:
            with open(name, encoding="ascii") as f:
                self.urls.append(f.read())

    def on_all(self, path, body, timeout=120):
        """One call to every rank at once, as a collective needs it; the answers in the order of ranks."""
        calls = [wire.Pending(url, "POST", path, body, timeout) for url in self.urls]
        answers = [c.answer(timeout + 5) for c in calls]
        for rank, answer in enumerate(answers):
            if answer.status != 200:
                raise RuntimeError(f"rank {rank} {path}: {answer}")
        return [a.body["result"] for a in answers]

    def step(self, steps, rate):
        return self.on_all("/step", {"steps": steps, "rate": rate})

    def save(self, path):
        return self.on_all("/save", save_body(path))

    def save_adapters(self, rank):
        """From now on /save writes LoRA adapters of this rank; 0: whole models again."""
        return self.on_all("/adapter", {"rank": rank})

    def last_saved(self):
        return wire.call(self.urls[0], "GET", "/saved").body["result"][-1]

    def reference(self, path, sequences, adapter=None):
        body = {"path": path, "sequences": sequences, "adapter": adapter}
        answer = wire.call(self.urls[0], "POST", "/reference", body, 120)
        if answer.status != 200:
            raise RuntimeError(f"reference of {path}: {answer}")
        return answer.body["result"]

    def stop(self):
        if self.process is not None:
            kill_tree(self.process)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()
