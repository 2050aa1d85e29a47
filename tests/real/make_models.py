#!/usr/bin/env python3
"""Writes tiny Llama checkpoints, good and damaged, that both real engines can serve on a CPU.

    make_models.py DIR              every variant below, each in its own folder of DIR
    make_models.py DIR v1 half      only these

Standard library only. Each folder is written under a temporary name and renamed when it is complete, and one
that exists is left alone, so that a second call costs nothing.

The shape is the smallest that both engines take: head size 32 is the smallest of vLLM's CPU attention, and 256
token ids leave room for a tokenizer with one token for each character. All good versions have the same names,
shapes and dtype (bfloat16) and differ in every value.
"""
import argparse
import array
import dataclasses
import json
import os
import random
import shutil
import struct
import sys

VOCAB = 256
SPECIAL = ("<unk>", "<s>", "</s>")


@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int = 64
    inter: int = 128
    layers: int = 2
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 32
    positions: int = 4096


@dataclasses.dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple
    data: bytes
    dtype: str = "BF16"


@dataclasses.dataclass(frozen=True)
class Variant:
    """One folder: the seed of its values, in how many files, and what is wrong with it."""

    seed: int
    shards: int = 1
    fault: str = ""
    shape: Shape = Shape()


VARIANTS = {
    "v1": Variant(1),
    "v2": Variant(2),
    "v3": Variant(3),
    "v2_shards": Variant(2, shards=2),
    # 73 MB: a load that takes long enough to be looked at.
    "big1": Variant(1, shape=Shape(inter=32768, layers=6)),
    "big2": Variant(2, shape=Shape(inter=32768, layers=6)),
    # The file ends before its header says so.
    "truncated": Variant(3, fault="truncated"),
    # The second of two files is cut, the first is whole.
    "truncated_shard": Variant(3, shards=2, fault="truncated"),
    # Only the first half of the names; nothing in the file tells that others are missing.
    "half": Variant(3, fault="half"),
    # down_proj of the last layer is half as wide.
    "shape": Variant(3, fault="shape"),
    # A name that a Llama does not have.
    "extra": Variant(3, fault="extra"),
    # One weight is not a number.
    "nan": Variant(3, fault="nan"),
    # A second weight file, left over from somewhere, with the names of the first and other values.
    "stray": Variant(3, fault="stray"),
    # The index names a file that is not there.
    "noshard": Variant(3, shards=2, fault="noshard"),
    # A valid file without a tensor: vLLM heals with it.
    "empty": Variant(3, fault="empty"),
    # Weights without config.json.
    "noconfig": Variant(3, fault="noconfig"),
    # A folder without a weight file.
    "noweights": Variant(3, fault="noweights"),
}


