"""Runs steps one after another, prints each with its seconds, and remembers which failed."""
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback


class Skipped(Exception):
    """Raised by a step that this machine can't run: its text is the reason. Neither passed nor failed."""


class Steps:
    def __init__(self, out=sys.stdout):
        self.out = out
        self.done = []
        self.skipped = []

    def say(self, text):
        print(f"      {text}", file=self.out, flush=True)

    def run(self, name, action, *args):
        """The action's value, or None when it failed. What comes after a failure still runs: a nightly run that
        stops at the first of ten findings tells one of them."""
        print(f"[ .. ] {name}", file=self.out, flush=True)
        began = time.monotonic()
        value, error = None, ""
        try:
            value = action(*args)
        except Skipped as reason:
            self.skipped.append((name, str(reason)))
            print(f"[SKIPPED] {name}: {reason}", file=self.out, flush=True)
            return None
        except Exception as caught:
            error = f"{type(caught).__name__}: {caught}"
            traceback.print_exc(file=self.out)
        seconds = time.monotonic() - began
        self.done.append((name, seconds, error))
        word = "FAIL" if error else " ok "
        print(f"[{word}] {name} ({seconds:.1f} s)", file=self.out, flush=True)
        return value

    def failed(self):
        return [name for name, _, error in self.done if error]

    def print_table(self):
        print("\nstep                                                                        seconds", file=self.out)
        for name, seconds, error in self.done:
            print(f"{name[:72]:72} {seconds:10.1f}{'  FAILED: ' + error[:160] if error else ''}", file=self.out)
        for name, reason in self.skipped:
            print(f"{name[:72]:72}    SKIPPED: {reason}", file=self.out)
        total = sum(seconds for _, seconds, _ in self.done)
        print(f"{'all':72} {total:10.1f}", file=self.out, flush=True)


def run_in_folder(name, logs, run):
    """A whole run: `run(folder, steps)` with its logs in `logs`, or in a temporary folder that is kept on failure.
    Gives the exit code."""
    # A run that is cancelled leaves nobody behind: SIGTERM takes the way of an exception.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = os.path.abspath(logs) if logs else tempfile.mkdtemp(prefix=f"weighlock-{name}-")
    os.makedirs(folder, exist_ok=True)
    steps = Steps()
    run(folder, steps)
    steps.print_table()
    if steps.failed():
        print(f"failed: {', '.join(steps.failed())}; logs are in {folder}")
        return 1
    if steps.skipped:
        print(f"SKIPPED, so nothing is known of: {', '.join(name for name, _ in steps.skipped)}")
    if not logs:
        shutil.rmtree(folder)
    return 0
