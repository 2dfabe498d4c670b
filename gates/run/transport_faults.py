"""Decides which replies are transport faults and may be asked again: no connection, 5xx, 429, 408, a timeout, a cut reply. Pure."""

from collections.abc import Sequence
from typing import Final

from gates.contracts.sample import TimedRead, TransportFault
from gates.reply.parser import ReplyParser, quote

_BUSY: Final = (408, 429)
_ABORTED: Final = ("abort", "error")
"""Finish reasons of an aborted request, as vLLM sends them on shutdown."""


def transport_fault(status: int | None, reads: Sequence[TimedRead]) -> TransportFault | None:
    """The transport fault of a reply that was read to its end, or None."""
    if status is None:
        return TransportFault("broken", "no answer came")
    body = b"".join(read.data for read in reads)
    if status >= 500 or status in _BUSY:
        return TransportFault("status", f"HTTP {status}: {quote(body)}")
    if status != 200:
        return None  # the engine rejects the request; another attempt would not change that
    reader = ReplyParser()
    reader.read(reads)
    error, reason = reader.error, reader.finish_reason
    if error is not None and (error.code or 500) < 500:
        return None
    if error is not None and (reason is None or error.code):
        return TransportFault("broken", f"the engine broke off: {quote(error.message.encode())}")
    if reason is None or reason in _ABORTED:
        return TransportFault("broken", f"the reply ended with finish_reason {reason}")
    return None
