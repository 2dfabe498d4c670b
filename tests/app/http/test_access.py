"""Who may come in: callers by key, operators by token, and strangers nowhere."""

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from app.access.keys import KeyRing, admin_token, digest
from app.errors.tree import Unauthorized
from tests.app.house import HELLO, TOKEN, Answer, GatewayFixture, house

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRONG: dict[str, str | None] = {
    "nothing": None,
    "another key": "Bearer key-3",
    "another scheme": "Basic key-1",
    "no scheme": "key-1",
    "an empty key": "Bearer  ",
    "the operators' token": f"Bearer {TOKEN}",
    "no text": "Bearer \xff\xfe",
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """A gateway with two keys."""
    async with house(tmp_path_factory.mktemp("state"), keys=("key-1", "key-2")) as it:
        yield it


async def fetch(home: GatewayFixture, method: str, url: str, authorization: str | None) -> Answer:
    """One request with this header, as bytes: nothing puts it right."""
    headers = {} if authorization is None else {"authorization": authorization}
    body = {"model": "annie", "messages": HELLO} if method == "POST" else None
    async with home.client.request(method, url, json=body, headers=headers) as response:
        heads = {k.lower(): v for k, v in response.headers.items()}
        return Answer(response.status, heads, await response.read())


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("GET", "/v1/x")]
)
async def test_without_a_right_key_the_public_listener_says_no(
    home: GatewayFixture, name: str, method: str, path: str
) -> None:
    """401, the envelope, and how to do it right; whether the path exists is not told."""
    answer = await fetch(home, method, home.url + path, WRONG[name])
    error = answer.error
    code = (
        "invalid_api_key"
        if (WRONG[name] or "").startswith("Bearer ") and name != "an empty key"
        else "missing_api_key"
    )
    assert (answer.status, error["type"], error["code"]) == (401, "authentication_error", code)
    assert (await home.metrics())("manners_unauthorized_total", listener="public") >= 1
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["x-request-id"]
    assert home.engine.requests == []


@pytest.mark.parametrize("authorization", ["Bearer key-1", "Bearer key-2", "bearer key-1", "BEARER  key-2 "])
async def test_any_of_the_keys_opens(home: GatewayFixture, authorization: str) -> None:
    """The scheme's case and stray blanks do not matter; the key goes no further."""
    answer = await fetch(home, "POST", home.url + "/v1/chat/completions", authorization)
    assert (answer.status, answer.text) == (200, "Hello there.")
    sent = (await home.engine.request()).headers
    assert "authorization" not in sent
    assert not any("key-" in value for value in sent.values())


async def test_health_needs_no_key(home: GatewayFixture) -> None:
    """Whoever watches the process holds no keys."""
    assert (await home.get(home.url + "/healthz")).status == 200
    assert (await home.get(home.url + "/readyz")).json == {"status": "ready", "ungated": ["annie"]}
    assert (await home.get(home.url + "/health")).json == {"status": "ok"}


async def test_a_wrong_method_is_told_all_that_the_path_takes(home: GatewayFixture) -> None:
    answer = await fetch(home, "PATCH", home.admin + "/admin/overrides", f"Bearer {TOKEN}")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, POST")


@pytest.mark.parametrize("path", ["/admin/status", "/admin/engines", "/admin/nothing", "/admin/promote"])
async def test_the_operators_listener_needs_their_token(home: GatewayFixture, path: str) -> None:
    """A caller's key is no operator's."""
    for authorization in (None, "Bearer key-1", "Bearer wrong", f"Basic {TOKEN}"):
        answer = await fetch(home, "GET", home.admin + path, authorization)
        assert (answer.status, answer.error["type"]) == (401, "authentication_error")
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_ring_does_not_hold_its_keys() -> None:
    """A dump of the process's objects shows digests."""
    ring = KeyRing({digest("secret-key"): "key-1"})
    assert "secret" not in repr(vars(ring))
    ring.check("Bearer secret-key")
    with pytest.raises(Unauthorized):
        ring.check("Bearer secret-kez")


async def test_a_right_key_opens_in_either_header_and_a_wrong_one_in_none() -> None:
    ring = KeyRing({digest("first"): "key-1", digest("stored"): "annie"})
    for key, name in (("stored", "annie"), ("first", "key-1")):
        assert ring.check(f"Bearer {key}") == name
        assert ring.check(None, key) == name
    for wrong in ("firs", "first ones", "", "stored\0"):
        with pytest.raises(Unauthorized):
            ring.check(f"Bearer {wrong}")
    # Of two, the right one.
    assert ring.check("Bearer wrong", "first") == "key-1"


async def test_the_operators_token_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    """Mode 600 whatever the umask, and the same at the next start."""
    state = tmp_path / "deep" / "state"
    token, path = admin_token(None, state)
    assert path is not None and path.parent == state
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) >= 32
    assert admin_token(None, state) == (token, path)
    assert admin_token(None, tmp_path / "other")[0] != token


async def test_a_token_that_others_can_open_is_refused_with_the_cure(tmp_path: Path) -> None:
    _, path = admin_token(None, tmp_path)
    assert path is not None
    path.chmod(0o666)
    with pytest.raises(PermissionError, match=r"mode 666.*chmod 600"):
        admin_token(None, tmp_path)
