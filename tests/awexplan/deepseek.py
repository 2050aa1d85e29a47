#!/usr/bin/env python3
"""Reports of a transfer of DeepSeek-V3's size: 45,008 tensors, 256 train ranks (EP 32, DP 8), 4 engines of 32 (TP 32, EP 32).

  deepseek.py DIRECTORY [--layers N]   writes train-<rank>.json and infer-<engine>.json, about 1.1 GB; prints the three sizes

The sizes are those of the model's published configuration, 58 layers with experts; fewer make it smaller in proportion.
Standard library only.
"""
import argparse
import json
import pathlib
from typing import Iterator

from layouts import Part, Tensor, cut, tensor_json, whole

LAYERS, EXPERTS, HIDDEN, INNER, TRAIN_EP, TRAIN_DP, ENGINE_RANKS, ENGINES = 58, 256, 7168, 2048, 32, 8, 32, 4
ATTENTION = (("self_attn.q_a_proj.weight", (1536, HIDDEN), None), ("self_attn.q_b_proj.weight", (24576, 1536), 0),
             ("self_attn.kv_a_proj_with_mqa.weight", (576, HIDDEN), None), ("self_attn.kv_b_proj.weight", (32768, 512), 0),
             ("self_attn.o_proj.weight", (HIDDEN, 16384), 1), ("input_layernorm.weight", (HIDDEN,), None),
             ("post_attention_layernorm.weight", (HIDDEN,), None), ("mlp.gate.weight", (EXPERTS, HIDDEN), None))  # fmt: skip
EXPERT = (("gate_proj", (INNER, HIDDEN)), ("up_proj", (INNER, HIDDEN)), ("down_proj", (HIDDEN, INNER)))


def dense(layers: int) -> Iterator[Tensor]:
    for layer in range(layers):
        for name, shape, split in ATTENTION:
            yield Tensor(f"model.layers.{layer}.{name}", shape, split, layer)


def text_of(part: Part) -> str:
    return json.dumps(tensor_json(part), separators=(",", ":"))


def expert_texts(layers: int, rank: int, world: int, own: range, ep_rank: int, tp_rank: int) -> Iterator[str]:
    """As text_of would write them, from one text for each kind of matrix: three hundred thousand of them."""
    for kind, shape in EXPERT:
        part = whole(Tensor("\0", shape), rank, world, ep_rank=ep_rank, tp_rank=tp_rank)
        form = text_of(part).replace("\\u0000", "%s")
        for layer in range(layers):
            for expert in own:
                name = f"model.layers.{layer}.mlp.experts.{expert}.{kind}.weight"
                yield form.replace("%s", name)


def train_report(rank: int, layers: int) -> str:
    world, share = TRAIN_EP * TRAIN_DP, EXPERTS // TRAIN_EP
    place = rank % TRAIN_EP
    texts = [text_of(whole(t, rank, world, ep_rank=place)) for t in dense(layers)]
    texts += expert_texts(layers, rank, world, range(place * share, (place + 1) * share), place, 0)
    return '{"status":"success","result":[' + ",".join(texts) + "]}"


def engine_report(layers: int) -> str:
    share = EXPERTS // ENGINE_RANKS
    texts: list[str] = []
    for rank in range(ENGINE_RANKS):
        for t in dense(layers):
            if t.split is None:
                texts.append(text_of(whole(t, rank, ENGINE_RANKS, tp_rank=rank)))
            else:
                texts.append(text_of(cut(t, rank, ENGINE_RANKS, ENGINE_RANKS, rank, t.split, tp_rank=rank)))
        texts += expert_texts(layers, rank, ENGINE_RANKS, range(rank * share, (rank + 1) * share), rank, rank)
    return '{"status":"ok","meta":[' + ",".join(texts) + "]}"


def write(directory: pathlib.Path, layers: int = LAYERS) -> tuple[int, int, int]:
    for rank in range(TRAIN_EP * TRAIN_DP):
        (directory / f"train-{rank}.json").write_text(train_report(rank, layers))
    told = engine_report(layers)
    for number in range(ENGINES):
        (directory / f"infer-{number}.json").write_text(told)
    return TRAIN_EP * TRAIN_DP, ENGINE_RANKS, ENGINES


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=LAYERS)
    asked = parser.parse_args()
    print(*write(asked.directory, asked.layers))
