"""Signing keys on disk: created on first use, kept private, identified by their public key.

    FOLDER/report.key    the private key, PKCS #8 PEM, mode 600, its folder mode 700
    FOLDER/report.pub    the public key; its id: openssl pkey -pubin -in report.pub -outform DER | sha256sum

Trusted keys are *.pub files; to stop trusting a key, remove its file.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gates.artefact.durable import draft
from gates.contracts.errors import KeyFileError
from gates.report.dsse import key_id

PRIVATE: Final = "report.key"
PUBLIC: Final = "report.pub"

_PEM, _OPEN = serialization.Encoding.PEM, serialization.NoEncryption()
_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK
_MAX_BYTES: Final = 16 * 1024  # a PEM of an Ed25519 key has about 120


def load_or_make(folder: Path) -> Ed25519PrivateKey:
    """The folder's signing key, created on first use; two processes that create it at once end with the same key. Raises
    KeyFileError: readable by others, a link, no Ed25519 key, or not the other half of report.pub.
    """
    path = folder / PRIVATE
    try:
        if not os.path.lexists(path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = Ed25519PrivateKey.generate()
            _publish(path, made.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, _OPEN), 0o600)
        key = load(path)
        if not (folder / PUBLIC).exists():
            half = key.public_key().public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
            _publish(folder / PUBLIC, half, 0o644)
    except OSError as error:
        raise KeyFileError(
            f"{path}: {error.strerror or error}; the signing key must be readable here"
        ) from None
    if key_id(_load_public(folder / PUBLIC)) != key_id(key.public_key()):
        raise KeyFileError(
            f"{folder / PUBLIC}: is not the other half of {PRIVATE}; remove it, and it is made again"
        )
    return key


def load(path: Path) -> Ed25519PrivateKey:
    """A private key from a file that only its owner can read. Raises KeyFileError."""
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer. Mode and owner are those of the opened file.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _FLAGS)) as file:
            facts, data = os.fstat(file.fileno()), file.read(_MAX_BYTES)
    except OSError as error:
        raise KeyFileError(f"{path}: cannot be opened ({error.strerror}); a key is a plain file") from None
    key, why = None, ""
    with suppress(TypeError, ValueError, UnsupportedAlgorithm):  # TypeError: it has a password
        key = serialization.load_pem_private_key(data, password=None)
    if not stat.S_ISREG(facts.st_mode):
        why = "is no plain file"
    elif mode := stat.S_IMODE(facts.st_mode) & 0o077:
        why = f"others may open it (mode {mode:03o}); run: chmod 600 {path}"
    elif facts.st_uid not in (os.geteuid(), 0):
        why = f"belongs to another user (uid {facts.st_uid})"
    elif not isinstance(key, Ed25519PrivateKey):
        why = "is no Ed25519 private key in PEM without a password"
    if why or not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path}: {why}")
    return key


def _publish(path: Path, data: bytes, mode: int) -> None:
    """Write a file atomically; an existing file is kept."""
    written = draft(path, data, mode)
    try:
        os.link(written, path)  # unlike a rename, this fails if the file exists
    except FileExistsError:
        return
    finally:
        written.unlink()


def trusted(places: Iterable[Path]) -> dict[str, Ed25519PublicKey]:
    """Public keys by id, from files and from folders of *.pub. Raises KeyFileError, also if there is none."""
    places = tuple(places)
    files = [sorted(place.glob("*.pub")) if place.is_dir() else [place] for place in places]
    keys = [_load_public(path) for paths in files for path in paths]
    if not keys:
        where = ", ".join(map(str, places)) or "no place was named"
        raise KeyFileError(f"no public key to trust ({where}); copy the signer's {PUBLIC} there")
    return {key_id(key): key for key in keys}


def _load_public(path: Path) -> Ed25519PublicKey:
    key: object = None
    try:
        with path.open("rb") as file, suppress(ValueError, UnsupportedAlgorithm):
            key = serialization.load_pem_public_key(file.read(_MAX_BYTES))
    except OSError as error:
        raise KeyFileError(f"{path}: cannot be read ({error.strerror})") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{path}: is no Ed25519 public key in PEM")
    return key
