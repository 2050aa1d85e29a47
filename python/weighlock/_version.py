"""The release; the same number as the program's."""

__version__ = "0.1.0"
