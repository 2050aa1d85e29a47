#!/usr/bin/env python3
"""Measures our gateway beside AReaL's, in one run, alternating, and says whether the wanted figures hold.

    run.py                       everything; exits 1 when a wanted figure is missed
    run.py --only update,watch   some of: update, load, awex, awex-size, saves, metadata, watch, recovery, simulator
    run.py --smoke               ours alone, eight workers, no figures: that all of it still runs

Medians over all repetitions; the spread is the lowest and highest. CPU is that of the gateway's process, in the kernel too.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

import awex_size
import scenarios
from processes import HERE

MANY, FEW = 1000, 64
READERS, PEER_READERS, VALUE_MB = 72, 4, 37  # the peer takes 3 s of CPU for each reader


class Figure:
    """One row: our values and the peer's; `wanted` is a limit on ours, or on ours divided by the peer's."""

    def __init__(self, name, unit, ours, peer, wanted, relative, limit):
        self.name, self.unit, self.wanted, self.relative, self.limit = name, unit, wanted, relative, limit
        self.ours, self.peer = list(ours), list(peer or [])

    def value(self):
        ours = statistics.median(self.ours)
        return ours / statistics.median(self.peer) if self.relative and self.peer else ours

    def holds(self):
        if self.wanted is None or (self.relative and not self.peer):
            return None
        return self.value() >= self.wanted if self.unit == "calls" else self.value() <= self.wanted

    def row(self):
        def shown(values):
            if not values:
                return "-"
            return f"{number(statistics.median(values))} ({number(min(values))}..{number(max(values))})"
        ratio = f"{statistics.median(self.ours) / statistics.median(self.peer):.3f}" if self.peer else "-"
        sign = ">=" if self.unit == "calls" else "<="
        wanted = "-" if self.wanted is None else f"{sign} {self.wanted:g}" + (" x peer" if self.relative else "")
        verdict = {None: "", True: "holds", False: "MISSED"}[self.holds()]
        return [self.name, self.unit, shown(self.ours), shown(self.peer), ratio, wanted, verdict, self.limit]

    def json(self):
        return {"name": self.name, "unit": self.unit, "ours": self.ours, "peer": self.peer, "wanted": self.wanted,
                "relative": self.relative, "holds": self.holds(), "limited_by": self.limit}


def number(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(rows):
    rows = [["what", "unit", "ours (spread)", "peer (spread)", "ratio", "wanted", "", "what limits it"], *rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def alternate(arguments, measures):
    """Rounds by what was measured, A B A B: `measures` has a list of functions for each gateway. The first of them is
    kept under the gateway's name, another one under "gateway: its name"."""
    if callable(measures):
        measures = {gateway: [measures] for gateway in ("ours", "peer")}
    out = {}
    for turn in range(arguments.rounds):
        for gateway in arguments.gateways:
            for measure in measures[gateway]:
                print(f"  {measure.__name__} {gateway}, round {turn + 1} of {arguments.rounds}", file=sys.stderr)
                name = gateway if measure is measures[gateway][0] else f"{gateway}: {measure.__name__}"
                out.setdefault(name, []).append(measure(gateway))
    return out


def gathered(rounds, name):
    return [value for run in rounds for value in run[name]]


