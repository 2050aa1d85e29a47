#!/usr/bin/env python3
"""Compares the plan that the gateway predicts with the one that the real awex package makes of what the gateway serves.

  plan_test.py BUILD_DIRECTORY [--drawn N] [--seed S]      run by the interpreter that tests/awex/install_env.sh makes

For each layout every worker's report goes through awex_plan_tool; the package plans for each rank from the lists that would
be served, and its operations must be the predicted ones, each and in order. Then the operations are carried out in memory:
each element of a sender is its own number in the whole tensor, and each receiver must end with its own, written once.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "awex")]

import rounds  # noqa: E402
import torch  # noqa: E402
import values  # noqa: E402
from layouts import Case, Part, drawn, handed, product, reports  # noqa: E402
from package import TransferPlanBuilder  # noqa: E402

Row = tuple[str, ...]


def numbers(part: Part) -> torch.Tensor:
    """The part of a tensor whose elements are their own numbers."""
    everything = torch.arange(product(part.tensor.shape)).reshape(part.tensor.shape)
    return everything[tuple(slice(b, b + e) for b, e in zip(part.begin, part.extent))].clone()


def run_tool(tool: pathlib.Path, case: Case, directory: pathlib.Path) -> dict:
    for name, text in reports(case):
        (directory / name).write_text(text)
    sizes = [len(case.train), case.engine_ranks, case.engines]
    ran = subprocess.run([tool, directory, *map(str, sizes)], capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"{case.name}: refused: {ran.stderr}")
    return json.loads(ran.stdout)


def planned(case: Case, directory: pathlib.Path) -> dict[int, list]:
    """Each rank's operations, by the package, with the peer of each."""
    train = values.decode(json.loads((directory / "training_params_meta.json").read_text())["value"])
    infer = values.decode(json.loads((directory / "infer_params_meta.json").read_text())["value"])
    receivers = case.engine_ranks * case.engines
    out = {}
    for rank in range(receivers + len(case.train)):
        builder = TransferPlanBuilder(receivers, len(case.train), case.engines)
        plan = builder.build_local_transfer_plan(infer, train, global_transfer_rank=rank)
        out[rank] = [(peer, op) for peer, ops in plan.operations.items() for op in ops]
    return out


def bracketed(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def compare(case: Case, plans: dict[int, list], directory: pathlib.Path) -> int:
    predicted: dict[int, list[Row]] = collections.defaultdict(list)
    for line in (directory / "plan.tsv").read_text().splitlines():
        rank, *row = line.split("\t")
        predicted[int(rank)].append(tuple(row))
    count = 0
    for rank, operations in plans.items():
        real = [(str(peer), op.send_shard_meta.name, *map(bracketed, (op.send_offset, op.recv_offset, op.overlap_shape)))
                for peer, op in operations]  # fmt: skip
        for place, (ours, theirs) in enumerate(zip(predicted[rank], real)):
            if ours != theirs:
                raise SystemExit(f"{case.name}: rank {rank}, operation {place}: predicted {ours}, awex plans {theirs}")
        if len(predicted[rank]) != len(real):
            raise SystemExit(f"{case.name}: rank {rank}: {len(predicted[rank])} predicted, awex plans {len(real)}")
        count += len(real)
    return count


def carry_out(case: Case, plans: dict[int, list]) -> None:
    receivers = case.engine_ranks * case.engines
    wires: dict[tuple[int, int], collections.deque] = collections.defaultdict(collections.deque)
    for rank, parts in enumerate(case.train):
        held = {part.tensor.name: numbers(part) for part in parts}
        for peer, op in plans[receivers + rank]:
            wires[receivers + rank, peer].append(held[op.send_shard_meta.name][op.train_slices])
    for number in range(case.engines):
        for rank in range(case.engine_ranks):
            own = [part for part in case.engine if part.rank == rank]
            written = {part.tensor.name: torch.full(part.extent, -1) for part in own}
            for peer, op in plans[number * case.engine_ranks + rank]:
                target = written[op.recv_shard_meta.name][op.inf_slices]
                if bool((target != -1).any()):
                    raise SystemExit(f"{case.name}: engine {number} rank {rank}: {op.recv_shard_meta.name} is written twice")
                target.copy_(wires[peer, number * case.engine_ranks + rank].popleft())
            for part in own:
                if not torch.equal(written[part.tensor.name], numbers(part)):
                    raise SystemExit(f"{case.name}: engine {number} rank {rank}: {part.tensor.name} is not its own")
    left = sum(map(len, wires.values()))
    if left:
        raise SystemExit(f"{case.name}: {left} sends that nobody receives")


def check(tool: pathlib.Path, case: Case) -> str:
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        told = run_tool(tool, case, directory)
        plans = planned(case, directory)
        count = compare(case, plans, directory)
        carry_out(case, plans)
    if told["sent"] != told["needed"]:
        raise SystemExit(f"{case.name}: {told['sent']} bytes are sent and {told['needed']} needed")
    ratio = told["busiest"] / max(1, told["lower_bound"])
    served = (told["served_train_bytes"] + told["served_infer_bytes"]) / told["reported_bytes"]
    return f"{count:6} operations  busiest {ratio:.3f} of the lower bound  served {served:.2f} of reported"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--drawn", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    tool = asked.build.resolve() / "awex_plan_tool"
    for case in handed():
        print(f"{case.name:50} {check(tool, case)}", flush=True)
    for seed in range(asked.seed, asked.seed + asked.drawn):
        check(tool, drawn(seed))
    print(rounds.check(tool))
    print(f"the package plans what is predicted: {asked.drawn} drawn layouts from seed {asked.seed} as well")


if __name__ == "__main__":
    main()
