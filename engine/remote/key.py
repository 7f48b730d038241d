"""The server's key: from the environment or a file, and shown to nobody."""

from __future__ import annotations

import os
from pathlib import Path

from engine.config import ConfigError

ENVIRONMENT = "SPECTER_SERVER_KEY"
_LONGEST = 8192  # characters; a signed token has a few hundred to a few thousand
_FIX = "it must hold the key as one line of printable ASCII"


class Key:
    """A secret that does not show itself in a repr, a format or a dump."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Key(…)"

    def __reduce__(self) -> str:
        raise TypeError("a key is not written anywhere")

    @property
    def header(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._value}"}


def read_key(file: str | None) -> Key | None:
    """The key in `file`, else the one in the environment, else None. Raises ConfigError, without any of it."""
    if file is None:
        value, key = os.environ.get(ENVIRONMENT, "").strip(), "server_url"
        return _checked(value, key, ENVIRONMENT) if value else None
    try:
        with Path(file).expanduser().open("rb") as opened:
            data = opened.read(_LONGEST + 2)
        value = data.decode("ascii").strip()
    except OSError as error:
        raise ConfigError("server_key_file", f"{file} cannot be read ({error.strerror}); {_FIX}") from None
    except (ValueError, RuntimeError):
        raise ConfigError("server_key_file", f"{file} is no such file; {_FIX}") from None
    return _checked(value, "server_key_file", file)


def _checked(value: str, key: str, where: str) -> Key:
    if not value or len(value) > _LONGEST or not (value.isascii() and value.isprintable()) or " " in value:
        raise ConfigError(key, f"what stands in {where} is no key; {_FIX}")
    return Key(value)
