"""The API key and the certificate authority that an engine behind a URL asks for.

Files hold both and are read at each use, so that a replaced file takes effect at once. No key is logged, shown or stored.
"""

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, TypedDict, TypeVar

from gates.run.http import system_tls

MAX_BYTES: Final = 1 << 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineAccess:
    """The files. Without `key_file` no key is sent; without `ca_file` the system's authorities count."""

    key_file: Path | None = None
    ca_file: Path | None = None

    def check(self) -> None:
        """Raises ValueError that names the field, if a file cannot be used."""
        for name, path, read in (("key_file", self.key_file, _key), ("ca_file", self.ca_file, _context)):
            try:
                if path is not None:
                    read(path)
            except (OSError, ValueError) as error:  # no text of the file
                why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                raise ValueError(f"{name}: {path}: {why}") from None

    def headers(self) -> dict[str, str]:
        """The headers with the key; none if its file cannot be read: then the engine says 401."""
        try:
            return {"authorization": f"Bearer {_fresh(_key, self.key_file)}"} if self.key_file else {}
        except (OSError, ValueError):
            return {}

    def tls(self) -> ssl.SSLContext:
        """For an https address. If the authority's file cannot be used, the system's authorities refuse the engine."""
        try:
            return _fresh(_context, self.ca_file) if self.ca_file else system_tls()
        except (OSError, ValueError):
            return system_tls()

    def client(self) -> "ClientAccess":
        """The same for a client that takes both with each request."""
        return {"headers": self.headers(), "tls": self.tls() if self.ca_file else None}


class ClientAccess(TypedDict):
    """`tls` is None where the client's own default will do."""

    headers: dict[str, str]
    tls: ssl.SSLContext | None


OPEN: Final = EngineAccess()


def _fresh(read: Callable[[Path], T], path: Path) -> T:
    """What a file holds, read again when it was replaced or changed."""
    seen = os.stat(path)
    return _read(read, path, seen.st_ino, seen.st_size, seen.st_mtime_ns)  # type: ignore[return-value]


@lru_cache(64)
def _read(read: Callable[[Path], object], path: Path, *_fingerprint: int) -> object:
    return read(path)


def _key(path: Path) -> str:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & 0o037:
            raise ValueError(f"others may open it; run: chmod 600 {path}")
        key = file.read(MAX_BYTES).decode("utf-8", "replace").strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("holds no key; write the key there, on one line")
    return key


def _context(path: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise ValueError("holds no certificate in PEM") from None
