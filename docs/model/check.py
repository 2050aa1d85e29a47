#!/usr/bin/env python3
"""Searches the model exhaustively, and proves that it can fail.

  docs/model/check.py [--build DIR]     DIR: where the verifiers are made (build/model)

Needs spin and gcc (tools/install.sh test). Prints a row for each search. Fails if a property fails, if a search didn't come
to its end, if a line marked SEEN was reached by none, or if a deliberate mistake is not caught. For a property that fails it
prints the run that leads there, by the lines of the model.
"""
import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

MODEL = Path(__file__).resolve().parent / "weighlock.pml"
DEPTH_MAX = 100_000  # steps of a run; the longest has some 150
HASH_BITS = 24
SECONDS_MAX = 600
# What two searches at once may take: twice this is below 4 GiB.
MEMORY_MAX_MB = 2040
AT_ONCE = 2


@dataclass(frozen=True)
class Search:
    name: str
    knobs: dict[str, int]
    claim: bool = False  # liveness: `ends`
    fair: bool = False


@dataclass
class Found:
    search: Search
    states: float = 0
    depth: int = 0
    seconds: float = 0
    megabytes: float = 0
    complete: bool = False
    error: str = ""
    seen: set[int] = field(default_factory=set)


def budgets(updates: int, crashes: int, losses: int, restarts: int, bad: int, **more: int) -> dict[str, int]:
    return {"UPDATES": updates, "CRASHES": crashes, "LOSSES": losses, "RESTARTS": restarts, "BAD": bad, **more}


# The long ones first: two run at once.
SEARCHES = (
    Search("one update, quorum half", budgets(1, 2, 1, 1, 1)),
    Search("one update, all asked", budgets(1, 2, 1, 1, 0, ALL=1)),
    Search("two updates", budgets(2, 1, 1, 1, 0)),
    Search("two updates, bad loads", budgets(2, 1, 1, 0, 1)),
    Search("one update ends, weakly fair", budgets(1, 1, 1, 0, 0), claim=True, fair=True),
    Search("one update ends", budgets(1, 1, 1, 1, 0), claim=True),
    Search("one update ends, all asked", budgets(1, 1, 1, 0, 1, ALL=1), claim=True),
    Search("two updates end", budgets(2, 1, 1, 0, 1), claim=True),
    Search("nothing to heal with", budgets(1, 2, 1, 1, 1, NO_LAST_GOOD=1)),
    Search("two updates, two losses", budgets(2, 1, 2, 0, 0)),
)
SMALL = budgets(1, 1, 1, 1, 1)
# Number in the model -> what is done wrong, where it shows, and which of the protocol's invariants is expected to break.
MISTAKES = {
    1: ("a load is sent before its intent is on the disk", Search("", SMALL), "6"),
    2: ("a heal loads the new version", Search("", SMALL), "1"),
    3: ("torn and unknown workers are resumed", Search("", SMALL), "1"),
    4: ("recovery trusts the label", Search("", SMALL), "1"),
    5: ("a barrier is asked once", Search("", SMALL), "5"),
    6: ("a load that is acknowledged counts as verified", Search("", SMALL), "3"),
    7: ("READY without a read after the resume", Search("", SMALL), "2"),
    8: ("quarantined workers aren't watched", Search("", SMALL), "17"),
    9: ("a failed pause ends the update", Search("", SMALL), "7"),
    10: ("the barrier after a given up call is skipped", Search("", SMALL), "5"),
    11: ("workers are resumed before the commit record", Search("", SMALL), "1"),
    12: ("recovery overlooks the commit record", Search("", SMALL), "11"),
    13: ("a resume whose record was lost is forgotten", Search("", budgets(2, 1, 1, 0, 0)), "5"),
    14: ("recovery overlooks that a worker restarted", Search("", SMALL), "1"),
    15: ("who got its predecessor's pause is left JOINING", Search("", budgets(2, 1, 1, 1, 0)), "17"),
    16: ("a dead worker is asked for ever", Search("", SMALL, claim=True, fair=True), "liveness"),
}


def run(command: list[str], where: Path, knobs: dict[str, int] | None = None) -> str:
    environment = {**os.environ, **{name: str(value) for name, value in (knobs or {}).items()}}
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    return done.stdout + done.stderr


def make_verifiers(build: Path) -> None:
    """One for safety, one with the claim: pan's own checks differ."""
    for kind in ("safety", "liveness"):
        (build / kind).mkdir(parents=True, exist_ok=True)
    told = run(["spin", "-a", str(MODEL)], build / "safety")
    told += run(["spin", "-a", str(MODEL)], build / "liveness")
    flags = {"safety": ["-DSAFETY", "-DNOCLAIM"], "liveness": ["-DNFAIR=3"]}

    def compile_one(kind: str) -> str:
        limit = f"-DMEMLIM={MEMORY_MAX_MB}"
        return run(["nice", "gcc", "-O1", "-w", limit, *flags[kind], "-o", "pan", "pan.c"], build / kind)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        told += "".join(pool.map(compile_one, flags))
    if not all((build / kind / "pan").is_file() for kind in flags):
        sys.exit(f"model: the verifier can't be made:\n{told}")


