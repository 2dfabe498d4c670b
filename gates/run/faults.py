"""Which replies are a fault of transport, which may be asked again, and which are an answer. Pure.

A fault of transport says nothing of the model: no connection, 5xx, 429 or 408, a timeout, a reply
that broke off. Whatever else came is the model's answer, however bad, and is never asked for again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gates.contracts.sample import Fault, Read
from gates.reply.reader import Reader, shown

_BUSY: Final = (408, 429)
_ABORTED: Final = ("abort", "error")
"""Finish reasons of an engine that gave up on a request; vLLM's, when it is told to shut down."""


def transport_fault(status: int | None, reads: Sequence[Read]) -> Fault | None:
    """The fault in a reply that was read to its end, if there is one."""
    if status is None:
        return Fault("broken", "no answer came")
    body = b"".join(read.data for read in reads)
    if status >= 500 or status in _BUSY:
        return Fault("status", f"HTTP {status}: {shown(body)}")
    if status != 200:
        return None  # the engine refuses the request: asking again would not change that
    reader = Reader()
    reader.read(reads)
    error, reason = reader.error, reader.finish_reason
    if error is not None and (error.code or 500) < 500:
        return None
    if error is not None and (reason is None or error.code):
        return Fault("broken", f"the engine broke off: {shown(error.message.encode())}")
    if reason is None or reason in _ABORTED:
        return Fault("broken", f"the reply ended with finish_reason {reason}")
    return None
