"""Stands in for transformers, of which the awex package imports one name for type hints: the real one takes four
seconds of each process's start."""


class PretrainedConfig:
    """A name for type hints."""
