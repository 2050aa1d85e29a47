"""The gateway's admin key: where it comes from, and that it is shown nowhere."""

from __future__ import annotations

import os
from typing import Mapping

from .errors import mistake

# The default of AReaL's gateway and of ours, which refuses it on any address but loopback.
PUBLIC_DEFAULT = "areal-admin-key"
_BYTES_MAX = 4096


class Key:
    """A bearer token that no `repr`, log line or traceback of locals shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not text or any(ord(c) <= 0x20 or ord(c) >= 0x7F for c in text):
            raise mistake(
                "the admin key is empty or has characters that no header can carry (blanks, control characters, non-ASCII)",
                "key",
            )
        self._text = text

    def reveal(self) -> str:
        """The key itself, for the header of a request or the environment of a gateway."""
        return self._text

    def __repr__(self) -> str:
        return "Key(hidden)"


def find_key(key: str | None, key_file: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> Key:
    """The key by argument, then WEIGHLOCK_ADMIN_API_KEY, then WEIGHLOCK_ADMIN_API_KEY_FILE, then the public default.

    These are the variables of the command line, with its rules: two sources at one level are a mistake.
    """
    if key is not None and key_file is not None:
        raise mistake("key and key_file are both given; leave one out", "key")
    if key is not None:
        return Key(key)
    if key_file is not None:
        return _read(key_file)
    held = environment.get("WEIGHLOCK_ADMIN_API_KEY", "")
    held_file = environment.get("WEIGHLOCK_ADMIN_API_KEY_FILE", "")
    if held and held_file:
        raise mistake("WEIGHLOCK_ADMIN_API_KEY and WEIGHLOCK_ADMIN_API_KEY_FILE are both set; unset one")
    if held_file:
        return _read(held_file)
    return Key(held or PUBLIC_DEFAULT)


def _read(path: str | os.PathLike[str]) -> Key:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(_BYTES_MAX + 1)
    except OSError as failure:
        reason = failure.strerror or str(failure)
        raise mistake(f"key file '{os.fspath(path)}' can't be read: {reason}", "key_file") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text or "\n" in text or len(text) > _BYTES_MAX:
        raise mistake(f"key file '{os.fspath(path)}' should hold one line of at most {_BYTES_MAX} bytes", "key_file")
    return Key(text)
