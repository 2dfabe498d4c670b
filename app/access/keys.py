"""Finds the holder of a key. A key ring stores SHA-256 digests, and compares a key with every one in constant time."""

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from app.config.private import read_secret
from app.errors.tree import Unauthorized

MAX_KEYS = 256
"""Of callers, and of operators: a key is compared with each of them, and names become labels of metrics."""


class KeyRing:
    """The keys of one listener: their digests in hex, and whose they are.

    A ring without any key lets everyone in, unless it is `closed`: then its last key was revoked.
    """

    def __init__(self, holders: Mapping[str, str], closed: bool = False) -> None:
        self._holders, self._closed = holders, closed

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
        digests = [digest(key) for key in given if key]
        if not digests:
            raise Unauthorized("send Authorization: Bearer KEY", "missing_api_key")
        found = None
        for one in digests:
            for known, name in self._holders.items():  # every key is compared, whichever matches
                if hmac.compare_digest(one, known):
                    found = found or name
        if found is None:
            raise Unauthorized("this key is not known here")
        return found


def digest(key: str) -> str:
    """The SHA-256 of a key in hex, which is all that is stored. A generated key has 256 random bits and needs no salt."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def admin_token(configured: str | None, state_dir: Path) -> tuple[str, Path | None]:
    """The operators' token, and the file it is in if nobody configured one: made at the first start, for its owner only."""
    path = state_dir / "admin.token"
    token = read_admin_token(configured, state_dir)
    if token is None:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        token = secrets.token_urlsafe(32)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token + "\n")
    return token, None if configured else path


def read_admin_token(configured: str | None, state_dir: Path) -> str | None:
    """The operators' token, for a client of them; None where no gateway has made one. Raises OSError."""
    path = state_dir / "admin.token"
    return configured or (read_secret(path).strip() if path.exists() else None)
