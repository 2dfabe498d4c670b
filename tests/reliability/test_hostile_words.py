"""Harm in what a request says: paths, URLs in bodies, and secrets that must stay where they are."""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.access.keys import KeyRing, digest
from tests.app.house import HELLO, TOKEN, GatewayFixture, house
from tests.reliability.wire import Wire, post, statuses

pytestmark = [pytest.mark.reliability, pytest.mark.asyncio(loop_scope="module")]

KEY = "canary-key-of-a-caller"
CANARY = "canary-word-of-a-caller"
CLOSE = "Connection: close"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """A gateway with a key."""
    async with house(tmp_path_factory.mktemp("state"), keys=(KEY,)) as it:
        yield it


async def get(url: str, target: str, *headers: str, host: str = "localhost") -> bytes:
    """GET exactly this target: no client puts it right."""
    wire = await Wire.to(url)
    await wire.send(
        "\r\n".join([f"GET {target} HTTP/1.1", f"Host: {host}", CLOSE, *headers, "", ""]).encode("latin-1")
    )
    return await wire.rest()


TRICKS = [
    "/admin/status", "/metrics", "//admin/status", "/%61dmin/status", "/admin%2fstatus", "/ADMIN/status",
    "/v1/../admin/status", "/v1/%2e%2e/admin/status", "/v1/models/../../admin/status", "/./admin/status",
    "/admin/status/", "/admin/status;x", "/admin/status?x=/v1", "/v1/models/..%2f..%2fadmin%2fstatus",
    "/v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/v1/models/....//....//etc/passwd", "/v1/models/%00",
    "/v1/models/annie%00", "/v1/models/%ff%fe", "/v1/models/" + "a" * 20_000, "/admin/reports/..%2f..%2fadmin.token",
    "/static/../admin.token", "http://localhost/admin/status", "/console", "/docs", "/redoc", "/admin/openapi.json",
]  # fmt: skip


@pytest.mark.parametrize("token", [KEY, TOKEN])
@pytest.mark.parametrize("target", TRICKS)
async def test_no_path_leads_from_the_public_listener_to_the_operators(
    home: GatewayFixture, target: str, token: str
) -> None:
    """Whoever asks, with whatever key: there is nothing, in the envelope."""
    raw = await get(home.url, target, f"Authorization: Bearer {token}")
    (status,) = statuses(raw)
    assert status in (400, 401, 404), raw[:200]
    assert status != 401 or token == TOKEN  # under /v1 the operators' token is no key
    assert json.loads(raw.partition(b"\r\n\r\n")[2])["error"]["code"]
    assert b"root:" not in raw and TOKEN.encode() not in raw


@pytest.mark.parametrize("target", TRICKS)
async def test_no_path_gets_past_the_operators_token(home: GatewayFixture, target: str) -> None:
    """On their own listener, without the token, nothing but health, metrics and the console's files."""
    raw = await get(home.admin, target, f"Authorization: Bearer {KEY}")
    (status,) = statuses(raw)
    if target != "/metrics":
        assert status in (400, 401, 404), raw[:200]
    assert b'"live"' not in raw and b"root:" not in raw


@pytest.mark.parametrize("name", ["..%2f..%2fadmin.token", "%2e%2e", "sha256:" + "0" * 64, "%00", "a" * 5000])
@pytest.mark.parametrize("where", ["/admin/reports/", "/admin/operations/"])
async def test_a_name_is_looked_up_and_is_no_path(home: GatewayFixture, where: str, name: str) -> None:
    """An operator's own typing mistake opens no file either."""
    raw = await get(home.admin, where + name, f"Authorization: Bearer {TOKEN}")
    assert list(statuses(raw)) == [404]
    assert TOKEN.encode() not in raw


