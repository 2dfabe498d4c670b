"""The door of a listener: names every request, and lets in who may come in. Pure ASGI.

It never wraps `send`: nothing here costs a streamed chunk anything.
"""

import random
import re
from collections.abc import Mapping
from types import MappingProxyType

from starlette.types import ASGIApp, Receive, Scope, Send

from app.auth import KeyRing
from app.errors import MannersError
from app.http_errors import error_response

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class Door:
    """Gives each request an id (the caller's own, if it is well formed) and checks its key.

    `guarded` are the path prefixes that need a key; the rest (health) is open. `straight` are
    paths whose applications are called without the framework in between.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: KeyRing,
        guarded: tuple[str, ...],
        straight: Mapping[str, ASGIApp] = MappingProxyType({}),
    ) -> None:
        self._app = app
        self._straight = straight
        self._keys = keys
        self._guarded = guarded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        asked = headers.get(b"x-request-id", b"")
        request_id = asked.decode() if _REQUEST_ID.fullmatch(asked) else f"{random.getrandbits(128):032x}"
        scope.setdefault("state", {})["request_id"] = request_id
        if self._keys and scope["path"].startswith(self._guarded):
            try:
                authorization = headers.get(b"authorization")
                self._keys.check(authorization.decode("latin-1") if authorization else None)
            except MannersError as error:
                named = [(b"x-request-id", request_id.encode()), (b"x-manners-engine", b"none")]
                await error_response(error, named)(scope, receive, send)
                return
        app = self._straight.get(scope["path"], self._app)
        await app(scope, receive, send)
