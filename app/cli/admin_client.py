"""A blocking client of the admin API, and how a command that uses it ends."""

import argparse
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from os import EX_CONFIG, EX_NOINPUT, EX_NOPERM, EX_UNAVAILABLE
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx2

from app.access.keys import read_admin_token
from app.cli.exit_codes import exit_code, fail
from app.config import running
from app.config.config import ConfigError, load
from app.errors.tree import MannersError
from app.registry.errors import RegistryError
from gates.reply.sse import SSEDecoder

TIMEOUT_SECONDS = 60.0
"""For connecting, and between two reads: a stream of events sends a comment every two seconds."""

RECONNECT_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each new attempt to follow a broken stream of events; an event starts the list again.
A gateway that restarts is back within their sum."""


class AdminClientError(Exception):
    """There was no usable answer; the message is one line."""


class GatewayUnreachable(AdminClientError):
    """Nothing answers at that address."""


class RequestRejected(AdminClientError):
    """The gateway answered with an error: `status` and `code` as it sent them."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.status, self.code, self.message = status, code, message


class AdminClient:
    """Sends requests to the admin listener at `url` with a bearer token.

    Proxies of the environment are ignored: the listener is on this host or on a private network, and the
    token is secret. Every method raises GatewayUnreachable, RequestRejected, AdminClientError.
    """

    def __init__(self, url: str, token: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise AdminClientError(f"{url}: the admin listener's URL begins with http:// or https://")
        self._url = url.rstrip("/")
        headers = {b"Authorization": f"Bearer {token}".encode("latin-1", "replace")}
        self._client = httpx2.Client(
            headers=headers,
            limits=httpx2.Limits(max_keepalive_connections=0),  # nothing stays open that must be closed
            timeout=TIMEOUT_SECONDS,
            trust_env=False,
        )

    def call(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """The JSON that the API answers with; `path` is below /admin."""
        reply = self._send(self._request(method, f"/admin/{path}", **request))
        try:
            return dict(json.loads(reply.read()))
        except (ValueError, httpx2.HTTPError):
            raise AdminClientError(f"{self._url}/admin/{path} did not answer with JSON") from None
        finally:
            reply.close()

    def start(self, kind: str, body: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Start a promotion or rollback; returns the operation, or with `dry_run` its plan."""
        key = {"Idempotency-Key": str(uuid.uuid4())}
        return self.call("POST", kind + ("?dry_run=1" if dry_run else ""), json=body, headers=key)

    def listed(self, kind: str) -> list[dict[str, Any]]:
        """All "keys", or all "operators"."""
        return list(self.call("GET", kind)[kind])

    def add(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Add one of the "keys" or "operators"; the answer holds the secret, once."""
        return self.call("POST", kind, json=body)

    def limit(self, name: str, changes: dict[str, int | None]) -> dict[str, Any]:
        """Change limits of a key; None takes one away."""
        return self.call("PATCH", f"keys/{quote(name, safe='')}", json=changes)

    def rotate(self, name: str, overlap: int) -> dict[str, Any]:
        """Give a key another secret; the old one works for `overlap` seconds more. The answer holds the new one, once."""
        return self.call("POST", f"keys/{quote(name, safe='')}/rotate", json={"overlap_seconds": overlap})

    def revoke(self, kind: str, name: str) -> dict[str, Any]:
        """Revoke one of the "keys" or "operators"."""
        return self.call("DELETE", f"{kind}/{quote(name, safe='')}")

    def follow(self, operation: str, after: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each event's name and data, until `done`; a stream that breaks is resumed.

        Raises AdminClientError if it breaks again and again with no event between. The operation itself goes on.
        """
        broken = 0
        while True:
            try:
                for name, data in self._events(operation, after):
                    broken, after = 0, data.get("seq", after)
                    yield name, data
                    if name == "done":
                        return
            except GatewayUnreachable:
                if broken == len(RECONNECT_PAUSES):
                    raise
            if broken == len(RECONNECT_PAUSES):
                raise AdminClientError(
                    f"the events of {operation} cannot be followed; it goes on: `manners status`"
                )
            time.sleep(RECONNECT_PAUSES[broken])
            broken += 1

    def _events(self, operation: str, after: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """The events behind `after`, until the stream ends or breaks."""
        headers = {"Last-Event-ID": str(after)}
        path = f"/admin/operations/{quote(operation, safe='')}/events"
        reply = self._send(self._request("GET", path, headers=headers))
        decoder = SSEDecoder()
        try:
            for data in reply.iter_bytes():
                for payload in decoder.feed(data):
                    event = json.loads(payload)
                    yield ("done" if "done" in event else "step"), event
        except httpx2.HTTPError:
            return  # `follow` resumes it
        finally:
            reply.close()

    def _request(self, method: str, path: str, **request: Any) -> httpx2.Request:
        try:
            return self._client.build_request(method, self._url + path, **request)
        except httpx2.InvalidURL as error:
            raise GatewayUnreachable(f"no gateway at {self._url}: {error}") from None

    def _send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; returns a reply of status 2xx whose body is not read yet."""
        try:
            reply = self._client.send(request, stream=True)
        except httpx2.HTTPError as error:
            why = str(error) or "the connection broke"
            raise GatewayUnreachable(
                f"no gateway at {self._url}: {why}; start one with `manners serve`"
            ) from None
        if reply.is_success:
            return reply
        with closing(reply):
            raise _rejection(reply)


def _rejection(reply: httpx2.Response) -> RequestRejected:
    try:
        error = json.loads(reply.read())["error"]
        return RequestRejected(reply.status_code, str(error["code"] or ""), str(error["message"]))
    except (ValueError, LookupError, TypeError, httpx2.HTTPError):
        return RequestRejected(reply.status_code, "", f"the gateway answered {reply.status_code}")


CODES: Final[Mapping[type[Exception], int]] = {
    ConfigError: EX_CONFIG,
    AdminClientError: EX_UNAVAILABLE,
    RegistryError: EX_UNAVAILABLE,
    MannersError: 1,
    OSError: EX_NOINPUT,
}


def run_client(work: Callable[[], int], args: argparse.Namespace) -> int:
    """The exit code of work that asks the gateway, or changes what it keeps."""

    def caught() -> int:
        try:
            return work()
        except RequestRejected as error:
            if args.json:
                print(json.dumps({"error": {"code": error.code, "message": error.message}}))
            return fail("manners", error, EX_NOPERM if error.status in (401, 403) else 1)

    return exit_code("manners", caught, CODES, words=_words)


def _words(error: Exception) -> str:
    if isinstance(error, MannersError):
        return f"{error.code}: {error.message}"
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)


def client_for(args: argparse.Namespace) -> AdminClient:
    """A client of the configured gateway. Raises ConfigError: no token is known."""
    config = load(args.config)
    runs = None if args.config else running.find()
    try:
        token = read_admin_token(config.secrets.admin_token, Path(runs.state) if runs else config.state_dir)
    except OSError as error:
        raise ConfigError(f"gateway.state: admin.token: {error.strerror}") from None
    if token is None:
        raise ConfigError(
            "no admin token: set MANNERS_ADMIN_TOKEN, or run this where the gateway has made one"
        )
    host = f"[{config.admin.host}]" if ":" in config.admin.host else config.admin.host
    configured = runs.admin if runs else f"http://{host}:{config.admin.port}"
    return AdminClient(args.admin or configured, token)