def bfloat16(values):
    """The upper half of each float32, little-endian."""
    raw = array.array("f", values).tobytes()
    out = bytearray(len(raw) // 2)
    out[0::2], out[1::2] = raw[2::4], raw[3::4]
    return bytes(out)


def random_bytes(rng, count, mean, deviation):
    """count normal values. From 32,768 on one block is repeated with its signs turned, since gauss() is slow."""
    block = min(count, 1 << 15)
    values = [rng.gauss(0.0, deviation) for _ in range(block)]
    if mean:
        return bfloat16(v + mean for v in values)
    plus, minus = bfloat16(values), bfloat16(-v for v in values)
    parts = [rng.choice((plus, minus)) for _ in range(-(-count // block))]
    return b"".join(parts)[: 2 * count]


def layout(s):
    """(name, shape, mean, deviation) of every tensor: deviations that give logprobs which tell versions apart."""
    yield "model.embed_tokens.weight", (VOCAB, s.hidden), 0.0, 0.5
    for n in range(s.layers):
        at = f"model.layers.{n}."
        yield at + "input_layernorm.weight", (s.hidden,), 1.0, 0.05
        for name, rows in (("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads)):
            yield at + f"self_attn.{name}_proj.weight", (rows * s.head_dim, s.hidden), 0.0, 0.15
        yield at + "self_attn.o_proj.weight", (s.hidden, s.heads * s.head_dim), 0.0, 0.15
        yield at + "post_attention_layernorm.weight", (s.hidden,), 1.0, 0.05
        yield at + "mlp.gate_proj.weight", (s.inter, s.hidden), 0.0, 0.15
        yield at + "mlp.up_proj.weight", (s.inter, s.hidden), 0.0, 0.15
        yield at + "mlp.down_proj.weight", (s.hidden, s.inter), 0.0, 0.15 * (128 / s.inter) ** 0.5
    yield "model.norm.weight", (s.hidden,), 1.0, 0.05
    yield "lm_head.weight", (VOCAB, s.hidden), 0.0, 0.2


def good_tensors(variant):
    out = []
    for name, shape, mean, deviation in layout(variant.shape):
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        # A generator of its own for each tensor: its values don't depend on the tensors before it.
        rng = random.Random(f"{variant.seed} {name}")
        out.append(Tensor(name, shape, random_bytes(rng, count, mean, deviation)))
    return out


def damage(tensors, variant):
    if variant.fault == "empty":
        return []
    if variant.fault == "half":
        return tensors[: len(tensors) // 2]
    if variant.fault == "extra":
        return tensors + [Tensor("model.layers.0.mlp.surprise.weight", (4, 4), bytes(32))]
    out = []
    for t in tensors:
        if variant.fault == "shape" and t.name == f"model.layers.{variant.shape.layers - 1}.mlp.down_proj.weight":
            # Half of each row, so that the numbers that are left are still numbers of this tensor.
            row = 2 * t.shape[1]
            kept = b"".join(t.data[at : at + row // 2] for at in range(0, len(t.data), row))
            t = Tensor(t.name, (t.shape[0], t.shape[1] // 2), kept)
        if variant.fault == "nan" and t.name == "model.norm.weight":
            t = Tensor(t.name, t.shape, b"\xc0\x7f" + t.data[2:])
        out.append(t)
    return out


def write_file(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for t in tensors:
        header[t.name] = {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [at, at + len(t.data)]}
        at += len(t.data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for t in tensors:
            f.write(t.data)


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)


def write_weights(folder, tensors, variant):
    names = ["model.safetensors"]
    if variant.shards > 1:
        names = [f"model-{n + 1:05d}-of-{variant.shards:05d}.safetensors" for n in range(variant.shards)]
    each = -(-len(tensors) // len(names)) or 1
    parts = [tensors[n * each : (n + 1) * each] for n in range(len(names))]
    for name, part in zip(names, parts):
        write_file(os.path.join(folder, name), part)
    if variant.shards > 1:
        where = {t.name: name for name, part in zip(names, parts) for t in part}
        size = sum(len(t.data) for t in tensors)
        write_json(folder, "model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": where})
    last = os.path.join(folder, names[-1])
    if variant.fault == "truncated":
        os.truncate(last, os.path.getsize(last) * 6 // 10)
    if variant.fault in ("noshard", "noweights"):
        os.unlink(last)
    if variant.fault == "stray":
        other = dataclasses.replace(variant, seed=variant.seed + 100)
        write_file(os.path.join(folder, "model-old.safetensors"), good_tensors(other))


def config(s):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": s.hidden,
        "intermediate_size": s.inter,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads,
        "head_dim": s.head_dim,
        "vocab_size": VOCAB,
        "max_position_embeddings": s.positions,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def tokenizer():
    """One token for each character: the special ones, tab, newline, printable ASCII, then letters from U+00C0 on."""
    tokens = list(SPECIAL) + ["\t", "\n"] + [chr(c) for c in range(0x20, 0x7F)]
    tokens += [chr(c) for c in range(0xC0, 0xC0 + VOCAB - len(tokens))]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    split = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": n, "content": t, **flags} for n, t in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": split,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": {t: n for n, t in enumerate(tokens)}, "unk_token": SPECIAL[0]},
    }


def write_model(folder, variant):
    write_weights(folder, damage(good_tensors(variant), variant), variant)
    if variant.fault == "noconfig":
        return
    write_json(folder, "config.json", config(variant.shape))
    write_json(folder, "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})
    write_json(folder, "tokenizer.json", tokenizer())
    words = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    write_json(
        folder,
        "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": variant.shape.positions, **words},
    )


def make(parent, name):
    """The folder of one variant, made if it is not there."""
    final = os.path.join(parent, name)
    if os.path.isdir(final):
        return final
    part = f"{final}.part{os.getpid()}"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    write_model(part, VARIANTS[name])
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
