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

from deploy.launcher.mounts import Identity, identify, sources
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
        except RequestNotAllowed as error:
            return _refuse(request, error)
        connector, timeout = UnixConnector(self._docker), ClientTimeout(CALL_SECONDS)
        try:
            async with ClientSession(connector=connector, timeout=timeout) as session:
                mounts = await self._mounts(session, wanted, container)
                async with await _send(session, wanted) as found:
                    if found.status < 300:  # Docker must have mounted what was checked
                        await self._check_again(session, wanted, container, mounts)
                    return await _forward(found, request)
        except RequestNotAllowed as error:
            return _refuse(request, error)
        except _NoContainer:
            return web.json_response({"message": "No such container"}, status=404)
        except (ClientError, OSError) as error:
            return web.json_response({"message": f"the Docker Engine does not answer: {error}"}, status=502)

    async def _mounts(
        self, session: ClientSession, request: DockerRequest, container: str | None
    ) -> Identity:
        """The host paths that a created or started container mounts. Raises RequestNotAllowed."""
        if container is None:
            return identify(sources(request.body)) if isinstance(request.body, dict) else ()
        found = await self._inspect(session, container)
        return identify(sources(found)) if request.path.endswith("/start") else ()

    async def _inspect(self, session: ClientSession, container: str) -> Mapping[str, Any]:
        """Inspect a container. Raises RequestNotAllowed if it is another gateway's, or not known to be ours; _NoContainer."""
        async with session.get(_url(f"/containers/{container}/json", {})) as response:
            if response.status == 404:
                raise _NoContainer
            if response.status != 200:
                raise RequestNotAllowed(f"Docker does not say whose container it is ({response.status})")
            found: Mapping[str, Any] = await response.json()
        check_ours(found, self._catalogue)
        return found

    async def _check_again(
        self, session: ClientSession, request: DockerRequest, container: str | None, mounts: Identity
    ) -> None:
        """Raises RequestNotAllowed if a mounted path was replaced meanwhile; kills the container in that case."""
        try:
            if identify(path for path, *_ in mounts) == mounts:
                return
            raise RequestNotAllowed("a mount's source was exchanged while the container was started")
        except RequestNotAllowed:
            if container is not None:
                async with session.post(_url(f"/containers/{container}/kill", {})):
                    raise
            raise


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
