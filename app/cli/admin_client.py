"""A client of the admin API, for commands: small, blocking, standard library only."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import quote, urlencode

from app.stream.sse import SSEDecoder

ASK_SECONDS = 60.0
"""How long a single answer may take; a stream of events gives a sign of life every ten seconds."""

PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before a stream of events that broke is taken up again; so many times without an event, then no more.
A gateway that is started again is back within them."""


class ClientError(Exception):
    """No answer that could be used; the message is one line."""


class NoGateway(ClientError):
    """Nobody answers at that address."""


class Refused(ClientError):
    """The gateway said no: `status` and `code` as it sent them."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.status, self.code, self.message = status, code, message


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""No proxy of the environment: the admin listener is on this host or on a private network, and the token is secret."""


class OperatorClient:
    """Speaks to the admin listener at `url` with a bearer token.

    Every method raises NoGateway, Refused, ClientError.
    """

    def __init__(self, url: str, token: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise ClientError(f"{url}: the admin listener's URL begins with http:// or https://")
        self._url, self._token = url.rstrip("/"), token

    def status(self) -> dict[str, Any]:
        """Models with what serves them."""
        return self._json("GET", "/admin/status")

    def upload(self, report: bytes) -> dict[str, Any]:
        """Hand in a report; its `digest` is what `promote` wants."""
        return self._json("POST", "/admin/reports", report)

    def promote(
        self, model: str, engine: str, report: str | None, *, key: str | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """An operation, or with `dry_run` its plan. The same `key` begins nothing twice.

        Without a `report` only an override lets it in.
        """
        body = {"model": model, "engine": engine, "report": report}
        return self._begin("/admin/promote", body, key, dry_run)

    def rollback(self, model: str, *, key: str | None = None, dry_run: bool = False) -> dict[str, Any]:
        """The same, back to what served before."""
        return self._begin("/admin/rollback", {"model": model}, key, dry_run)

    def cancel(self, operation: str) -> dict[str, Any]:
        """The operation, on its way back."""
        return self._json("POST", f"/admin/operations/{quote(operation, safe='')}/cancel", b"")

    def operation(self, operation: str) -> dict[str, Any]:
        """How it stands."""
        return self._json("GET", f"/admin/operations/{quote(operation, safe='')}")

    def operations(self, limit: int = 50) -> list[dict[str, Any]]:
        """The latest, the newest first."""
        return list(self._json("GET", f"/admin/operations?{urlencode({'limit': limit})}")["operations"])

    def audit(self, after: int = 0, limit: int = 200, newest: bool = False) -> dict[str, Any]:
        """Events of the chain, and whether it holds."""
        asked = {"after": after, "limit": limit, **({"newest": 1} if newest else {})}
        return self._json("GET", f"/admin/audit?{urlencode(asked)}")

    def follow(self, operation: str, after: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
        """Pairs of an event's name and its data, until `done`; a stream that breaks is taken up again.

        Raises ClientError when it breaks again and again with no event between: the operation itself goes on.
        """
        broken = 0
        while True:
            try:
                for name, data in self._events(operation, after):
                    broken, after = 0, data.get("seq", after)
                    yield name, data
                    if name == "done":
                        return
            except NoGateway:
                if broken == len(PAUSES):
                    raise
            if broken == len(PAUSES):
                raise ClientError(
                    f"the events of {operation} cannot be followed; it goes on: `manners status`"
                )
            time.sleep(PAUSES[broken])
            broken += 1

    def _events(self, operation: str, after: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """One stream of events behind `after`; it ends where it ended, or broke."""
        path = f"/admin/operations/{quote(operation, safe='')}/events"
        with self._open("GET", path, headers={"Last-Event-ID": str(after)}) as reply:
            decoder = SSEDecoder()
            while data := _part(reply):
                for payload in decoder.feed(data):
                    read = json.loads(payload)
                    yield ("done" if "done" in read else "step"), read

    def _begin(self, path: str, body: dict[str, Any], key: str | None, dry_run: bool) -> dict[str, Any]:
        headers = {"Idempotency-Key": key} if key else {}
        return self._json(
            "POST", path + ("?dry_run=1" if dry_run else ""), json.dumps(body).encode(), headers
        )

    def _json(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        with self._open(method, path, body, headers) as reply:
            try:
                return dict(json.loads(reply.read()))
            except (ValueError, OSError, HTTPException):
                raise ClientError(f"{self._url}{path} did not answer with JSON") from None

    def _open(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> HTTPResponse:
        request = urllib.request.Request(self._url + path, body, method=method)
        sent = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            **(headers or {}),
        }
        for name, value in sent.items():
            request.add_header(name, value)
        try:
            reply: HTTPResponse = _OPENER.open(request, timeout=ASK_SECONDS)
            return reply
        except urllib.error.HTTPError as error:
            raise _refusal(error) from None
        except (OSError, HTTPException) as error:
            why = getattr(error, "reason", error) or "the connection broke"
            raise NoGateway(f"no gateway at {self._url}: {why}; start one with `manners serve`") from None


def _refusal(error: urllib.error.HTTPError) -> Refused:
    try:
        said = json.loads(error.read())["error"]
        return Refused(error.code, str(said["code"] or ""), str(said["message"]))
    except (ValueError, LookupError, TypeError, OSError, HTTPException):
        return Refused(error.code, "", f"the gateway answered {error.code}")


def _part(reply: HTTPResponse) -> bytes:
    """What came next; nothing at the end, or where the stream broke."""
    try:
        return reply.read1(65_536)
    except (OSError, HTTPException):
        return b""