def measure_update(arguments):
    for workers in arguments.workers:
        def count_of(n):
            return arguments.updates or (10 if n <= FEW else 5)

        def update(gateway, n=workers):
            return scenarios.updates(arguments, gateway, n, count_of(n), scenarios.TRUSTING)

        def update_alike(gateway, n=workers):
            return scenarios.updates(arguments, gateway, n, count_of(n), scenarios.LIKE_THE_PEER)

        runs = alternate(arguments, {"ours": [update, update_alike], "peer": [update]})
        alike = runs.pop("ours: update_alike")
        arguments.raw[f"update {workers}"] = runs
        arguments.raw[f"update, the trainer pauses {workers}"] = alike
        peer = runs.get("peer", [])
        at = f", N = {workers}"
        pauses = {FEW: 5, MANY: 80}
        ours = runs["ours"]

        def both(name):
            return gathered(ours, name), gathered(peer, name)
        yield Figure("CPU per worker call, cold" + at, "ms", *both("cpu_per_call_ms"), 0.1, True,
                     "the kernel's TCP; at small N the fsyncs of journal and store")
        yield Figure("CPU per update, call + success, we pause" + at, "ms", *both("cpu_ms"), 0.25, True,
                     "seven requests where the peer makes one; fsyncs for any N")
        yield Figure("CPU per update, call + success, the trainer pauses" + at, "ms", gathered(alike, "cpu_ms"),
                     gathered(peer, "cpu_ms"), 0.25, True, "three requests where the peer makes one; fsyncs for any N")
        yield Figure("pause beyond the slowest worker" + at, "ms", *both("pause_ms"), pauses.get(workers), False,
                     "CPU of pause and load calls, two journal groups")
        yield Figure("fsyncs per update" + at, "fsyncs", gathered(ours, "fsyncs"), [], 8, False,
                     "one for each step that must not be lost")
        yield Figure("fsync time in the longest pause" + at, "ms", gathered(ours, "fsync_in_pause_ms"), [], None, False,
                     "the disk")
        yield Figure("the fleet's own CPU per update" + at, "ms", *both("fleet_cpu_ms"), None, False,
                     "is below ours: the fleet isn't the limit")
        best = [scenarios.updates(arguments, "ours", workers, arguments.updates or 3)]
        arguments.raw[f"best evidence {workers}"] = best
        yield Figure("CPU per update, best evidence" + at, "ms", gathered(best, "cpu_ms"), gathered(peer, "cpu_ms"), None, False,
                     "19 calls a worker; the peer has no such evidence")
        yield Figure("fsyncs per update, best evidence" + at, "fsyncs", gathered(best, "fsyncs"), [], 8, False,
                     "one for each step that must not be lost")
        if workers == MANY:
            yield Figure("resident" + at, "MiB", gathered(ours, "resident_mib"), gathered(peer, "resident_mib"), 48, False,
                         "calls and connections under way, the last updates")
        yield Figure("start to ready", "ms", gathered(ours, "start_ms"), gathered(peer, "start_ms"), 100, False,
                     "the loader, and opening the journal")


def measure_load(arguments):
    workers = max(arguments.workers)

    def loads(gateway):
        return scenarios.slow_loads(arguments, gateway, workers, arguments.updates or 3)
    def loads_alike(gateway):
        return scenarios.slow_loads(arguments, gateway, workers, arguments.updates or 3, scenarios.LIKE_THE_PEER)
    runs = alternate(arguments, {"ours": [loads, loads_alike], "peer": [loads]})
    alike = runs.pop("ours: loads_alike")
    arguments.raw["load"] = runs | {"ours, the trainer pauses": alike}
    yield Figure(f"update beyond the workers' own time, loads of {scenarios.LOAD_MS} ms, the trainer pauses, N = {workers}",
                 "ms", gathered(alike, "beyond_ms"), gathered(runs.get("peer", []), "beyond_ms"),
                 150 if workers == MANY else None, False, "CPU of the calls before and after the loads")
    yield Figure(f"update beyond the workers' own time, loads of {scenarios.LOAD_MS} ms, we pause, N = {workers}", "ms",
                 gathered(runs["ours"], "beyond_ms"), gathered(runs.get("peer", []), "beyond_ms"),
                 150 if workers == MANY else None, False, "CPU of the calls before and after the loads")


