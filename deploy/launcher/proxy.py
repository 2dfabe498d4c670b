"""The launcher's proxy: a Unix socket that speaks Docker's API, in front of the Docker Engine's own.

An allowed request is serialized again from what was checked, so that two parsers cannot read one text differently.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, UnixConnector, web
from yarl import URL

from deploy.launcher.policy import (
    DockerRequest,
    EngineCatalogue,
    RequestNotAllowed,
    check_ours,
    check_request,
)

MOST_BYTES = 1 << 20
CALL_SECONDS = 3600.0
"""A pull takes long; the caller has a shorter timeout of its own."""
_PASSED = ("content-type", "api-version", "ostype", "server")


def application(catalogue: EngineCatalogue, docker: Path) -> web.Application:
    """The proxy application. `docker` is the Docker Engine's socket, which only the launcher may open."""
    app = web.Application(client_max_size=MOST_BYTES)
    app.router.add_route("*", "/{path:.*}", _Proxy(catalogue, docker).handle)
    return app


class _NoContainer(Exception):
    """There is no such container now."""


class _Proxy:
    def __init__(self, catalogue: EngineCatalogue, docker: Path) -> None:
        self._catalogue = catalogue
        self._docker = str(docker)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Check one request and forward it."""
        try:
            wanted = await _read(request)
            container = check_request(wanted, self._catalogue)
            if wanted.body is not None:
                _make_cache(wanted.body)
        except RequestNotAllowed as error:
            return _refuse(request, error)
        connector, timeout = UnixConnector(self._docker), ClientTimeout(CALL_SECONDS)
        try:
            async with ClientSession(connector=connector, timeout=timeout) as session:
                if container is not None:
                    await self._check_ours(session, container)
                async with await _send(session, wanted) as found:
                    return await _forward(found, request)
        except RequestNotAllowed as error:
            return _refuse(request, error)
        except _NoContainer:
            return web.json_response({"message": "No such container"}, status=404)
        except (ClientError, OSError) as error:
            return web.json_response({"message": f"the Docker Engine does not answer: {error}"}, status=502)

    async def _check_ours(self, session: ClientSession, container: str) -> None:
        """Raises RequestNotAllowed for a container that is another gateway's, or not known to be ours; _NoContainer."""
        async with session.get(_url(f"/containers/{container}/json", {})) as response:
            if response.status == 404:
                raise _NoContainer
            if response.status != 200:
                raise RequestNotAllowed(f"Docker does not say whose container it is ({response.status})")
            check_ours(await response.json(), self._catalogue)


def _make_cache(body: Mapping[str, Any]) -> None:
    """Make the cache of a container's allowed body, where the gateway may not write. Raises RequestNotAllowed."""
    cache = Path(body["HostConfig"]["Mounts"][1]["Source"])
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = f"the launcher cannot make {cache} ({error.strerror}); let it write to {cache.parent}"
        raise RequestNotAllowed(why) from None


async def _read(request: web.Request) -> DockerRequest:
    path = unquote(request.rel_url.raw_path)
    if "%" in path or "//" in path or ".." in path.split("/"):
        raise RequestNotAllowed("the path is not plain")
    if len(request.rel_url.query) != len(set(request.rel_url.query)):
        raise RequestNotAllowed("a parameter is given twice")
    raw = await request.read()
    try:
        body = json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        raise RequestNotAllowed("the body is not JSON") from None
    return DockerRequest(request.method, path, dict(request.rel_url.query), body)


async def _send(session: ClientSession, request: DockerRequest) -> ClientResponse:
    data = None if request.body is None else json.dumps(request.body).encode()
    headers = {} if data is None else {"content-type": "application/json"}
    return await session.request(
        request.method, _url(request.path, request.query), data=data, headers=headers
    )


async def _forward(found: ClientResponse, request: web.Request) -> web.StreamResponse:
    """Stream Docker's response to the caller."""
    passed = {name: found.headers[name] for name in _PASSED if name in found.headers}
    answer = web.StreamResponse(status=found.status, headers=passed)
    await answer.prepare(request)
    async for piece in found.content.iter_any():
        await answer.write(piece)
    await answer.write_eof()
    return answer


def _url(path: str, query: Mapping[str, str]) -> URL:
    encoded = f"?{urlencode(query)}" if query else ""
    return URL(f"http://docker{quote(path, safe='/:@')}{encoded}", encoded=True)


def _refuse(encoded: web.Request, error: RequestNotAllowed) -> web.Response:
    print(f"refused: {encoded.method} {encoded.path[:200]}: {error}", file=sys.stderr, flush=True)
    return web.json_response({"message": f"the launcher refuses: {error}"}, status=403)
