"""A request's place in a trace. Here, the plain one: the caller's trace goes through to the engine.

Where `[telemetry]` names a collector, `app.proxy.otel` gives each request a span of its own instead; it is
imported only then (by `app.wiring`), for its libraries are an extra.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from app.proxy.exchange import Exchange


@dataclass(frozen=True)
class Ending:
    """What became of a request. `outcome` is the label of manners_requests_total."""

    outcome: str
    error: BaseException | None
    engine: str
    served_name: str | None = None  # the model, in the engine's words
    failovers: int = 0
    exchange: Exchange | None = None


class Trace:
    """One request's. `headers` is what goes to an engine with it, and nothing else of the caller's does."""

    def __init__(self, headers: Mapping[bytes, bytes], request_id: str) -> None:
        self.request_id = request_id
        self.headers = {"x-request-id": request_id}
        for name in (b"traceparent", b"tracestate"):
            if name in headers:
                self.headers[name.decode()] = headers[name].decode("latin-1")

    def asks(self, model: str, stream: bool) -> None:
        """It can be served: this public model is asked for."""

    def ended(self, ending: Ending) -> None:
        """It is over. Called once, whatever happened."""


class Tracing:
    """Makes traces. This one keeps nothing."""

    def begin(self, path: str, headers: Mapping[bytes, bytes], request_id: str) -> Trace:
        """A request for this path has come."""
        return Trace(headers, request_id)

    async def close(self) -> None:
        """Hand in what is left; bounded."""
