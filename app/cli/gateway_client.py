"""A blocking client of the gateway: of the operators' API, and of the callers'."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from os import EX_NOPERM, EX_UNAVAILABLE
from typing import Any
from urllib.parse import quote

import httpx2

from app.cli.exit_codes import CommandError
from gates.reply.sse import SSEDecoder

TIMEOUT_SECONDS = 150.0
"""For connecting, and between two reads. A reply may take 120 by default; a stream of events sends a comment every two seconds."""

RECONNECT_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each new attempt to follow a broken stream of events; an event starts the list again.
A gateway that restarts is back within their sum."""


class GatewayError(CommandError):
    """There was no usable answer; the message is one line."""

    def __init__(self, why: str, code: int = EX_UNAVAILABLE) -> None:
        super().__init__(why, code)


class GatewayUnreachable(GatewayError):
    """No gateway answers at the address that the client asks."""


class RequestRejected(GatewayError):
    """The gateway answered with an error."""

    def __init__(self, reply: httpx2.Response) -> None:
        try:
            self.error = dict(json.loads(reply.read())["error"])
            why = ": ".join(str(self.error[part]) for part in ("code", "message") if self.error[part])
        except (ValueError, LookupError, TypeError, httpx2.HTTPError):
            why = f"the gateway answered {reply.status_code}"
            self.error = {"code": "", "message": why}
        super().__init__(why, EX_NOPERM if reply.status_code in (401, 403) else 1)


class GatewayClient:
    """Sends requests to the listener at `url` with a bearer token; paths are below `base`.

    Proxies of the environment are ignored: the listener is on this host or on a private network, and the
    token is secret. Every method raises GatewayError.
    """

    def __init__(
        self, url: str, token: str, base: str = "/admin/", transport: httpx2.BaseTransport | None = None
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise GatewayError(f"{url}: a gateway's URL begins with http:// or https://")
        self._url, self._base = url.rstrip("/"), url.rstrip("/") + base
        self._client = httpx2.Client(
            headers={b"Authorization": f"Bearer {token}".encode("latin-1", "replace")},
            limits=httpx2.Limits(max_keepalive_connections=0),  # nothing stays open that must be closed
            timeout=TIMEOUT_SECONDS,
            trust_env=False,
            transport=transport,
        )

    def call(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """The JSON that the API answers with."""
        with closing(self._send(method, path, **request)) as reply:
            try:
                return dict(json.loads(reply.read()))
            except (ValueError, httpx2.HTTPError):
                raise GatewayError(f"{self._base}{path} did not answer with JSON") from None

    def payloads(self, method: str, path: str, **request: Any) -> Iterator[bytes]:
        """The payloads of a stream of server-sent events, until it ends. Raises GatewayUnreachable if it breaks."""
        decoder = SSEDecoder()
        with closing(self._send(method, path, **request)) as reply:
            try:
                for data in reply.iter_bytes():
                    yield from decoder.feed(data)
            except httpx2.HTTPError as error:
                raise self._unreachable(error) from None

    def follow(self, operation: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each event's name and data, until `done`; a stream that breaks is resumed.

        Raises GatewayError if it breaks again and again with no event between. The operation itself goes on.
        """
        path, after, broken = f"operations/{quote(operation, safe='')}/events", 0, 0
        while True:
            try:
                for payload in self.payloads("GET", path, headers={"Last-Event-ID": str(after)}):
                    event = json.loads(payload)
                    broken, after = 0, event.get("seq", after)
                    yield ("done" if "done" in event else "step"), event
                    if "done" in event:
                        return
            except GatewayUnreachable:
                pass
            if broken == len(RECONNECT_PAUSES):
                raise GatewayError(
                    f"the events of {operation} cannot be followed; it goes on: `manners status`"
                )
            time.sleep(RECONNECT_PAUSES[broken])
            broken += 1

    def _send(self, method: str, path: str, **request: Any) -> httpx2.Response:
        """Send a request; returns a reply of status 2xx whose body is not read yet."""
        try:
            asked = self._client.build_request(method, self._base + path, **request)
            reply = self._client.send(asked, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._unreachable(error) from None
        if reply.is_success:
            return reply
        with closing(reply):
            raise RequestRejected(reply)

    def _unreachable(self, error: Exception) -> GatewayUnreachable:
        why = str(error) or "the connection broke"
        return GatewayUnreachable(f"no gateway at {self._url}: {why}; start one with `manners serve`")
