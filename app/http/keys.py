"""The callers' keys. They are kept as SHA-256 digests and compared in constant time, all of them."""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from app.errors.tree import Unauthorized


class KeyRing:
    """The keys of one listener. An empty ring lets everyone in, where that was decided."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def check(self, authorization: str | None, api_key: str | None = None) -> None:
        """Raises Unauthorized unless a header carries one of the keys, or the ring is empty.

        `api_key` is the value of `x-api-key`, where that header is taken, too.
        """
        if not self._digests:
            return
        scheme, _, token = (authorization or "").partition(" ")
        given = [token.strip() if scheme.lower() == "bearer" else "", (api_key or "").strip()]
        digests = [_digest(key) for key in given if key]
        if not digests:
            raise Unauthorized("send Authorization: Bearer KEY", "missing_api_key")
        matches = [hmac.compare_digest(one, known) for one in digests for known in self._digests]
        if not any(matches):  # every key was compared, whichever matched
            raise Unauthorized("this key is not known here")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def admin_token(configured: str | None, state_dir: Path) -> tuple[str, Path | None]:
    """The operators' token, and the file it was made in when nobody configured one.

    Made at first start, with mode 600 from its first byte on, and kept.
    """
    path = _token_file(state_dir)
    if (known := read_admin_token(configured, state_dir)) is not None:
        return known, None if configured else path
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    token = secrets.token_urlsafe(32)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(token + "\n")
    return token, path


def read_admin_token(configured: str | None, state_dir: Path) -> str | None:
    """The operators' token, for a client of them; None where no gateway has made one."""
    path = _token_file(state_dir)
    if configured:
        return configured
    return path.read_text("utf-8").strip() if path.exists() else None


def _token_file(state_dir: Path) -> Path:
    return state_dir / "admin.token"
