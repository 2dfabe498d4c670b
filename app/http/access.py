"""Access control of a listener: gives every request an id, and checks its host, origin and key.

It does not wrap `send`, so that a streamed chunk costs nothing more.
"""

import random
import re
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from app.access.keys import KeyRing
from app.errors.render import error_response
from app.errors.tree import BadHTTP, MannersError
from app.http.hosts import check_local, check_media_type
from app.proxy.admission import FairScheduler

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


@dataclass
class AccessControl:
    """Gives each request an id (the caller's own, if it is well formed) and checks its key.

    guarded: the prefix of paths that need a key; other paths (health) are open, and so are the exact paths in `open_paths`.
    straight: paths whose applications are called without the framework. All other requests, and all refusals, take
    turns, because anyone who can connect can make many at once. takes_api_key: a key may come in `x-api-key`, as
    Anthropic's clients send it. count: called with each refusal.

    `replace` sets other keys from the next request on. With `local`, its own names, only programs on this machine are
    served, and no website (app.http.hosts); without keys, a POST must then declare its body as JSON. The scope's state gets
    the key's name as `caller`; None if no keys are configured.
    """

    app: ASGIApp
    keys: KeyRing
    guarded: str
    straight: Mapping[str, ASGIApp] = field(default_factory=dict)
    takes_api_key: bool = False
    open_paths: frozenset[str] = frozenset()
    count: Callable[[MannersError], None] = lambda error: None
    local: Collection[str] | None = None
    _turns: FairScheduler = field(default_factory=FairScheduler, init=False)

    def replace(self, keys: KeyRing, local: Collection[str] | None) -> None:
        """Use these keys from the next request on."""
        self.keys, self.local = keys, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        asked = headers.get(b"x-request-id", b"")
        request_id = asked.decode() if _REQUEST_ID.fullmatch(asked) else f"{random.getrandbits(128):032x}"
        state: dict[str, Any] = {"request_id": request_id, "headers": headers}
        scope["state"] = state
        try:
            state["caller"] = self._check(scope["method"], scope["path"], headers)
        except MannersError as error:
            self.count(error)
            named = [(b"x-request-id", request_id.encode()), (b"x-manners-engine", b"none")]
            await self._turns.turn()
            await error_response(error, named, scope["path"])(scope, receive, send)
            return
        app = self.straight.get(scope["path"])
        if app is None:
            await self._turns.turn()
            app = self.app
            if scope["method"] == "HEAD" and not scope["path"].startswith(self.guarded):
                scope = {**scope, "method": "GET"}  # a health check; the server sends no body to HEAD
        await app(scope, receive, send)

    def _check(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> str | None:
        """The name of the key; None if none is needed. Raises Forbidden, BadHTTP or Unauthorized."""
        has_keys = bool(self.keys)
        if self.local is not None:
            check_local(headers, self.local, may_follow_links=path in self.open_paths)
            if method == "POST" and path in self.straight and not has_keys:
                check_media_type(headers)
        if headers.get(b"content-encoding", b"").strip().lower() not in (b"", b"identity"):
            raise BadHTTP(  # its unpacked size would have no bound
                "compressed bodies are not read: send the body without Content-Encoding",
                "unsupported_content_encoding",
            )
        if not has_keys or not path.startswith(self.guarded) or path in self.open_paths:
            return None
        api_key = headers.get(b"x-api-key", b"") if self.takes_api_key else b""
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        # Flagger knows a URL alone, http://any:KEY@host. It only asks: a browser adds Basic to what a website sends.
        if path.startswith("/admin/flagger/") and authorization[:6].lower() == "basic ":
            with suppress(ValueError):
                authorization = "Bearer " + b64decode(authorization[6:]).decode("latin-1").partition(":")[2]
        return self.keys.check(authorization, api_key.decode("latin-1"))
