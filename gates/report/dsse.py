"""The signed envelope: DSSE v1 (secure-systems-lab/dsse v1.0.2) with Ed25519 (RFC 8032), and stricter: an envelope has exactly one text. Pure.

A report is identified by the digest of its bytes: with several texts, it could be revoked under one digest and promoted under another. A key id
is only a hint; what counts is that the signature verifies with a trusted key.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gates.contracts import strict_json
from gates.contracts.errors import ReportError
from gates.decode.decoder import DecodeError, Meta, canonical, encode, read

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature of 64 bytes, and the id of the key that claims to have made it."""

    keyid: str
    sig: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload and its one signature. The keys are DSSE's; bytes are written in base64."""

    payload: bytes
    signatures: Annotated[tuple[Signature, ...], Meta(min_length=1, max_length=1)]
    payloadType: Literal["application/vnd.in-toto+json"] = PAYLOAD_TYPE


def key_id(key: Ed25519PublicKey) -> str:
    """`sha256:` and the SHA-256 of the public key as DER SubjectPublicKeyInfo."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def pae(payload_type: str, body: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are signed. Lengths are in bytes."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def sign(payload: bytes, key: Ed25519PrivateKey) -> Envelope:
    """The signed envelope."""
    return Envelope(payload, (Signature(key_id(key.public_key()), key.sign(pae(PAYLOAD_TYPE, payload))),))


def signer(envelope: Envelope, trusted: Mapping[str, Ed25519PublicKey]) -> str:
    """The id of the trusted key that signed. Raises ReportError."""
    (signature,) = envelope.signatures
    if (key := trusted.get(signature.keyid)) is None:
        why = f"signed by {signature.keyid:.80}, a key that is not trusted here"
        raise ReportError("report_signature", why)
    try:
        key.verify(signature.sig, pae(envelope.payloadType, envelope.payload))
    except InvalidSignature:
        why = "the signature does not fit what it signs; the report was changed after it was signed"
        raise ReportError("report_signature", why) from None
    return signature.keyid


def render(envelope: Envelope) -> bytes:
    """The envelope's text: canonical JSON, standard base64, a line break at the end."""
    return canonical(encode(envelope)) + b"\n"


def parse(text: bytes) -> Envelope:
    """The envelope with this text, without verification. Raises DecodeError for any other text."""
    try:
        envelope = read(Envelope, strict_json.loads(text))
    except ValueError as error:
        raise DecodeError("", f"not a DSSE envelope, cut off or damaged ({error})") from None
    if render(envelope) != text:
        raise DecodeError("", "a DSSE envelope, but not in the form that this program writes; it was edited")
    return envelope
