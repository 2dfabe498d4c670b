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
from deploy.launcher.policy import Catalogue, Forbidden, ParsedRequest, check_ours, judge

MOST_BYTES = 1 << 20
CALL_SECONDS = 3600.0
"""A pull takes long; the caller has its own, shorter patience."""
_PASSED = ("content-type", "api-version", "ostype", "server")


def application(catalogue: Catalogue, docker: Path) -> web.Application:
    """The proxy. `docker` is the Docker Engine's socket, which nobody else is given."""
    app = web.Application(client_max_size=MOST_BYTES)
    app.router.add_route("*", "/{path:.*}", _Proxy(catalogue, docker).handle)
    return app


class _Proxy:
    def __init__(self, catalogue: Catalogue, docker: Path) -> None:
        self._catalogue = catalogue
        self._docker = str(docker)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Judge one request, and carry it on."""
        try:
            asked = await _read(request)
            container = judge(asked, self._catalogue)
        except Forbidden as error:
            return _refuse(request, error)
        connector, timeout = UnixConnector(self._docker), ClientTimeout(CALL_SECONDS)
        try:
            async with ClientSession(connector=connector, timeout=timeout) as session:
                mounts = await self._mounts(session, asked, container)
                async with await _request(session, asked) as found:
                    if found.status < 300:  # what Docker has mounted by now is what was looked at
                        await self._check_again(session, asked, container, mounts)
                    return await _hand_back(found, request)
        except Forbidden as error:
            return _refuse(request, error)
        except (ClientError, OSError) as error:
            return web.json_response({"message": f"the Docker Engine does not answer: {error}"}, status=502)

    async def _mounts(self, session: ClientSession, asked: ParsedRequest, container: str | None) -> Identity:
        """What a container that is made or started is given of the host.

        Raises Forbidden: it is somebody else's, or a path of it has a link in it.
        """
        if container is None:
            return identify(sources(asked.body)) if isinstance(asked.body, dict) else ()
        found = await self._inspect(session, container)
        return identify(sources(found)) if asked.path.endswith("/start") else ()

    async def _inspect(self, session: ClientSession, container: str) -> Mapping[str, Any]:
        """Raises Forbidden for a container of somebody else's. One that is not there is nobody's."""
        async with session.get(_url(f"/containers/{container}/json", {})) as response:
            if response.status != 200:
                return {}
            found: Mapping[str, Any] = await response.json()
        check_ours(found, self._catalogue)
        return found

    async def _check_again(
        self, session: ClientSession, asked: ParsedRequest, container: str | None, mounts: Identity
    ) -> None:
        """Raises Forbidden if something was put in a mount's place while Docker worked; a container ends then."""
        try:
            if identify(path for path, *_ in mounts) == mounts:
                return
            raise Forbidden("a mount's source was exchanged while the container was started")
        except Forbidden:
            if container is not None:
                async with session.post(_url(f"/containers/{container}/kill", {})):
                    raise
            raise


async def _read(request: web.Request) -> ParsedRequest:
    path = unquote(request.rel_url.raw_path)
    if "%" in path or "//" in path or ".." in path.split("/"):
        raise Forbidden("the path is not plain")
    if len(request.rel_url.query) != len(set(request.rel_url.query)):
        raise Forbidden("a parameter is given twice")
    raw = await request.read()
    try:
        body = json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        raise Forbidden("the body is not JSON") from None
    return ParsedRequest(request.method, path, dict(request.rel_url.query), body)


async def _request(session: ClientSession, asked: ParsedRequest) -> ClientResponse:
    """Ask Docker."""
    data = None if asked.body is None else json.dumps(asked.body).encode()
    headers = {} if data is None else {"content-type": "application/json"}
    return await session.request(asked.method, _url(asked.path, asked.query), data=data, headers=headers)


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
    asked = f"?{urlencode(query)}" if query else ""
    return URL(f"http://docker{quote(path, safe='/:@')}{asked}", encoded=True)


def _refuse(request: web.Request, error: Forbidden) -> web.Response:
    print(f"refused: {request.method} {request.path[:200]}: {error}", file=sys.stderr, flush=True)
    return web.json_response({"message": f"the launcher refuses: {error}"}, status=403)
