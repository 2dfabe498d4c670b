"""Who holds which key. Keys are kept as SHA-256 digests and compared in constant time, all of them.

A key that was right before is recognized by a MAC under a random key of this process. For a request that comes after a
pause, when caches are cold, a digest by OpenSSL takes longer. The time that either takes tells nothing about a wrong key.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from app.config.private import read_secret
from app.errors.tree import Unauthorized

MAX_KEYS = 256
"""Of callers, and of operators: a key is compared with each of them, and names become labels of metrics."""


class KeyRing:
    """The keys of one listener, and whose they are.

    `keys` are those of the configuration, named key-1 and so on; `digests` are stored ones: SHA-256 to name.
    A ring without any key lets everyone in, unless it is `closed`: then its last key was revoked.
    """

    def __init__(
        self, keys: Iterable[str] = (), digests: Mapping[bytes, str] | None = None, closed: bool = False
    ) -> None:
        named = {digest(key): f"key-{number}" for number, key in enumerate(keys, 1)}
        self._holders = {**named, **(digests or {})}
        self._closed = closed
        self._mac_key = secrets.token_bytes(32)
        self._seen: dict[bytes, str] = {}  # MACs of keys that were right, and their names

    def __bool__(self) -> bool:
        return bool(self._holders) or self._closed

    def check(self, authorization: str | None, api_key: str | None = None) -> str | None:
        """The name of the key that a header carries; None if the ring lets everyone in.

        `api_key` is the value of `x-api-key`, where that header is taken, too. Raises Unauthorized.
        """
        if not self:
            return None
        scheme, _, token = (authorization or "").partition(" ")
        given = [token.strip() if scheme.lower() == "bearer" else "", (api_key or "").strip()]
        keys = [key for key in given if key]
        if not keys:
            raise Unauthorized("send Authorization: Bearer KEY", "missing_api_key")
        macs = [hashlib.blake2b(_bytes(key), key=self._mac_key, digest_size=16).digest() for key in keys]
        if (name := self._seen.get(macs[0])) is not None:
            return name
        found = None
        for key, mac in zip(keys, macs, strict=True):
            one = digest(key)
            for known, name in self._holders.items():  # every key is compared, whichever matches
                if hmac.compare_digest(one, known):
                    self._seen[mac] = name
                    found = found or name
        if found is None:
            raise Unauthorized("this key is not known here")
        return found


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def digest(key: str) -> bytes:
    """What is kept of a key: its SHA-256. Made keys hold 256 random bits, so that no salt is needed."""
    return hashlib.sha256(_bytes(key)).digest()


def admin_token(configured: str | None, state_dir: Path) -> tuple[str, Path | None]:
    """The operators' token, and the file it was made in when nobody configured one.

    Made at first start, with mode 600 from its first byte on, and kept.
    """
    path = state_dir / "admin.token"
    if (known := read_admin_token(configured, state_dir)) is not None:
        return known, None if configured else path
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    token = secrets.token_urlsafe(32)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(token + "\n")
    return token, path


def read_admin_token(configured: str | None, state_dir: Path) -> str | None:
    """The operators' token, for a client of them; None where no gateway has made one. Raises OSError."""
    path = state_dir / "admin.token"
    return configured or (read_secret(path).strip() if path.exists() else None)
