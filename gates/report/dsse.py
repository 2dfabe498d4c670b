"""The signed envelope: DSSE v1 with Ed25519, and stricter: an envelope has exactly one text. Pure.

A report is identified by the digest of its bytes: with several texts, it could be revoked under one digest and promoted under
another. A key id is only a hint; what counts is that the signature verifies with a trusted key.

Sources: secure-systems-lab/dsse v1.0.2, protocol.md and envelope.md; RFC 8032 for Ed25519.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gates.contracts import strict_json
from gates.decode.decoder import DecodeError, read
from gates.report.codec import canonical, encode

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"

MAX_SIGNATURES: Final = 16
"""Every signature costs a verification, so untrusted envelopes are limited; real ones have one or two."""


@dataclass(frozen=True, slots=True, order=True)
class Signature:
    """A signature of 64 bytes, and the id of the key that claims to have made it."""

    keyid: str
    sig: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload and its signatures, ordered by key id, at most one per key."""

    payload: bytes
    signatures: tuple[Signature, ...]
    payloadType: str = PAYLOAD_TYPE  # the keys are DSSE's; bytes are written in base64


def key_id(key: Ed25519PublicKey) -> str:
    """`sha256:` and the SHA-256 of the public key as DER SubjectPublicKeyInfo."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def pae(payload_type: str, body: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are signed. Lengths are in bytes."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def sign(payload: bytes, key: Ed25519PrivateKey, payload_type: str = PAYLOAD_TYPE) -> Envelope:
    """An envelope with one signature."""
    made = Signature(key_id(key.public_key()), key.sign(pae(payload_type, payload)))
    return Envelope(payload, (made,), payload_type)


def signers(envelope: Envelope, trusted: Mapping[str, Ed25519PublicKey]) -> tuple[str, ...]:
    """The ids of the trusted keys with a valid signature. If a signature names a trusted key and does not verify, none counts."""
    message = pae(envelope.payloadType, envelope.payload)
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
    """The envelope's text: canonical JSON, standard base64, a line break at the end."""
    return canonical(encode(envelope)) + b"\n"


def parse(text: bytes) -> Envelope:
    """The envelope with this text, without verification. Raises DecodeError for any other text."""
    try:
        envelope = read(Envelope, strict_json.loads(text))
    except ValueError as error:
        raise DecodeError("", f"not a DSSE envelope, cut off or damaged ({error})") from None
    keyids = [s.keyid for s in envelope.signatures]
    if len(keyids) > MAX_SIGNATURES:
        raise DecodeError("", f"{len(keyids)} signatures; at most {MAX_SIGNATURES} are read")
    if keyids != sorted(set(keyids)) or render(envelope) != text:
        raise DecodeError("", "a DSSE envelope, but not in the form that this program writes; it was edited")
    return envelope
