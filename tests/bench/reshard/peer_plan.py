#!/usr/bin/env python3
"""The planner of the `awex` package and ours on the same DeepSeek-V3-sized transfer, one after the other.

  peer_plan.py BUILD_DIRECTORY          with the interpreter that has awex==0.9.0 and torch; prints one JSON object

Theirs plans for one rank at a time: a few ranks are timed. The loads of all senders are what its rule gives (replica j % n
serves receiver j, for each tensor from the front), summed over the same layout.
"""
import json
import subprocess
import sys
import time
import types

EXPERT_RANKS, COPIES, ENGINES, ENGINE_RANKS, EXPERTS, HIDDEN = 32, 8, 4, 32, 256, 7168


def stub_what_awex_only_imports() -> None:
    class Anything(types.ModuleType):
        def __getattr__(self, name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

    megatron = ["megatron", "megatron.core", "megatron.core.transformer", "megatron.core.transformer.transformer_config"]
    for name in [*megatron, "transformers"]:
        module = Anything(name)
        module.__path__ = []  # type: ignore[attr-defined]
        sys.modules[name] = module


def tensors() -> list[tuple[str, tuple[int, ...], int, int]]:
    """Name, shape, dimension that an engine cuts (-1: none), expert (-1: none); as deepseek.cpp."""
    out = [("model.embed_tokens.weight", (129280, HIDDEN), 0, -1), ("model.norm.weight", (HIDDEN,), -1, -1),
           ("lm_head.weight", (129280, HIDDEN), 0, -1)]
    out += [(f"model.extra.{i}.weight", (HIDDEN,), -1, -1) for i in range(28)]
    for layer in range(61):
        at = f"model.layers.{layer}."
        out += [(at + "input_layernorm.weight", (HIDDEN,), -1, -1), (at + "post_attention_layernorm.weight", (HIDDEN,), -1, -1),
                (at + "self_attn.fused_qkv_a_proj.weight", (2112, HIDDEN), -1, -1),
                (at + "self_attn.q_b_proj.weight", (24576, 1536), 0, -1),
                (at + "self_attn.kv_b_proj.weight", (32768, 512), 0, -1),
                (at + "self_attn.o_proj.weight", (HIDDEN, 16384), 1, -1)]
        experts = [-1] if layer < 3 else list(range(EXPERTS))
        if layer >= 3:
            out.append((at + "mlp.gate.weight", (EXPERTS, HIDDEN), -1, -1))
        for expert in experts:
            prefix, width = (at + "mlp", 18432) if expert < 0 else (f"{at}mlp.experts.{expert}", 2048)
            for part in ("gate_proj", "up_proj", "down_proj"):
                down = part == "down_proj"
                shape = (HIDDEN, width) if down else (width, HIDDEN)
                out.append((f"{prefix}.{part}.weight", shape, (1 if down else 0) if expert < 0 else -1, expert))
    return out


def describe():
    import torch
    from awex.meta.weight_meta import ParameterMeta, ParameterReplicaMeta, ParameterShardMeta

    def shard(name, shape, rank, world, offset):
        size = 1
        for extent in shape:
            size *= extent
        return ParameterShardMeta(tp_rank=0, attn_tp_rank=0, pp_rank=0, ep_rank=0, ep_tp_rank=0,
                                  global_rank=rank, world_size=world,
                                  engine_rank=0, name=name, shape=shape, numel=size, dtype=torch.bfloat16, global_offset=offset)

    def parameter(name, shape, replicas):
        size = 1
        for extent in shape:
            size *= extent
        return ParameterMeta(name=name, global_numel=size, global_shape=shape, dtype=torch.bfloat16, shards=[],
                             replicas=[ParameterReplicaMeta(shards=shards) for shards in replicas])

    train, infer = [], []
    for name, shape, cut, expert in tensors():
        zero = (0,) * len(shape)
        holders = range(EXPERT_RANKS * COPIES) if expert < 0 else range(expert // 8, EXPERT_RANKS * COPIES, EXPERT_RANKS)
        train.append(parameter(name, shape, [[shard(name, shape, rank, 256, zero)] for rank in holders]))
        if cut >= 0:
            extent = shape[cut] // ENGINE_RANKS
            part = shape[:cut] + (extent,) + shape[cut + 1:]
            one = [shard(name, part, rank, 32, zero[:cut] + (rank * extent,) + zero[cut + 1:]) for rank in range(ENGINE_RANKS)]
            infer.append(parameter(name, shape, [one]))
        else:
            ranks = range(ENGINE_RANKS) if expert < 0 else [expert // 8]
            infer.append(parameter(name, shape, [[shard(name, shape, rank, 32, zero)] for rank in ranks]))
    return train, infer


def their_loads(train, infer) -> list[int]:
    loads = [0] * (EXPERT_RANKS * COPIES)
    by_name = {parameter.name: parameter for parameter in train}
    for parameter in infer:
        sources = by_name[parameter.name].replicas
        for j in range(ENGINES * len(parameter.replicas)):
            receivers = parameter.replicas[j % len(parameter.replicas)].shards
            loads[sources[j % len(sources)].shards[0].global_rank] += sum(2 * one.numel for one in receivers)
    return loads


def main() -> None:
    stub_what_awex_only_imports()
    from awex.transfer.transfer_plan import TransferPlanBuilder

    train, infer = describe()
    seconds = []
    for rank in (0, 40, 128, 300):
        began = time.perf_counter()
        builder = TransferPlanBuilder(infer_world_size=128, train_world_size=256, num_infer_engines=ENGINES)
        builder.build_local_transfer_plan(infer, train, global_transfer_rank=rank)
        seconds.append(round(time.perf_counter() - began, 3))
    loads = their_loads(train, infer)
    ours = json.loads(subprocess.run([f"{sys.argv[1]}/plan_bench"], stdout=subprocess.PIPE, text=True, check=True).stdout)
    print(json.dumps({"ours": ours, "theirs": {
        "plan_s_of_one_rank": seconds, "busiest_bytes": max(loads), "over_mean": max(loads) * len(loads) / sum(loads),
        "idle": loads.count(0)}}))


if __name__ == "__main__":
    main()