def measure_awex(arguments):
    workers = 8 if arguments.smoke else FEW
    count = arguments.updates or (1 if arguments.smoke else 8)

    def transfer(gateway):
        return scenarios.transfers(arguments, gateway, workers, count, scenarios.TRUSTING)

    def transfer_alike(gateway):
        return scenarios.transfers(arguments, gateway, workers, count, scenarios.LIKE_THE_PEER)

    runs = alternate(arguments, {"ours": [transfer, transfer_alike], "peer": [transfer]})
    arguments.raw["awex"] = runs
    peer, at = runs.get("peer", []), f", N = {workers}"
    for ours, who in (("ours", "we pause"), ("ours: transfer_alike", "the trainer pauses")):
        yield Figure(f"AWEX update beyond the workers' own time, {who}" + at, "ms", gathered(runs[ours], "beyond_ms"),
                     gathered(peer, "beyond_ms"), 0.25, True, "the reads before and after, fsyncs of the journal")
        yield Figure(f"CPU per AWEX update, {who}" + at, "ms", gathered(runs[ours], "cpu_ms"), gathered(peer, "cpu_ms"),
                     None, False, "the kernel's TCP, fsyncs")
    yield from measure_served(arguments, workers)
    yield Figure("AWEX connect, workers that answer at once" + at, "ms", gathered(runs["ours"], "connect_ms"),
                 gathered(peer, "connect_ms"), None, False, "parsing, checking and merging the metadata")


def measure_served(arguments, workers):
    def reads(gateway):
        return scenarios.served(arguments, gateway, workers, READERS if gateway == "ours" else PEER_READERS)

    runs = alternate(argparse.Namespace(**{**vars(arguments), "rounds": 1}), reads)
    arguments.raw["awex metadata"] = runs
    peer, at = runs.get("peer", []), f", N = {workers}"
    yield Figure("AWEX metadata that each worker reads" + at, "MB", gathered(runs["ours"], "mb"), gathered(peer, "mb"), 0.5, True,
                 "one shard once, one engine for all")
    yield Figure("CPU for that, each worker" + at, "ms", gathered(runs["ours"], "cpu_ms"), gathered(peer, "cpu_ms"), 0.1, True,
                 "the kernel's copy into the socket")


def measure_awex_size(arguments):
    runs = [awex_size.whole(arguments) for _ in range(arguments.rounds)]
    arguments.raw["awex of DeepSeek-V3's size"] = runs
    for name, unit, key, wanted in (("AWEX metadata of DeepSeek-V3's size: parse", "s", "parse_s", 3),
                                    ("the same: plan all ranks and prove it", "s", "plan_s", 2),
                                    ("the same: the proof at connect / all of connect", "", "proof_of_connect", 0.1),
                                    ("the same: memory", "GiB", "resident_gib", 3),
                                    ("the same: busiest sender / lower bound", "", "balance", 1.05),
                                    ("the same: bytes sent / needed", "", "redundancy", 1)):  # fmt: skip
        yield Figure(name, unit, [run[key] for run in runs], [], wanted, False, "one pass over a gigabyte of JSON")

    def reads(gateway):
        return awex_size.served(arguments, gateway, 4 if arguments.smoke else 16)

    runs = alternate(argparse.Namespace(**{**vars(arguments), "rounds": 1}), reads)
    arguments.raw["awex metadata of a tenth of that size"] = runs
    for name, unit, key, wanted in ((f"a tenth of it, for {awex_size.READ_BY} workers: bytes of each", "MB", "read_mb", 0.5),
                                    ("the same: CPU for all of them", "s", "all_cpu_s", 0.1)):  # fmt: skip
        yield Figure(name, unit, [run[key] for run in runs["ours"]], [run[key] for run in runs.get("peer", [])], wanted, True,
                     "one shard once, and only copies that are read")


def measure_saves(arguments):
    trainers = 1000 if not arguments.smoke else 8

    def saves(gateway):
        return scenarios.collective_saves(arguments, gateway, trainers)
    arguments = argparse.Namespace(**{**vars(arguments), "rounds": 1})
    runs = alternate(arguments, saves)
    arguments.raw["saves"] = runs
    if not runs["ours"][0]["ok"]:
        raise scenarios.NotOk("ours: the collective save of all ranks did not end well")
    yield Figure(f"collective saves in flight, {trainers} ranks", "calls", [run["in_flight_max"] for run in runs["ours"]],
                 [run["in_flight_max"] for run in runs.get("peer", [])], trainers, False, "the limit on descriptors")


