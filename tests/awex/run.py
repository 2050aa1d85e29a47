#!/usr/bin/env python3
"""Drives the real awex package through the gateway: transfers between seven pairs of layouts, one of them over
IPv6, the colocated sequence, then everything that can go wrong.

    tests/awex/run.py                     all of it: under 6 minutes on two cores once the environment is there
    tests/awex/run.py --only layouts      or: --only colocated, --only faults
    tests/awex/run.py --logs DIR          folder for logs; kept. By default a temporary one, kept on failure

WEIGHLOCK_BIN is the program (default build/release/weighlock). Prints each step with its seconds, and a table at the end.
What this machine can't run (it has no IPv6) is told as SKIPPED.
Exit code 0 if nothing failed, 1 if something did, 2 for wrong arguments.
"""
import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "real"), os.path.join(ROOT, "tests", "e2e")]
import layouts  # noqa: E402
from colocated import Colocated  # noqa: E402
from faults import Faults  # noqa: E402
from fleet import Fleet  # noqa: E402
from gateway import Gateway  # noqa: E402
from steps import Steps, run_in_folder  # noqa: E402


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("layouts", "colocated", "faults"))
    parser.add_argument("--logs")
    release = os.path.join(ROOT, "build", "release", "weighlock")
    parser.add_argument("--weighlock", default=os.environ.get("WEIGHLOCK_BIN", release))
    args = parser.parse_args(argv)
    if not os.access(args.weighlock, os.X_OK):
        parser.error(f"{args.weighlock} is not there; build it first, or name it (see --help)")
    return args


def python_with_the_package() -> str:
    made = subprocess.run([os.path.join(HERE, "install_env.sh")], check=True, stdout=subprocess.PIPE, text=True)
    return os.path.join(made.stdout.strip(), "bin", "python")


def run_layouts(steps: Steps, gateway: Gateway, fleet: Fleet) -> None:
    for layout in layouts.LAYOUTS:
        steps.run(f"transfer: {layout.name}", layouts.transfer, gateway, fleet, layout, steps.say)
    name = f"transfer: {layouts.OVER_IPV6.name}"
    steps.run(name, layouts.transfer_over_ipv6, gateway.binary, gateway.folder, fleet, steps.say)


def run_faults(steps: Steps, gateway: Gateway, fleet: Fleet) -> None:
    """In order: each begins with the fleet that the one before has left whole."""
    faults = steps.run("faults: start of two trainers and two engines", Faults, gateway, fleet, steps.say)
    if faults is None:
        return
    pair = faults.pair
    steps.run("faults: connect and update", faults.connect)
    steps.run("a trainer answers 500 without taking part", faults.refuses, pair.trainers[1])
    steps.run("an engine answers 500 without taking part", faults.refuses, pair.engines[0])
    steps.run("a trainer hangs", faults.hangs, pair.trainers[0])
    steps.run("an engine hangs, and answers nobody meanwhile", faults.hangs, pair.engines[1])
    steps.run("a trainer is killed in mid-transfer", faults.dies, pair.trainers[1])
    steps.run("a rank of an engine is killed in mid-transfer", lambda: faults.dies(pair.engines[1], rank=1))
    steps.run("another engine joins between two updates", faults.joins)
    steps.run("the first engine leaves between two updates", lambda: faults.leaves(pair.engines[0]))
    steps.run("the pair is connected with other engines", faults.connects_with_others)
    steps.run("an engine answers 500 to the bring-up", lambda: faults.bring_up_fails(pair.engines[-1]))
    steps.run("the gateway is killed while the workers are in the collective", faults.gateway_dies)


def run_colocated(steps: Steps, gateway: Gateway, fleet: Fleet) -> None:
    for ranks, layout, with_faults in ((2, "fsdp", True), (3, "copies", False)):
        name = f"colocated, {ranks} {layout}"
        colocated = steps.run(f"{name}: start", Colocated, gateway, fleet, ranks, layout, steps.say)
        if colocated is None:
            return
        steps.run(f"{name}: connect", colocated.connect)
        for count in range(1, 4):
            steps.run(f"{name}: update {count}", colocated.update)
        if with_faults:
            pair = colocated.pair
            steps.run(f"{name}: a trainer answers 500 without taking part", colocated.refuses, pair.trainers[1])
            steps.run(f"{name}: an engine answers 500 without taking part", colocated.refuses, pair.engines[0])
        steps.run(f"{name}: disconnect", colocated.disconnect)
        fleet.clear()
    rows = steps.run("colocated, 3 fsdp: start", Colocated, gateway, fleet, 3, "fsdp", steps.say)
    if rows is not None:
        steps.run("colocated, 3 fsdp: rows that would never be sent are refused", rows.is_refused)
    fleet.clear()


def run_all(args: argparse.Namespace, folder: str, steps: Steps) -> None:
    python = steps.run("environment of the package", python_with_the_package)
    if python is None:
        return
    fleet = Fleet(python, os.path.join(folder, "workers"))
    try:
        for part, run in (("layouts", run_layouts), ("colocated", run_colocated), ("faults", run_faults)):
            if args.only not in (None, part):
                continue
            gateway = Gateway(args.weighlock, os.path.join(folder, f"gateway-{part}"), pair="actor")
            try:
                if steps.run(f"{part}: start of the gateway", gateway.start):
                    run(steps, gateway, fleet)
            finally:
                gateway.stop()
    finally:
        fleet.end()


def main(argv: list[str]) -> int:
    args = parse(argv)
    return run_in_folder("awex", args.logs, lambda folder, steps: run_all(args, folder, steps))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
