"""The envelope: DSSE's bytes, Ed25519's signatures, and one text per envelope."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from gates.decode.decoder import DecodeError
from gates.report.dsse import Envelope, Signature, key_id, pae, parse, render, sign
from tests.gates.report.examples import KEY

PUBLIC = KEY.public_key()

PAE = [
    (
        "http://example.com/HelloWorld",
        b"hello world",
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world",
    ),
    ("application/vnd.in-toto+json", b"", b"DSSEv1 28 application/vnd.in-toto+json 0 "),
    ("application/vnd.ex\u00e4mple+json", b"{}", b"DSSEv1 29 application/vnd.ex\xc3\xa4mple+json 2 {}"),
    ("", b"", b"DSSEv1 0  0 "),
]
"""The first is the protocol's own example; the third counts bytes and not characters."""


@pytest.mark.parametrize("kind, body, expected", PAE)
def test_the_signed_bytes_are_the_protocols(kind: str, body: bytes, expected: bytes) -> None:
    assert expected == pae(kind, body)


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl: apt install openssl")
def test_openssl_agrees(tmp_path: Path) -> None:
    envelope = sign(b'{"a":1}', KEY)
    pem = PUBLIC.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "k.pub").write_bytes(pem)
    (tmp_path / "message").write_bytes(b'DSSEv1 28 application/vnd.in-toto+json 7 {"a":1}')
    (tmp_path / "sig").write_bytes(envelope.signatures[0].sig)
    verify = "openssl pkeyutl -verify -pubin -inkey k.pub -rawin -in message -sigfile sig"
    digest = "openssl pkey -pubin -in k.pub -outform DER | sha256sum"
    run = subprocess.run(
        ["sh", "-c", f"{verify} && {digest}"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert "Verified Successfully" in run.stdout
    assert key_id(PUBLIC).removeprefix("sha256:") in run.stdout


def other_text(change: dict[str, object]) -> bytes:
    return json.dumps(json.loads(render(sign(b"??>>", KEY))) | change).encode()


TEXTS = [
    b"", b"{}", b"[]", b"null", b"\x00", b"[" * 100_000,
    other_text({}),
    other_text({"extra": 1}),
    other_text({"payload": base64.urlsafe_b64encode(b"??>>").decode()}),
    other_text({"payload": "Pz8+Pg"}),
    other_text({"payload": "Pz8+Ph=="}),
    other_text({"signatures": {}}),
    other_text({"signatures": [{"sig": "AAAA"}]}),
    other_text({"payloadType": 3}),
    render(sign(b"??>>", KEY)).rstrip(),
    render(Envelope(b"p", ())),
    render(Envelope(b"p", (Signature("a", b""), Signature("b", b"")))),
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_another_text_is_refused(text: bytes) -> None:
    with pytest.raises(DecodeError):
        parse(text)