@asynccontextmanager
async def trap() -> AsyncIterator[tuple[str, list[str]]]:
    """A server that nobody should ask, and who did."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode("latin-1"))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/trap", asked
    finally:
        server.close()


def bodies(url: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """A URL in every field where some API takes one."""
    chat, messages, responses = "/v1/chat/completions", "/v1/messages", "/v1/responses"

    def user(*parts: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"role": "user", "content": list(parts)}]

    source = {"type": "url", "url": url}
    hello: dict[str, Any] = {"messages": HELLO}
    return {
        "an image": (chat, {"messages": user({"type": "image_url", "image_url": {"url": url}})}),
        "an image beside text": (chat, {"messages": user({"type": "text", "text": "Hi", "image_url": url})}),
        "a sound": (chat, {"messages": user({"type": "input_audio", "input_audio": {"url": url}})}),
        "a file": (chat, {"messages": user({"type": "file", "file": {"file_url": url}})}),
        "a schema": (chat, {**hello, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": url}}}}),
        "a tool's schema": (chat, {**hello, "tools": [{"type": "function", "function": {"name": "x", "parameters": {"$ref": url}}}]}),
        "fields of nobody": (chat, {**hello, "url": url, "webhook": url, "callback_url": url, "proxy": url, "base_url": url}),
        "a model": (chat, {**hello, "model": url}),
        "a server of tools": (chat, {**hello, "tools": [{"type": "mcp", "server_url": url}]}),
        "an image of messages": (messages, {"max_tokens": 9, "messages": user({"type": "image", "source": source})}),
        "a document": (messages, {"max_tokens": 9, "messages": user({"type": "document", "source": source})}),
        "servers of tools": (messages, {"max_tokens": 9, **hello, "mcp_servers": [source]}),
        "an image of responses": (responses, {"input": user({"type": "input_image", "image_url": url})}),
        "a file of responses": (responses, {"input": user({"type": "input_file", "file_url": url})}),
        "tools of responses": (responses, {"input": "Hi", "tools": [{"type": "mcp", "server_label": "x", "server_url": url}]}),
        "a prompt": ("/v1/completions", {"prompt": url}),
        "an input": ("/v1/embeddings", {"input": url}),
    }  # fmt: skip


@pytest.mark.parametrize("name", bodies(""))
async def test_no_url_in_a_body_is_fetched(home: GatewayFixture, name: str) -> None:
    """It is refused, or it is text and goes to the engine as such: the gateway asks engines only."""
    async with trap() as (url, asked):
        path, body = bodies(url)[name]
        data = post({"model": "annie", **body}, f"Authorization: Bearer {KEY}", CLOSE, path=path)
        wire = await Wire.to(home.url)
        await wire.send(data)
        (status,) = statuses(await wire.rest())
        assert status in (200, 400, 404, 502), status  # 502: the scripted engine has no embeddings
        assert asked == []
    home.engine.forget()


async def test_no_header_sends_a_request_elsewhere(home: GatewayFixture) -> None:
    """Host, forwarding headers and an absolute target are words of a caller's."""
    async with trap() as (url, asked):
        host = url.split("/")[2]
        headers = [f"X-Forwarded-Host: {host}", f"Forwarded: host={host}", f"X-Original-URL: {url}"]
        raw = await get(home.url, url, f"Authorization: Bearer {KEY}", *headers, host=host)
        assert list(statuses(raw)) == [404]
        data = post({"model": "annie", "messages": HELLO}, f"Authorization: Bearer {KEY}", CLOSE, *headers)
        wire = await Wire.to(home.url)
        await wire.send(data.replace(b"Host: localhost", b"Host: " + host.encode(), 1))
        assert list(statuses(await wire.rest())) == [200]
        assert asked == []
    home.engine.forget()


LEAKS = [
    f"GET /{CANARY} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    f"{CANARY} / HTTP/1.1\r\n\r\n",
    f"GET / HTTP/1.1\r\nauthorization : Bearer {CANARY}\r\n\r\n",
    f"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {CANARY}\r\nconnection: close\r\n\r\n",
    f"GET /v1/models?api_key={CANARY} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {KEY}\r\nconnection: close\r\n\r\n",
    f"GET /admin/{CANARY} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n",
    f"POST /admin/promote HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\ncontent-length: {len(CANARY) + 13}\r\n\r\n"
    + json.dumps({"model": CANARY}),
    f"GET /healthz HTTP/1.1\r\nx: {CANARY * 2000}\r\n\r\n",
]  # fmt: skip


async def test_no_secret_and_no_word_is_written_down(home: GatewayFixture) -> None:
    """Well or badly formed, on either listener, let in or not: neither log nor metrics nor state tell."""
    for url in (home.url, home.admin):
        for request in LEAKS:
            wire = await Wire.to(url)
            await wire.send(request.encode() + b"\r\n\r\n")
            await wire.rest()
    state = Path(home.gateway.config.gateway.state)
    files = [path.read_bytes() for path in state.rglob("*") if path.is_file()]
    scraped = (await home.get(home.admin + "/metrics")).raw
    for written in (home.log.getvalue(), scraped, *files):
        for secret in (KEY, CANARY, TOKEN):
            assert secret.encode() not in written


async def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However early the right one is found, and on digests of one length."""
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def noted(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    ring = KeyRing({digest(key): key for key in ("first", "second", "third")})
    monkeypatch.setattr("app.access.keys.hmac.compare_digest", noted)
    ring.check("Bearer first")
    assert compared == [(64, 64)] * 3
