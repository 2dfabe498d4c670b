"""A blocking client of the gateway's listeners: of the operators' API, and of the callers'.

Without a gateway the operators' API is answered in this process, over the state folder's registry.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from os import EX_NOPERM, EX_UNAVAILABLE
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

from app.access.keys import read_admin_token
from app.access.records import ADMIN
from app.cli.exit_codes import CommandError
from app.config import running
from app.config.config import Config, ConfigError, load
from app.promotion.repository import FILE
from app.registry.errors import RegistryLocked
from app.registry.registry import Registry
from gates.reply.sse import SSEDecoder

TIMEOUT_SECONDS = 150.0
"""For connecting, and between two reads. A reply may take 120 by default; a stream of events sends a comment every two seconds."""
RECONNECTS = 16
RECONNECT_SECONDS = 1.0
"""How often, and how long after each other, a broken stream of events is asked for again. A gateway that restarts is back by then."""


class GatewayError(CommandError):
    """There was no usable answer; the message is one line. told: code and message of an error that the gateway answered with."""

    def __init__(self, why: str, code: int = EX_UNAVAILABLE, told: Mapping[str, str] | None = None) -> None:
        super().__init__(why, code)
        self.told = told


class GatewayUnreachable(GatewayError):
    """No gateway answers at the address that the client asks."""


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
        with self._reply(method, path, **request) as reply:
            try:
                return dict(json.loads(reply.read()))
            except ValueError:
                raise GatewayError(f"{self._base}{path} did not answer with JSON") from None

    def payloads(self, method: str, path: str, **request: Any) -> Iterator[bytes]:
        """The payloads of a stream of server-sent events, until it ends. Raises GatewayUnreachable if it breaks."""
        decoder = SSEDecoder()
        with self._reply(method, path, **request) as reply:
            for data in reply.iter_bytes():
                yield from decoder.feed(data)

    def follow(self, operation: str) -> Iterator[dict[str, Any]]:
        """Yield each event, the last of which is the operation and has the key `done`; a stream that breaks is resumed.

        Raises GatewayError if it breaks again and again with no event between. The operation itself goes on.
        """
        path, after, broken = f"operations/{quote(operation, safe='')}/events", 0, 0
        while broken <= RECONNECTS:
            with suppress(GatewayUnreachable):
                for payload in self.payloads("GET", path, headers={"Last-Event-ID": str(after)}):
                    event = json.loads(payload)
                    broken, after = 0, event.get("seq", after)
                    yield event
                    if "done" in event:
                        return
            broken += 1
            time.sleep(RECONNECT_SECONDS)
        raise GatewayError(f"the events of {operation} cannot be followed; it goes on: `manners status`")

    @contextmanager
    def _reply(self, method: str, path: str, **request: Any) -> Iterator[httpx2.Response]:
        """A reply of status 2xx whose body is not read yet."""
        try:
            with self._client.stream(method, self._base + path, **request) as reply:
                if not reply.is_success:
                    raise _rejection(reply)
                yield reply
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = str(error) or "the connection broke"
            said = f"no gateway at {self._url}: {why}; start one with `manners serve`"
            raise GatewayUnreachable(said) from None


def _rejection(reply: httpx2.Response) -> GatewayError:
    """The error that the gateway answered with."""
    why, told = f"the gateway answered {reply.status_code}", None
    with suppress(ValueError, LookupError, TypeError):
        error = json.loads(reply.read())["error"]
        told = {part: error[part] for part in ("code", "message")}
        why = f"{told['code']}: {told['message']}"
    return GatewayError(why, EX_NOPERM if reply.status_code in (401, 403) else 1, told)


@contextmanager
def connected(args: argparse.Namespace, offline: bool) -> Iterator[GatewayClient]:
    """A client of the configured gateway; of the state folder where that is enough, and no gateway runs.

    Raises ConfigError, RegistryError, OSError.
    """
    config = load(args.config)
    if offline and not args.admin:
        config.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(RegistryLocked), Registry(config.state_dir / FILE) as registry:
            yield GatewayClient("http://localhost", "", transport=_in_process(registry, config))
            return
    runs = None if args.config else running.find()
    token = read_admin_token(config.secrets.admin_token, Path(runs.state) if runs else config.state_dir)
    if token is None:
        raise ConfigError("no admin token: set MANNERS_ADMIN_TOKEN, or run this where the gateway made one")
    yield GatewayClient(args.admin or (runs.admin if runs else f"http://{config.admin}"), token)


def _in_process(registry: Registry, config: Config) -> httpx2.BaseTransport:
    """The API of keys and operators over a registry that no gateway uses, in the name of `admin`: nobody else can
    write the state folder. Its errors are raised by the request as they are.
    """
    from fastapi import Depends, FastAPI, Request

    from app.access.service import AccessService
    from app.admin.access import access_router

    async def do(work: Callable[[Registry], Any]) -> Any:
        return work(registry)

    async def as_admin(request: Request) -> None:
        request.state.caller, request.state.request_id = ADMIN, ""

    async def answer(request: httpx2.Request) -> httpx2.Response:
        reply = await httpx2.ASGITransport(app).handle_async_request(request)
        return httpx2.Response(reply.status_code, headers=reply.headers, content=await reply.aread())

    access = AccessService(config, "", do)
    asyncio.run(access.refresh())
    app = FastAPI(dependencies=[Depends(as_admin)])
    app.include_router(access_router(access))
    return httpx2.MockTransport(lambda request: asyncio.run(answer(request)))
