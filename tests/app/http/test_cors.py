"""CORS: pages of the sites that the operator names may read replies, and no others."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.app.house import GatewayFixture, house

pytestmark = pytest.mark.asyncio(loop_scope="module")

SITE, OTHER = "https://annie.example", "https://evil.example"
ASKS = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type",
}
ALLOWED = "access-control-allow-origin"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """With a key, and one site."""
    limits = {"cors_origins": [SITE]}
    async with house(tmp_path_factory.mktemp("state"), gateway=limits, keys=("secret",)) as it:
        yield it


async def options(url: str, client: Any, origin: str) -> Any:
    async with client.options(url, headers={"origin": origin, **ASKS}) as response:
        await response.read()
        return response


async def test_a_preflight_is_answered_without_a_key(home: GatewayFixture) -> None:
    """Browsers send none with it. The headers that the page wants to send are allowed."""
    answer = await options(f"{home.url}/v1/chat/completions", home.client, SITE)
    assert (answer.status, answer.headers[ALLOWED]) == (204, SITE)
    assert answer.headers["access-control-allow-headers"] == "authorization, content-type"
    assert answer.headers["access-control-allow-methods"] == "GET, POST"
    assert answer.headers["vary"] == "Origin" and "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("names", ["a" * 65, "x: y", ", ".join(["a"] * 65), "ü"])
async def test_other_names_of_headers_are_not_repeated(home: GatewayFixture, names: str) -> None:
    sent = {"origin": SITE, **ASKS, "access-control-request-headers": names}
    async with home.client.options(f"{home.url}/v1/models", headers=sent) as answer:
        assert "access-control-allow-headers" not in answer.headers


@pytest.mark.parametrize("stream", [True, False])
async def test_a_reply_may_be_read(home: GatewayFixture, stream: bool) -> None:
    """With its key; streamed and whole; and the headers that say what happened."""
    answer = await home.ask(headers={"origin": SITE, "authorization": "Bearer secret"}, stream=stream)
    assert (answer.status, answer.headers[ALLOWED], answer.text) == (200, SITE, "Hello there.")
    assert "x-manners-engine" in answer.headers["access-control-expose-headers"]


async def test_a_refusal_may_be_read(home: GatewayFixture) -> None:
    """A page without a key learns that it needs one."""
    answer = await home.ask(headers={"origin": SITE})
    assert (answer.status, answer.headers[ALLOWED]) == (401, SITE)


@pytest.mark.parametrize("origin", [OTHER, SITE + ".evil.example", "null", SITE.upper(), SITE + ":8443"])
async def test_no_other_site_may_read(home: GatewayFixture, origin: str) -> None:
    """Neither a reply nor what a preflight would allow."""
    answer = await home.ask(headers={"origin": origin, "authorization": "Bearer secret"})
    assert ALLOWED not in answer.headers
    preflight = await options(f"{home.url}/v1/chat/completions", home.client, origin)
    assert preflight.status == 401 and ALLOWED not in preflight.headers


async def test_the_operators_listener_never_shares(home: GatewayFixture) -> None:
    assert ALLOWED not in (await options(f"{home.admin}/admin/status", home.client, SITE)).headers
    assert ALLOWED not in (await home.get(home.admin + "/metrics", {"origin": SITE})).headers


async def test_a_listener_without_keys_takes_the_sites_requests(tmp_path: Path) -> None:
    """Those of the named site, under a name of this machine; no other site's."""
    async with house(tmp_path, gateway={"cors_origins": [SITE]}) as home:
        cross = {"sec-fetch-site": "cross-site"}
        assert (await home.ask(headers={"origin": SITE, **cross})).status == 200
        assert (await home.ask(headers={"origin": OTHER, **cross})).error["code"] == "origin_not_allowed"
        rebound = await home.ask(headers={"origin": SITE, "host": "evil.example"})
        assert rebound.error["code"] == "host_not_allowed"


async def test_it_is_off_by_default(tmp_path: Path) -> None:
    async with house(tmp_path, keys=("secret",)) as home:
        answer = await home.ask(headers={"origin": SITE, "authorization": "Bearer secret"})
        assert answer.status == 200 and ALLOWED not in answer.headers
