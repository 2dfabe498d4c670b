"""The signed envelope: DSSE v1 with Ed25519. Values and text; no file, no clock. Pure.

    signature = Ed25519(PAE(payloadType, payload)),
    PAE(type, body) = "DSSEv1" SP LEN(type) SP type SP LEN(body) SP body

An envelope may carry several signatures over the same payload. A key id is a hint and proves
nothing: what counts is that a trusted key verifies.

Where we are stricter than the protocol: DSSE lets a verifier take either base64 alphabet and any
layout of the JSON. Here an envelope has one text, and `parse` takes no other. A report is named by
the digest of its bytes, and one report under many names could be revoked under one of them and
promoted under another.

Sources: secure-systems-lab/dsse v1.0.2, protocol.md and envelope.md; RFC 8032 for Ed25519.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gates.report.codec import CodecError, canonical

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"

MAX_SIGNATURES: Final = 16
"""Each costs a verification; nobody has this many signers, and a caller may send what it likes."""


@dataclass(frozen=True, slots=True, order=True)
class Signature:
    """A signature of 64 bytes, and the id of the key that is said to have made it."""

    keyid: str
    sig: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload and the signatures over it, in the order of their key ids, one per key."""

    payload: bytes
    signatures: tuple[Signature, ...]
    payload_type: str = PAYLOAD_TYPE


def key_id(key: Ed25519PublicKey) -> str:
    """sha256:... over the public key as DER SubjectPublicKeyInfo."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def pae(payload_type: str, body: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are signed. Lengths count bytes."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def sign(payload: bytes, key: Ed25519PrivateKey, payload_type: str = PAYLOAD_TYPE) -> Envelope:
    """An envelope with one signature."""
    return countersign(Envelope(payload, (), payload_type), key)


def countersign(envelope: Envelope, key: Ed25519PrivateKey) -> Envelope:
    """The envelope with one more signature; a key that has signed signs no second time."""
    keyid = key_id(key.public_key())
    added = Signature(keyid, key.sign(pae(envelope.payload_type, envelope.payload)))
    others = [s for s in envelope.signatures if s.keyid != keyid]
    return Envelope(envelope.payload, tuple(sorted([*others, added])), envelope.payload_type)


def signers(envelope: Envelope, trusted: Mapping[str, Ed25519PublicKey]) -> tuple[str, ...]:
    """The ids of the trusted keys whose signature is there and holds; empty if there is none.

    A signature that names a trusted key and does not verify under it makes the whole envelope void:
    somebody has changed it. One by a key that is not trusted counts for nothing and harms nothing.
    """
    message = pae(envelope.payload_type, envelope.payload)
    named = [s for s in envelope.signatures if s.keyid in trusted]
    if all(_holds(trusted[s.keyid], s.sig, message) for s in named):
        return tuple(s.keyid for s in named)
    return ()


def _holds(key: Ed25519PublicKey, sig: bytes, message: bytes) -> bool:
    try:
        key.verify(sig, message)
    except InvalidSignature:
        return False
    return True


# ------------------------------------------------------------------------------------------- text


def render(envelope: Envelope) -> bytes:
    """The envelope's one text: canonical JSON, standard base64, a line break at the end."""
    document = {
        "payload": _base64(envelope.payload),
        "payloadType": envelope.payload_type,
        "signatures": [{"keyid": s.keyid, "sig": _base64(s.sig)} for s in envelope.signatures],
    }
    return canonical(document) + b"\n"


def parse(text: bytes) -> Envelope:
    """The envelope whose text this is; verifies nothing. Raises CodecError for any other text."""
    try:
        envelope = _envelope(json.loads(text))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise CodecError(f"not a DSSE envelope, cut off or damaged ({error})") from None
    keyids = [s.keyid for s in envelope.signatures]
    if len(keyids) > MAX_SIGNATURES:
        raise CodecError(f"{len(keyids)} signatures; at most {MAX_SIGNATURES} are read")
    if keyids != sorted(set(keyids)) or render(envelope) != text:
        raise CodecError("a DSSE envelope, but not in the form that this program writes; it was edited")
    return envelope


def _envelope(document: Any) -> Envelope:
    signatures: Iterable[Any] = document["signatures"]
    return Envelope(
        payload=base64.b64decode(_text(document["payload"]), validate=True),
        signatures=tuple(
            Signature(_text(s["keyid"]), base64.b64decode(_text(s["sig"]), validate=True)) for s in signatures
        ),
        payload_type=_text(document["payloadType"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is no text")
    return value


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
