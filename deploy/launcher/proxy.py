"""The launcher's edge: a Unix socket that speaks Docker's API, before the real one.

What passes is written anew from what was judged, path, query and body: two parsers that read one text
differently are a hole.
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
"""A pull takes long; the caller has its own, shorter patience."""
_PASSED = ("content-type", "api-version", "ostype", "server")


def application(catalogue: EngineCatalogue, docker: Path) -> web.Application:
    """The proxy. `docker` is the Docker Engine's socket, which nobody else is given."""
    app = web.Application(client_max_size=MOST_BYTES)
    app.router.add_route("*", "/{path:.*}", _Proxy(catalogue, docker).handle)
    return app


class _Proxy:
    def __init__(self, catalogue: EngineCatalogue, docker: Path) -> None:
        self._catalogue = catalogue
        self._docker = str(docker)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Judge one request, and carry it on."""
        try:
            request = await _read(request)
            container = check_request(request, self._catalogue)
        except RequestNotAllowed as error:
            return _refuse(request, error)
        connector, timeout = UnixConnector(self._docker), ClientTimeout(CALL_SECONDS)
        try:
            async with ClientSession(connector=connector, timeout=timeout) as session:
                mounts = await self._mounts(session, request, container)
                async with await _request(session, request) as found:
                    if found.status < 300:  # what Docker has mounted by now is what was looked at
                        await self._check_again(session, request, container, mounts)
                    return await _hand_back(found, request)
        except RequestNotAllowed as error:
            return _refuse(request, error)
        except (ClientError, OSError) as error:
            return web.json_response({"message": f"the Docker Engine does not answer: {error}"}, status=502)

    async def _mounts(
        self, session: ClientSession, request: DockerRequest, container: str | None
    ) -> Identity:
        """What a container that is made or started is given of the host.

        Raises Forbidden: it is somebody else's, or a path of it has a link in it.
        """
        if container is None:
            return identify(sources(request.body)) if isinstance(request.body, dict) else ()
        found = await self._inspect(session, container)
        return identify(sources(found)) if request.path.endswith("/start") else ()

    async def _inspect(self, session: ClientSession, container: str) -> Mapping[str, Any]:
        """Raises Forbidden for a container of somebody else's. One that is not there is nobody's."""
        async with session.get(_url(f"/containers/{container}/json", {})) as response:
            if response.status != 200:
                return {}
            found: Mapping[str, Any] = await response.json()
        check_ours(found, self._catalogue)
        return found

    async def _check_again(
        self, session: ClientSession, request: DockerRequest, container: str | None, mounts: Identity
    ) -> None:
        """Raises Forbidden if something was put in a mount's place while Docker worked; a container ends then."""
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


async def _request(session: ClientSession, request: DockerRequest) -> ClientResponse:
    """Ask Docker."""
    data = None if request.body is None else json.dumps(request.body).encode()
    headers = {} if data is None else {"content-type": "application/json"}
    return await session.request(
        request.method, _url(request.path, request.query), data=data, headers=headers
    )


async def _hand_back(found: ClientResponse, request: web.Request) -> web.StreamResponse:
    """What Docker says, as it comes."""
    passed = {name: found.headers[name] for name in _PASSED if name in found.headers}
    answer = web.StreamResponse(status=found.status, headers=passed)
    await answer.prepare(request)
    async for piece in found.content.iter_any():
        await answer.write(piece)
    await answer.write_eof()
    return answer


def _url(path: str, query: Mapping[str, str]) -> URL:
    request = f"?{urlencode(query)}" if query else ""
    return URL(f"http://docker{quote(path, safe='/:@')}{request}", encoded=True)


def _refuse(request: web.Request, error: RequestNotAllowed) -> web.Response:
    print(f"refused: {request.method} {request.path[:200]}: {error}", file=sys.stderr, flush=True)
    return web.json_response({"message": f"the launcher refuses: {error}"}, status=403)