def measure_metadata(arguments):
    def reads(gateway):
        many = READERS if gateway == "ours" else PEER_READERS
        return scenarios.metadata(arguments, gateway, 1 if arguments.smoke else VALUE_MB, 8 if arguments.smoke else many)
    arguments = argparse.Namespace(**{**vars(arguments), "rounds": 1})
    runs = alternate(arguments, reads)
    arguments.raw["metadata"] = runs
    if runs["ours"][0] is None:
        print("  ours has no metadata store: not measured", file=sys.stderr)
        return
    peer = runs.get("peer", [])
    for what in ("one", "many"):
        readers = {"one": "one reader", "many": f"{runs['ours'][0]['readers']} at once"}[what]
        yield Figure(f"metadata GET, CPU per MB, {readers}", "ms", [run[what]["cpu_ms_per_mb"] for run in runs["ours"]],
                     [run[what]["cpu_ms_per_mb"] for run in peer], 0.05, True, "the kernel's copy into the socket")


def measure_watch(arguments):
    workers = max(arguments.workers)
    runs = [scenarios.watched(arguments, workers, 5 if arguments.smoke else 60)]
    arguments.raw["watch"] = runs
    yield Figure(f"CPU of the watch between updates, N = {workers}", "% of a core", gathered(runs, "share_percent"), [],
                 1 if workers == MANY else None, False, "connections: engines close them between two looks")
    yield Figure(f"requests of the watch to a worker in 10 s, N = {workers}", "requests",
                 gathered(runs, "requests_per_worker_10s"), [], None, False, "label and pause state")


def measure_recovery(arguments):
    for workers in (8,) if arguments.smoke else (10, 100, 1000):
        took = [scenarios.recovery(arguments, workers) for _ in range(arguments.rounds)]
        arguments.raw[f"recovery {workers}"] = took
        yield Figure(f"recovery beyond the engines' own time, N = {workers}", "s", took, [], 5, False,
                     "100 ms before the start, the barriers, the heals")


def measure_simulator(arguments):
    seeds = 20 if arguments.smoke else 1000
    rates = [scenarios.simulated(arguments, seeds) for _ in range(arguments.rounds)]
    arguments.raw["simulator"] = rates
    yield Figure("simulator, one process", "seeds/s", rates, [], None, False, "the invariants, looked at after each step")


MEASURES = {"update": measure_update, "load": measure_load, "awex": measure_awex, "awex-size": measure_awex_size,
            "saves": measure_saves, "metadata": measure_metadata, "watch": measure_watch, "recovery": measure_recovery,
            "simulator": measure_simulator}


def arguments_of(command_line):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "../../build/release"))
    parser.add_argument("--scratch", help="where versions and journals are kept for the run (default: the temporary directory)")
    parser.add_argument("--only", default=",".join(MEASURES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=0, help="in each round; 0: as many as the fleet's size allows")
    parser.add_argument("--workers", default=f"{FEW},{MANY}")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="all figures and what they were made of")
    arguments = parser.parse_args(command_line)
    if arguments.smoke:
        arguments.workers, arguments.rounds, arguments.updates, arguments.ours_only = "8", 1, 2, True
    arguments.workers = [int(n) for n in arguments.workers.split(",")]
    arguments.gateways = ["ours"] if arguments.ours_only else ["ours", "peer"]
    arguments.raw = {}
    return arguments


def main(command_line):
    arguments = arguments_of(command_line)
    arguments.peer = None
    if not arguments.ours_only:
        made = subprocess.run([os.path.join(HERE, "peer_env.sh")], stdout=subprocess.PIPE, text=True, check=True)
        arguments.peer = made.stdout.strip()
    figures = []
    for name in arguments.only.split(","):
        figures.extend(MEASURES[name](arguments))
    print(table([figure.row() for figure in figures]))
    load = os.getloadavg()
    print(f"\n{os.cpu_count()} CPUs, load {load[0]:.1f} {load[1]:.1f} {load[2]:.1f}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"figures": [figure.json() for figure in figures], "raw": arguments.raw, "load": load}, file, indent=1)
    missed = [figure.name for figure in figures if figure.holds() is False]
    if arguments.smoke or not missed:
        return 0
    print("missed: " + "; ".join(missed))
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except scenarios.NotOk as failure:
        sys.exit(f"bench: {failure}")
