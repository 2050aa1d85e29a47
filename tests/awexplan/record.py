#!/usr/bin/env python3
"""Writes src/weighlock/awex/recorded_plans.hpp: small layouts, and what the real awex package plans for them.

  record.py BUILD_DIRECTORY      run by the interpreter that tests/awex/install_env.sh makes; after a change of repair's
                                 choices or of the package's version

The unit test plan_test.cpp predicts the same plans without Python.
"""
import argparse
import pathlib
import tempfile
from typing import Iterator

from layouts import Case, Part, Tensor, copies, engine, fsdp, grid, stages
from plan_test import HERE, bracketed, planned, run_tool

HEADER = HERE.parent.parent / "src/weighlock/awex/recorded_plans.hpp"
SMALL = [Tensor("model.embed_tokens.weight", (10, 4), 0), Tensor("model.layers.0.o.weight", (4, 6), 1, 0),
         Tensor("model.layers.1.o.weight", (4, 6), 1, 1), Tensor("model.norm.weight", (5,), None)]  # fmt: skip


def cases() -> Iterator[Case]:
    yield Case("FSDP 4 to TP 2, uneven", fsdp(SMALL, 4), engine(SMALL, 2), 2, 1)
    yield Case("4 copies to 3 engines", copies(SMALL, 4), engine(SMALL, 1), 1, 3)
    yield Case("4 copies to 2 engines of TP 2", copies(SMALL, 4), engine(SMALL, 2), 2, 2)
    yield Case("2 copies of FSDP 3 to TP 2", fsdp(SMALL, 3, 2), engine(SMALL, 2), 2, 1)
    yield Case("grid 2 x 2 to TP 2", grid(SMALL, 2, 2), engine(SMALL, 2), 2, 1)
    yield Case("PP 2 x DP 2 to PP 2 x TP 2", stages(SMALL, 2, 2, 2), engine(SMALL, 2, 2, 2), 4, 1)


def braces(shape: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, shape)) + "}"


def told(part: Part) -> str:
    numbers = f"{part.rank}, {part.world}, {part.shards}, {part.dim}, {part.pp_rank}"
    return f'{{"{part.tensor.name}", {braces(part.whole)}, {braces(part.extent)}, {braces(part.offset)}, {numbers}}}'


def rows(case: Case, tool: pathlib.Path) -> Iterator[str]:
    """rank peer tensor send_offset recv_offset shape"""
    with tempfile.TemporaryDirectory() as name:
        run_tool(tool, case, pathlib.Path(name))
        for rank, operations in planned(case, pathlib.Path(name)).items():
            for peer, op in operations:
                shapes = " ".join(map(bracketed, (op.send_offset, op.recv_offset, op.overlap_shape)))
                yield f'"{rank} {peer} {op.send_shard_meta.name} {shapes}\\n"'


def text_of(case: Case, tool: pathlib.Path) -> Iterator[str]:
    yield f'{{"{case.name}",\n{case.engine_ranks}, {case.engines},\n{{'
    for parts in case.train:
        yield "{" + ",\n".join(map(told, parts)) + "},"
    yield "},\n{" + ",\n".join(map(told, case.engine)) + "},"
    yield "\n".join(rows(case, tool)) + "},"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    tool = parser.parse_args().build.resolve() / "awex_plan_tool"
    lines = ["// For tests: layouts, and each rank's operations as awex 0.9.0 plans them. Written by tests/awexplan/record.py;",
             "// long because each operation is a line.", "#pragma once", "", "#include <cstdint>", "#include <string>",
             "#include <vector>", "", '#include "weighlock/awex/report_fixture.hpp"', "", "namespace weighlock::awex {", "",
             "struct RecordedPlan {", "std::string name;", "std::uint32_t engine_ranks;", "std::uint32_t engines;",
             "std::vector<std::vector<Told>> train;  // by rank", "std::vector<Told> engine;",
             "std::string plan;  // rank, peer, tensor, send offset, receive offset, shape", "};", "",
             "// clang-format off", "inline const std::vector<RecordedPlan> kRecordedPlans = {"]  # fmt: skip
    for case in cases():
        lines += text_of(case, tool)
    HEADER.write_text("\n".join([*lines, "};", "// clang-format on", "", "}  // namespace weighlock::awex", ""]))


if __name__ == "__main__":
    main()
