"""Signing keys: made once, private, and refused when they lie open."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gates.contracts.errors import KeyFileError
from gates.report.dsse import key_id
from gates.report.keys import PRIVATE, PUBLIC, load, load_or_make, trusted
from tests.gates.report.examples import KEY


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_can_open_the_private_key(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        load_or_make(tmp_path / "keys")
    finally:
        os.umask(before)

    assert mode(tmp_path / "keys") == 0o700
    assert mode(tmp_path / "keys" / PRIVATE) == 0o600
    assert mode(tmp_path / "keys" / PUBLIC) == 0o644


def test_a_public_key_of_another_pair_is_noticed(tmp_path: Path) -> None:
    load_or_make(tmp_path / "a")
    load_or_make(tmp_path / "b")
    (tmp_path / "a" / PUBLIC).write_bytes((tmp_path / "b" / PUBLIC).read_bytes())

    with pytest.raises(KeyFileError, match="not the other half"):
        load_or_make(tmp_path / "a")


def test_many_that_come_first_at_once_end_with_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: load_or_make(tmp_path / "keys"), range(16)))

    assert len({key_id(key.public_key()) for key in keys}) == 1
    assert sorted(p.name for p in (tmp_path / "keys").iterdir()) == [PRIVATE, PUBLIC]


@pytest.mark.parametrize("bits", [0o640, 0o604])
def test_a_key_that_others_can_open_is_refused_with_the_cure(tmp_path: Path, bits: int) -> None:
    load_or_make(tmp_path)
    (tmp_path / PRIVATE).chmod(bits)

    with pytest.raises(KeyFileError, match="others may open it .* chmod 600"):
        load_or_make(tmp_path)


def private(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def test_what_is_no_ed25519_key_is_refused(tmp_path: Path) -> None:
    pem = serialization.Encoding.PEM
    pkcs8 = serialization.PrivateFormat.PKCS8
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(pem, pkcs8, serialization.NoEncryption())
    locked = KEY.private_bytes(pem, pkcs8, serialization.BestAvailableEncryption(b"word"))
    (tmp_path / "folder").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "pipe", 0o600)
    cases = [
        ("no Ed25519 private key in PEM", private(tmp_path / "a", b"-----BEGIN PRIVATE KEY-----\nMC4C")),
        ("no Ed25519 private key in PEM", private(tmp_path / "b", other)),
        ("without a password", private(tmp_path / "c", locked)),
        ("a plain file", tmp_path / "folder"),
        ("no plain file", tmp_path / "pipe"),
        ("cannot be opened .No such file", tmp_path / "nowhere"),
    ]
    for message, path in cases:
        with pytest.raises(KeyFileError, match=message):
            load(path)


def test_trusting_nobody_is_an_error(tmp_path: Path) -> None:
    load_or_make(tmp_path / "keys")
    for places, message in (
        ([tmp_path], "no public key to trust"),
        ([], "no place was named"),
        ([tmp_path / "x.pub"], "cannot be read"),
        ([tmp_path / "keys" / PRIVATE], "no Ed25519 public key in PEM"),
    ):
        with pytest.raises(KeyFileError, match=message):
            trusted(places)
