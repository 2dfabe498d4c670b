"""Decides which replies are transport faults and may be asked again: no connection, 5xx, 429, 408, a timeout, a cut reply. Pure."""

from collections.abc import Sequence
from typing import Final

from gates.contracts.sample import TimedRead, TransportFault
from gates.reply.reply import quote, read_body

_BUSY: Final = (408, 429)


def transport_fault(status: int | None, reads: Sequence[TimedRead]) -> TransportFault | None:
    """The transport fault of a reply that was read to its end, or None."""
    if status is None:
        return TransportFault("broken", "no answer came")
    body = b"".join(read.data for read in reads)
    if status >= 500 or status in _BUSY:
        return TransportFault("status", f"HTTP {status}: {quote(body)}")
    if status != 200:
        return None  # the engine rejects the request; another attempt would not change that
    reply = read_body(reads)
    error, reason = reply.error, reply.finish_reason
    if error is not None and (error.status or 500) < 500:
        return None
    if error is not None and (reason is None or error.status):
        return TransportFault("broken", f"the engine broke off: {quote(error.message.encode())}")
    return TransportFault("broken", "the reply ended without a finish_reason") if reason is None else None
