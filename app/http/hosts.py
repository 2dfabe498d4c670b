"""Host and origin checks of a listener without keys: programs on this machine may use it, websites may not. Pure.

A browser lets any page send requests to this machine, in two ways. With DNS rebinding, the page's own name
resolves to 127.0.0.1, and the page may read the reply: `Host` is that name. Or the page sends a request that needs no
permission by CORS (a "simple" one, whose media type is not JSON): `Origin` or `Sec-Fetch-Site` gives its origin.
"""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

from app.config.config import is_loopback
from app.errors.tree import BadHTTP, Forbidden

_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_.-]{1,253}))(?::[0-9]{1,5})?")
_NEAR = (None, b"none", b"same-origin", b"same-site")
_ORIGIN = re.compile(rb"https?://(.+)")


@lru_cache(256)
def host_name(host: bytes) -> str | None:
    """The name or address in the value of a `Host` header, without its port; None if it is malformed."""
    match = _HOST.fullmatch(host)
    if match is None:
        return None
    return (match[1] or match[2]).decode().lower().removesuffix(".")


def check_local(
    headers: Mapping[bytes, bytes], hosts: Collection[str], *, may_follow_links: bool = False
) -> None:
    """Raises Forbidden for a `Host` that is not of this machine, or a request that a website has made.

    hosts: names by which the listener is reached besides `localhost` and loopback addresses. may_follow_links: a link on
    another site may lead here. Every browser sends `Host`.
    """
    host, origin = headers.get(b"host", b""), headers.get(b"origin")
    name = host_name(host)
    if b"host" in headers and not (name and (name in hosts or is_loopback(name))):
        raise Forbidden(
            "this listener has no key and answers only to this machine's own names (localhost, 127.0.0.1): "
            "use one of them, or list the name in gateway.hosts"
        )
    site = None if origin is None else _ORIGIN.fullmatch(origin.lower())
    is_own = origin is None or (site and (site[1] == host.lower() or host_name(site[1]) in hosts))
    links = may_follow_links and headers.get(b"sec-fetch-mode") == b"navigate"
    if not is_own or (headers.get(b"sec-fetch-site") not in _NEAR and not links):
        raise Forbidden(
            "another site's page has sent this request, and this listener has no key: "
            "set API keys, or list the site's host name in gateway.hosts",
            "origin_not_allowed",
        )


def check_media_type(headers: Mapping[bytes, bytes]) -> None:
    """Raises BadHTTP unless the body is declared as JSON, which a page may not send without permission."""
    essence = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if essence != b"application/json":
        raise BadHTTP(
            "send the body with the header Content-Type: application/json", "unsupported_media_type"
        )
