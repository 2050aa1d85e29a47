#!/usr/bin/env python3
"""Writes LoRA adapters for the models of make_models.py, good and damaged, as PEFT saves them.

    make_adapters.py DIR                every variant below, each in its own folder of DIR
    make_adapters.py DIR lora1 lora64   only these

Standard library only. A good one has adapter_config.json and adapter_model.safetensors: lora_A [rank, inputs] and lora_B
[outputs, rank] for q_proj and v_proj of each layer, bfloat16, wide enough that a log-probability tells them apart.
"""
import argparse
import dataclasses
import os
import random
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_models import Shape, Tensor, random_bytes, write_file, write_json  # noqa: E402

PREFIX = "base_model.model."
DEVIATION = 0.15


@dataclasses.dataclass(frozen=True)
class Variant:
    """One folder: the seed of its values, its rank, and what is wrong with it."""

    seed: int
    rank: int = 4
    fault: str = ""


VARIANTS = {
    "lora1": Variant(1),
    "lora2": Variant(2),
    "lora3": Variant(3),
    # Above what the engines of the tests were started with.
    "lora64": Variant(1, rank=64),
    # Names that belong to no module of the model.
    "lora_prefix": Variant(1, fault="prefix"),
    # The file ends before its header says so.
    "lora_truncated": Variant(1, fault="truncated"),
    # lora_A and lora_B have other ranks than the config says.
    "lora_rank": Variant(1, fault="rank"),
    # A whole lm_head besides, which the config names.
    "lora_saved": Variant(1, fault="modules_to_save"),
    "lora_dora": Variant(1, fault="dora"),
    # Weights without adapter_config.json, and the other way round.
    "lora_noconfig": Variant(1, fault="noconfig"),
    "lora_noweights": Variant(1, fault="noweights"),
}


def modules(shape):
    """(name, inputs, outputs)"""
    for layer in range(shape.layers):
        at = f"model.layers.{layer}.self_attn."
        yield at + "q_proj", shape.hidden, shape.heads * shape.head_dim
        yield at + "v_proj", shape.hidden, shape.kv_heads * shape.head_dim


def tensors(variant, shape):
    out = []
    rank = 2 * variant.rank if variant.fault == "rank" else variant.rank
    prefix = PREFIX + ("model.language_" if variant.fault == "prefix" else "")
    for name, inputs, outputs in modules(shape):
        rng = random.Random(f"{variant.seed} {name}")
        for part, size in (("lora_A", (rank, inputs)), ("lora_B", (outputs, rank))):
            data = random_bytes(rng, size[0] * size[1], 0.0, DEVIATION)
            out.append(Tensor(f"{prefix}{name}.{part}.weight", size, data))
        if variant.fault == "dora":
            data = random_bytes(rng, outputs, 1.0, 0.1)
            out.append(Tensor(f"{PREFIX}{name}.lora_magnitude_vector", (outputs,), data))
    if variant.fault == "modules_to_save":
        data = random_bytes(random.Random(variant.seed), 256 * shape.hidden, 0.0, DEVIATION)
        out.append(Tensor(PREFIX + "lm_head.weight", (256, shape.hidden), data))
    return out


def config(variant):
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "",
        "r": variant.rank,
        "lora_alpha": 2 * variant.rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": ["q_proj", "v_proj"],
        "modules_to_save": ["lm_head"] if variant.fault == "modules_to_save" else None,
        "use_dora": variant.fault == "dora",
        "use_rslora": False,
    }


def write_adapter(folder, variant, shape=Shape()):
    if variant.fault != "noconfig":
        write_json(folder, "adapter_config.json", config(variant))
    if variant.fault == "noweights":
        return
    path = os.path.join(folder, "adapter_model.safetensors")
    write_file(path, tensors(variant, shape))
    if variant.fault == "truncated":
        os.truncate(path, os.path.getsize(path) * 6 // 10)


def make(parent, name):
    """The folder of one variant, made if it is not there."""
    final = os.path.join(parent, name)
    if os.path.isdir(final):
        return final
    part = f"{final}.part{os.getpid()}"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    write_adapter(part, VARIANTS[name])
    os.rename(part, final)
    return final


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("names", nargs="*", metavar="VARIANT", help=", ".join(VARIANTS))
    args = parser.parse_args()
    unknown = [n for n in args.names if n not in VARIANTS]
    if unknown:
        parser.error(f"no variant {', '.join(unknown)}; there are {', '.join(VARIANTS)}")
    for name in args.names or VARIANTS:
        print(make(args.dir, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
