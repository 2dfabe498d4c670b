"""A gateway without keys serves this machine's programs and no website; with keys anyone who has one."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from tests.app.house import HELLO, TOKEN, GatewayFixture, house

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "key-of-a-caller"
JSON = {"content-type": "application/json"}
BODY = json.dumps({"model": "annie", "messages": HELLO}).encode()
EVIL = "http://evil.example"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def houses(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, GatewayFixture]]:
    """Without keys, with a key, on a network, and without keys under a name of its own."""
    async with AsyncExitStack() as stack:
        settings: dict[str, Any] = {
            "open": {},
            "keyed": {"keys": (KEY,)},
            "network": {"keys": (KEY,), "gateway": {"listen": "0.0.0.0:0", "admin": "0.0.0.0:0"}},
            "named": {"gateway": {"hosts": ["Manners.example"]}},
        }
        yield {
            name: await stack.enter_async_context(house(tmp_path_factory.mktemp(name), **more))
            for name, more in settings.items()
        }


async def answer(home: GatewayFixture, method: str, url: str, headers: dict[str, str]) -> tuple[int, str]:
    """The status, and the error's code or ""."""
    home.engine.forget()
    data = BODY if method == "POST" else None
    skip = ("content-type",)  # the client would name one
    async with home.client.request(
        method, url, data=data, headers=headers, skip_auto_headers=skip
    ) as response:
        raw = await response.read()
        if response.status < 400:
            return response.status, ""
        error = json.loads(raw)["error"]
        return response.status, error.get("code") or error["details"]["error_code"]


