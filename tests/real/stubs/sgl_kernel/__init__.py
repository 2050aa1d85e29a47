"""Lets SGLang be imported where its CUDA kernels (package sglang-kernel) cannot be installed.

SGLang imports names from this package at module level, also on a CPU, where it then takes its own torch
code. So a name may be imported, stored, compared and used as a decorator's argument; calling it is an
error that says which kernel was wanted, since a silent nothing would be wrong numbers.
"""
import importlib.machinery
import sys
import types

__version__ = "0+cpu.imports.only"
__path__ = []


class AbsentKernel:
    """Stands for one kernel: an attribute of it is again an absent kernel."""

    def __init__(self, name):
        self.__name__ = name
        self.__qualname__ = name

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"{self.__name__} exists for CUDA only and was called on a CPU")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return AbsentKernel(f"{self.__name__}.{name}")

    def __repr__(self):
        return f"<absent kernel {self.__name__}>"


def absent_in(module):
    """The __getattr__ (PEP 562) of one module of this package."""

    def lookup(name):
        if name.startswith("__"):
            raise AttributeError(f"{module} has no {name}")
        return AbsentKernel(f"{module}.{name}")

    return lookup


class SubmoduleFinder:
    """Makes every sgl_kernel.x.y importable, as an empty package whose names are absent kernels."""

    def find_spec(self, name, path=None, target=None):
        if not name.startswith(__name__ + "."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = absent_in(spec.name)
        return module

    def exec_module(self, module):
        pass


__getattr__ = absent_in(__name__)
sys.meta_path.append(SubmoduleFinder())


def ignore_pinned_memory():
    """Pinned memory is memory for copies to a CUDA device, and asking for it needs the driver. SGLang's LoRA layers ask
    also on a CPU; there plain memory is the same.
    """
    import functools

    import torch

    if torch.cuda.is_available():
        return

    def unpinned(function):
        @functools.wraps(function)
        def call(*args, pin_memory=False, **kwargs):
            return function(*args, **kwargs)

        return call

    for name in ("tensor", "empty", "empty_like", "zeros", "zeros_like", "ones", "full", "arange"):
        setattr(torch, name, unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda tensor, *args: tensor


ignore_pinned_memory()
