"""A request's place in a trace. Here, the plain one: the caller's trace goes through to the engine.

Where `[telemetry]` names a collector, `app.proxy.otel` gives each request a span of its own instead; it is
imported only then (by `app.wiring`), for its libraries are an extra.
"""

from collections.abc import Mapping

from app.proxy.context import Trace


class Tracing:
    """Makes traces. This one keeps nothing."""

    def begin(self, path: str, headers: Mapping[bytes, bytes], request_id: str) -> Trace:
        """A request for this path has come."""
        return Trace(headers, request_id)

    async def close(self) -> None:
        """Hand in what is left; bounded."""