LOCAL: list[dict[str, str]] = [
    {},
    {"host": "localhost"},
    {"host": "localhost.:8080"},
    {"host": "127.8.9.10:1"},
    {"host": "[::1]:8080"},
    {"sec-fetch-site": "same-origin"},
    {"host": "localhost:8080", "origin": "http://localhost:8080", "sec-fetch-site": "same-origin"},
]
FOREIGN: list[tuple[dict[str, str], str]] = [
    ({"host": "evil.example"}, "host_not_allowed"),
    ({"host": "localhost.evil.example"}, "host_not_allowed"),
    ({"host": "127.0.0.1.nip.io"}, "host_not_allowed"),
    ({"host": "0.0.0.0"}, "host_not_allowed"),
    ({"host": "manners.example"}, "host_not_allowed"),
    ({"origin": EVIL}, "origin_not_allowed"),
    ({"origin": "null"}, "origin_not_allowed"),
    ({"host": "localhost:8080", "origin": "http://localhost:3000"}, "origin_not_allowed"),
    ({"sec-fetch-site": "cross-site"}, "origin_not_allowed"),
    ({"sec-fetch-site": "same-origin, cross-site"}, "origin_not_allowed"),
    ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, "origin_not_allowed"),
]
PUBLIC = [("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("GET", "/healthz"), ("GET", "/readyz")]
ADMIN = ["/metrics", "/healthz", "/admin/ui", "/admin/status"]


@pytest.mark.parametrize("headers", LOCAL, ids=str)
async def test_programs_of_this_machine_are_served(
    houses: dict[str, GatewayFixture], headers: dict[str, str]
) -> None:
    home = houses["open"]
    for method, path in PUBLIC:
        assert await answer(home, method, home.url + path, {**JSON, **headers}) == (200, "")
    for path in ADMIN:
        token = {"authorization": f"Bearer {TOKEN}"}
        assert await answer(home, "GET", home.admin + path, {**token, **headers}) == (200, "")


@pytest.mark.parametrize(("headers", "code"), FOREIGN, ids=str)
async def test_websites_are_not(
    houses: dict[str, GatewayFixture], headers: dict[str, str], code: str
) -> None:
    """Whatever they ask for, on either listener, also with the right token; no engine hears of it."""
    home = houses["open"]
    for method, path in PUBLIC:
        assert await answer(home, method, home.url + path, {**JSON, **headers}) == (403, code), path
    for path in ADMIN:
        if "sec-fetch-mode" in headers and path == "/admin/ui":
            continue
        token = {"authorization": f"Bearer {TOKEN}"}
        assert await answer(home, "GET", home.admin + path, {**token, **headers}) == (403, code), path
    assert home.engine.requests == []


async def test_refusals_are_counted(houses: dict[str, GatewayFixture]) -> None:
    home = houses["open"]
    before = await home.metrics()
    await answer(home, "GET", home.url + "/healthz", {"host": "evil.example"})
    await answer(home, "POST", home.url + "/v1/messages", {})
    await answer(home, "GET", home.admin + "/metrics", {"origin": EVIL})
    after = await home.metrics()
    for listener, code in [
        ("public", "host_not_allowed"),
        ("public", "unsupported_media_type"),
        ("admin", "origin_not_allowed"),
    ]:
        labels = {"listener": listener, "code": code}
        name = "manners_unreadable_total"
        assert after(name, **labels) - before(name, **labels) == 1


async def test_a_link_may_lead_to_the_console(houses: dict[str, GatewayFixture]) -> None:
    """Its page says nothing by itself, and operators keep it in their wikis."""
    home = houses["open"]
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert await answer(home, "GET", home.admin + "/admin/ui", headers) == (200, "")


MEDIA_TYPES = [
    (None, 415),
    ("text/plain", 415),
    ("text/plain; application/json", 415),
    ("application/x-www-form-urlencoded", 415),
    ("application/jsonx", 415),
    ("application/json", 200),
    ("Application/JSON;charset=UTF-8", 200),
]


@pytest.mark.parametrize(("media_type", "status"), MEDIA_TYPES)
async def test_without_keys_a_body_is_declared_as_json(
    houses: dict[str, GatewayFixture], media_type: str | None, status: int
) -> None:
    """Any other type a page may send unasked."""
    home = houses["open"]
    headers = {} if media_type is None else {"content-type": media_type}
    for path in ("chat/completions", "messages", "responses", "completions", "embeddings"):
        said, _ = await answer(home, "POST", f"{home.url}/v1/{path}", headers)
        assert (said == 415) == (status == 415)


@pytest.mark.parametrize("headers", [headers for headers, _ in FOREIGN], ids=str)
async def test_with_a_key_any_host_may_come(
    houses: dict[str, GatewayFixture], headers: dict[str, str]
) -> None:
    """Behind a proxy `Host` is the proxy's; a page that has the key may use it."""
    home = houses["keyed"]
    key = {"authorization": f"Bearer {KEY}"}
    for method, path in PUBLIC:
        assert await answer(home, method, home.url + path, {**key, **headers}) == (200, "")
    assert (await answer(home, "GET", home.admin + "/metrics", headers))[0] in (200, 403)


async def test_metrics_need_no_token_and_so_a_host_of_ours(houses: dict[str, GatewayFixture]) -> None:
    """On the operators' listener on loopback, keys or not."""
    url = houses["keyed"].admin + "/metrics"
    for host in ("evil.example", "192.168.1.2"):
        assert await answer(houses["keyed"], "GET", url, {"host": host}) == (403, "host_not_allowed")


async def test_on_a_network_any_host_may_ask_for_metrics(houses: dict[str, GatewayFixture]) -> None:
    """Prometheus scrapes by the name of a service."""
    home = houses["network"]
    assert await answer(home, "GET", home.admin + "/metrics", {"host": "gateway:8081"}) == (200, "")


async def test_a_configured_name_is_ours(houses: dict[str, GatewayFixture]) -> None:
    home = houses["named"]
    site = {"host": "manners.example", "origin": "https://manners.example"}
    for headers in ({"host": "MANNERS.example:443"}, site, {"origin": "https://manners.example"}):
        assert await answer(home, "GET", home.url + "/v1/models", headers) == (200, "")
    other = {"host": "manners.example", "origin": EVIL}
    assert await answer(home, "GET", home.url + "/v1/models", other) == (403, "origin_not_allowed")


@pytest.mark.parametrize(
    ("coding", "status"), [("gzip", 415), ("br", 415), ("identity, gzip", 415), ("identity", 200), ("", 200)]
)
@pytest.mark.parametrize("name", ["open", "keyed"])
async def test_a_compressed_body_is_refused(
    houses: dict[str, GatewayFixture], name: str, coding: str, status: int
) -> None:
    """On both listeners, with keys and without: it would unpack to any size."""
    home = houses[name]
    key = {"authorization": f"Bearer {KEY}"} if name == "keyed" else {}
    sent = {**JSON, **key, "content-encoding": coding}
    said, code = await answer(home, "POST", home.url + "/v1/chat/completions", sent)
    assert (said, code) == (status, "unsupported_content_encoding" if status == 415 else "")
    token = {"authorization": f"Bearer {TOKEN}"}
    _, code = await answer(home, "POST", home.admin + "/admin/reports", {**sent, **token})
    assert (code == "unsupported_content_encoding") is (status == 415)
