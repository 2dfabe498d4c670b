"""The door of a listener: names every request, and lets in who may come in. Pure ASGI.

It never wraps `send`: nothing here costs a streamed chunk anything.
"""

import re
import random

from starlette.types import ASGIApp, Receive, Scope, Send

from app.auth import KeyRing
from app.errors import MannersError
from app.http_errors import error_response

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


RAW_SEND = "manners.send"
"""Key in the scope of the server's own `send`: the frameworks behind the door wrap theirs in three
layers, which cost 1.5 to 2 us a chunk. For replies that are under way only."""


class Door:
    """Gives each request an id (the caller's own, if it is well formed) and checks its key.

    `guarded` are the path prefixes that need a key; the rest (health) is open.
    """

    def __init__(self, app: ASGIApp, keys: KeyRing, guarded: tuple[str, ...]) -> None:
        self._app = app
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
        scope[RAW_SEND] = send
        if self._keys and scope["path"].startswith(self._guarded):
            try:
                authorization = headers.get(b"authorization")
                self._keys.check(authorization.decode("latin-1") if authorization else None)
            except MannersError as error:
                named = [(b"x-request-id", request_id.encode()), (b"x-manners-engine", b"none")]
                await error_response(error, named)(scope, receive, send)
                return
        await self._app(scope, receive, send)