def number(pattern: str, text: str) -> float:
    match = re.search(pattern, text)
    return float(match.group(1)) if match else 0


def error_of(out: str) -> str:
    """What broke: the invariants' numbers are in the assertions."""
    if match := re.search(r"assertion violated \(invariant_(\d+)", out):
        return match.group(1)
    if "acceptance cycle" in out:
        return "liveness"
    match = re.search(r"^pan:1: (.*)", out, re.MULTILINE)
    return match.group(1) if match else ""


def search_one(build: Path, search: Search, mistake: int = 0) -> Found:
    where = build / ("liveness" if search.claim else "safety")
    trail = f"{mistake}-{re.sub('[^a-z]+', '-', search.name)}.trail"
    (where / trail).unlink(missing_ok=True)
    command = ["nice", "./pan", f"-m{DEPTH_MAX}", f"-w{HASH_BITS}", f"-x{trail}"]
    command += (["-a"] if search.claim else []) + (["-f"] if search.fair else [])
    began = time.monotonic()
    out = run(command, where, {**search.knobs, "MISTAKE": mistake})
    found = Found(search, seconds=time.monotonic() - began)
    found.states = number(r"([\d.e+]+) states, stored", out)
    found.depth = int(number(r"depth reached (\d+)", out))
    found.megabytes = number(r"([\d.]+)\s+total actual memory", out)
    found.error = error_of(out)
    truncated = re.search(r"max search depth too small|out of memory|Search not completed|memory limit", out)
    found.complete = "errors: 0" in out and not truncated and 0 < found.depth < DEPTH_MAX
    found.seen = {int(line) for line in re.findall(r"^seen (\d+)$", out, re.MULTILINE)}
    if not found.complete and not mistake:
        print_run(where, search, trail, out)
    return found


def print_run(where: Path, search: Search, trail: str, out: str) -> None:
    print(f"model: {search.name}: {error_of(out) or 'not completed'}")
    if not (where / trail).is_file():
        print(out)
        return
    lines = MODEL.read_text().split("\n")
    replay = run(["./pan", "-r", trail], where, search.knobs)
    names = {1: "worker 0", 2: "worker 1", 3: "engine 0", 4: "engine 1", 5: "gateway"}
    for process, line in re.findall(r"^\s*\d+:\s+proc\s+(\d+) .*\[D_STEP(\d+)\]", replay, re.MULTILINE):
        print(f"  {names.get(int(process), process):9} {line}: {lines[int(line) - 1].strip()}")
    print(replay[-4000:])


def unseen(found: list[Found]) -> list[str]:
    lines = MODEL.read_text().split("\n")
    marked = {number for number, line in enumerate(lines, 1) if " -> SEEN;" in line}
    seen = set().union(*(one.seen for one in found))
    return [f"{number}: {lines[number - 1].strip()}" for number in sorted(marked - seen)]


def check(build: Path) -> int:
    began = time.monotonic()
    make_verifiers(build)
    print(f"verifiers made in {time.monotonic() - began:.0f} s")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        searches = [pool.submit(search_one, build, search) for search in SEARCHES]
        mistakes = [pool.submit(search_one, build, one[1], mistake) for mistake, one in MISTAKES.items()]
        found = [one.result() for one in searches]
        caught = [one.result() for one in mistakes]
    print(f"{'search':30} {'states':>10} {'depth':>6} {'s':>6} {'MB':>6}  result")
    for one in found:
        result = "holds" if one.complete else f"FAILS: {one.error or 'not completed'}"
        print(f"{one.search.name:30} {one.states:10.0f} {one.depth:6} {one.seconds:6.1f} {one.megabytes:6.0f}  {result}")
    failures = sum(not one.complete for one in found)
    print("\ndeliberate mistakes, and the invariant that each breaks")
    for (text, _, expected), one in zip(MISTAKES.values(), caught, strict=True):
        ok = one.error in expected.split()
        failures += not ok
        print(f"{text:54} {one.error or 'NOT CAUGHT':12} {'' if ok else f'EXPECTED {expected}'}".rstrip())
    for line in unseen(found):
        failures += 1
        print(f"reached by no search: {line}")
    print(f"model: {'all holds' if not failures else f'{failures} FAILED'}, {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="checks docs/model/weighlock.pml")
    root = MODEL.parent.parent.parent
    parser.add_argument("--build", type=Path, default=root / "build/model")
    build = parser.parse_args().build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    return check(build)


if __name__ == "__main__":
    sys.exit(main())
