"""Callers' keys in a running gateway: limits, budgets, usage; added, revoked and remembered."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.access import records
from app.access.keys import MAX_KEYS
from app.access.service import AccessService
from app.errors.tree import StateUnavailable
from app.registry.registry import Registry, RegistryReader
from app.registry.values import Meter
from tests.app.house import TOKEN, Answer, GatewayFixture, config, eventually, house, run
from tests.script import DONE, Hang, Head, Say, Step, Until, event, finish, text, thought
from tests.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")


def counted(prompt: int, completion: int, cached: int = 0) -> tuple[Step, ...]:
    """A reply whose engine counts so many tokens."""
    found = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    shared = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    told = event({**shared, "choices": [], "usage": found})
    return (Head(), Say(text("Hello.")), Say(finish()), Say(told), Say(DONE))


async def operate(
    home: GatewayFixture, method: str, path: str, body: Any = None, token: str = TOKEN
) -> Answer:
    """One request to the operators' API."""
    headers = {"authorization": f"Bearer {token}"}
    async with home.client.request(method, home.admin + path, json=body, headers=headers) as response:
        heads = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, heads, await response.read())


async def add(home: GatewayFixture, name: str, **limits: int) -> dict[str, str]:
    """A new key, as the header of a caller."""
    answer = await operate(home, "POST", "/admin/keys", {"name": name, **limits})
    assert answer.status == 201
    return {"authorization": f"Bearer {answer.json['key']}"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """A gateway with one key of the configuration."""
    async with house(tmp_path_factory.mktemp("state"), keys=("configured",)) as it:
        yield it


async def test_a_key_opens_at_once_and_after_its_revocation_no_more(home: GatewayFixture) -> None:
    key = await add(home, "kitchen")
    assert (await home.ask(headers=key)).status == 200
    assert (await home.booked())["key"] == "kitchen"
    answer = await operate(home, "DELETE", "/admin/keys/kitchen")
    assert answer.json["revoked"]
    refused = await home.ask(headers=key)
    assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
    again = await operate(home, "DELETE", "/admin/keys/kitchen")
    assert (again.status, again.error["code"]) == (404, "key_not_found")


async def test_a_key_of_the_configuration_keeps_working_and_has_a_name(home: GatewayFixture) -> None:
    assert (await home.ask(headers={"authorization": "Bearer configured"})).status == 200
    assert (await home.booked())["key"] == "key-1"


async def test_too_many_requests_are_told_which_limit_and_when_to_come_again(home: GatewayFixture) -> None:
    key = await add(home, "porch", rpm=2, tpm=10_000)
    answers = [await home.ask(headers=key) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 30
    error = answers[2].error
    assert (error["type"], error["code"]) == ("rate_limit_error", "key_rpm_exceeded")
    for _ in answers:
        line = await home.booked()
    assert (line["outcome"], line["code"], line["key"]) == ("limited", "key_rpm_exceeded", "porch")
    scrape = await home.metrics()
    assert scrape("manners_key_limited_total", key="porch", code="key_rpm_exceeded") == 1
    assert len(home.engine.requests) == 2


async def test_a_keys_requests_at_once_are_counted_until_each_is_over(home: GatewayFixture) -> None:
    go = asyncio.Event()
    key = await add(home, "study", concurrency=1)
    home.engine.play(Head(), Say(text("One")), Until(go), Say(finish()), Say(DONE))
    body = {"model": "annie", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    path = f"{home.url}/v1/chat/completions"
    async with home.client.post(path, json=body, headers=key) as streaming:
        await streaming.content.readany()
        refused = await home.ask(headers=key)
        assert (refused.status, refused.error["code"]) == (429, "key_concurrency_exceeded")
        go.set()
        await streaming.read()
    await home.booked()
    await home.booked()
    assert (await home.ask(headers=key)).status == 200
    await home.booked()


async def test_a_budget_ends_and_waiting_does_not_help(home: GatewayFixture) -> None:
    """The tokens are the engine's; clients of OpenAI and Anthropic are told not to repeat it."""
    key = await add(home, "guest", budget=30)
    home.engine.play(*counted(20, 11))
    assert (await home.ask(headers=key)).status == 200
    refused = await home.ask(headers=key)
    assert (refused.status, refused.error["code"]) == (429, "key_budget_exceeded")
    assert "retry-after" not in refused.headers
    assert refused.headers["x-should-retry"] == "false"
    (shown,) = [one for one in (await home.operate("/admin/keys")).json["keys"] if one["name"] == "guest"]
    assert shown["used"] == {"today": 31, "total": 31, "in_flight": 0}
    await home.booked()
    await home.booked()


async def test_usage_is_counted_by_key_and_model_and_logged(home: GatewayFixture) -> None:
    key = await add(home, "bath")
    home.engine.play(*counted(20, 11, cached=8))
    assert (await home.ask(headers=key)).status == 200
    line = await home.booked()
    assert (line["prompt_tokens"], line["completion_tokens"], line["cached_tokens"]) == (20, 11, 8)
    scrape = await home.metrics()
    labels = {"model": "annie", "key": "bath"}
    kinds = ("prompt", "completion", "cached")
    assert {kind: scrape("manners_tokens_total", kind=kind, **labels) for kind in kinds} == {
        "prompt": 20,
        "completion": 11,
        "cached": 8,
    }


WORDS = "five words in one piece "
PIECES = {
    "text": text(WORDS),
    "hidden reasoning": thought(WORDS),
    "no ASCII": text("\u4f60\u597d" * 4),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", PIECES)
async def test_who_hangs_up_pays_for_what_was_made(home: GatewayFixture, kind: str, stream: bool) -> None:
    """By its bytes: a piece may hold several tokens. Otherwise a budget is kept by nobody who leaves just before the end."""
    name = f"pieces{len(kind)}{stream}"
    key = await add(home, name, budget=10_000)
    home.engine.play(Head(), *(Say(PIECES[kind]) for _ in range(20)), Hang())
    body = home.body(stream=stream, reasoning_effort="high", max_tokens=2000)
    asking = asyncio.create_task(home.post("/v1/chat/completions", body, headers=key))
    await home.engine.request()
    await asyncio.sleep(0.3)
    asking.cancel()
    assert (await home.booked())["outcome"] == "client_cancel"
    assert 20 * 24 <= home.gateway.access.accounts.of(name).meter.total < 2 * 20 * 24


async def test_a_thought_without_a_budget_reserves_the_context(home: GatewayFixture) -> None:
    """Eight at once would each take the whole minute."""
    key = await add(home, "thinker", tpm=1000)
    go_on = asyncio.Event()
    home.engine.always(Head(), Until(go_on), Say(text("Yes.")), Say(finish()), Say(DONE))
    asked = len(home.engine.requests)
    first = asyncio.create_task(home.ask(headers=key, reasoning_effort="high"))
    await eventually(lambda: len(home.engine.requests) > asked)
    refused = await home.ask(headers=key, reasoning_effort="high")
    assert (refused.status, refused.error["code"]) == (429, "key_tpm_exceeded")
    go_on.set()
    assert (await first).status == 200
    await home.booked()
    await home.booked()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_who_hangs_up_before_the_first_token_pays_for_the_prompt(
    home: GatewayFixture, path: str
) -> None:
    """Otherwise an engine works for nothing on prompts whose caller never waits."""
    key = await add(home, f"early{len(path)}", budget=10_000)
    home.engine.play(Hang())
    prompt = "word " * 200
    body = {"model": "annie", "input": prompt, "messages": [{"role": "user", "content": prompt}]}
    body.pop("messages" if path == "/v1/embeddings" else "input")
    asked = len(home.engine.requests)
    asking = asyncio.create_task(home.post(path, body, headers=key))
    await eventually(lambda: len(home.engine.requests) > asked)
    asking.cancel()
    assert (await home.booked())["outcome"] == "client_cancel"
    assert 200 <= home.gateway.access.accounts.of(f"early{len(path)}").meter.total < 500


WRONG: list[dict[str, Any]] = [
    *({"name": name} for name in ("key-7", "anonymous", "a/b", "", "a" * 65)),
    *(
        {"name": "limitless", **limit}
        for limit in ({"rpm": 0}, {"budget": 1.5}, {"concurrency": "2"}, {"rpd": 1})
    ),
]


async def test_a_name_that_would_mislead_and_a_limit_that_is_none_are_refused(home: GatewayFixture) -> None:
    await add(home, "kitchen2")
    answer = await operate(home, "POST", "/admin/keys", {"name": "kitchen2"})
    assert (answer.status, answer.error["code"]) == (409, "name_taken")
    for body in WRONG:
        answer = await operate(home, "POST", "/admin/keys", body)
        assert (answer.status, answer.error["code"]) == (400, "invalid_value"), body


async def test_no_secret_is_kept_or_shown(tmp_path: Path) -> None:
    """Neither in the state folder, nor in lists, log or metrics; a key goes to no engine."""
    async with house(tmp_path, keys=("configured",)) as home:
        key = (await add(home, "kitchen"))["authorization"].removeprefix("Bearer ")
        made = await operate(home, "POST", "/admin/operators", {"name": "wanda", "role": "watch"})
        token = made.json["token"]
        for header in ({"authorization": f"Bearer {key}"}, {"x-api-key": key}):
            assert (await home.ask(headers=header)).status == 200
            await home.booked()
        assert (await operate(home, "GET", "/admin/status", token=token)).status == 200
        for asked in home.engine.requests:
            assert key.encode() not in asked.raw and key not in str(asked.headers)
        paths = ("/admin/keys", "/admin/operators", "/admin/audit", "/admin/status")
        seen = [(await home.operate(path)).raw for path in paths]
        seen += [(await home.get(home.admin + "/metrics")).raw, home.log.getvalue()]
        await home.gateway.access.flush()
        seen += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(secret.encode() in each for each in seen for secret in (key, token))


@pytest.mark.parametrize(("kind", "begin"), [("key", "sk"), ("operator", "op")])
async def test_a_made_secret_holds_256_random_bits(kind: records.Kind, begin: str) -> None:
    """Fewer would need a salt, and a slow digest."""
    made = [records.new_key(kind) for _ in range(9)]
    secrets = {base64.urlsafe_b64decode(each.removeprefix(f"{begin}-manners-") + "=") for each in made}
    assert len(secrets) == 9 and {len(secret) for secret in secrets} == {32}


@pytest.mark.parametrize("kind", ["key", "operator"])
async def test_there_is_a_most_of_keys_and_of_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """All are compared with what each request brings."""
    assert MAX_KEYS == 256
    monkeypatch.setattr(records, "MAX_KEYS", 2)
    async with house(tmp_path) as home:
        for name in ("a", "b", "c"):
            made = await operate(
                home,
                "POST",
                f"/admin/{kind}s",
                {"name": name, "role": "watch"} if kind == "operator" else {"name": name},
            )
            assert made.status == (409 if name == "c" else 201)
    assert made.error["code"] == f"too_many_{kind}s"


async def test_keys_limits_and_usage_survive_a_restart(tmp_path: Path) -> None:
    """What was used of the minute, too: a restart gives nothing away."""
    async with ScriptedEngine() as engine:
        settings = config(engine, tmp_path)
        async with run(settings, engine) as home:
            key = await add(home, "kitchen", rpm=1)
            engine.play(*counted(20, 11))
            assert (await home.ask(headers=key)).status == 200
        async with run(settings, engine) as home:
            assert (await home.ask(headers=key)).status == 429
            (shown,) = (await home.operate("/admin/keys")).json["keys"]
            assert shown["used"]["total"] == 31
            stranger = await home.ask(headers={"authorization": "Bearer other"})
            assert stranger.status == 401


async def test_the_last_revoked_key_does_not_open_the_listener(tmp_path: Path) -> None:
    """Nor does the next start: whoever revokes a key shuts somebody out."""
    async with ScriptedEngine() as engine:
        settings = config(engine, tmp_path)
        async with run(settings, engine) as home:
            assert (await home.ask()).status == 200
            await add(home, "kitchen")
            assert (await home.ask()).status == 401
            await operate(home, "DELETE", "/admin/keys/kitchen")
            assert (await home.ask()).status == 401
        async with run(settings, engine) as home:
            assert (await home.ask()).status == 401


async def test_usage_is_written_in_batches_and_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction for all keys; none for a request."""
    written: list[int] = []
    real = Registry.write_usage

    def noted(self: Registry, meters: Mapping[str, Meter]) -> None:
        if meters.keys() == {"a", "b"}:  # not the shared gateway's
            written.append(len(meters))
            if len(written) == 1:
                raise StateUnavailable("no")
        real(self, meters)

    monkeypatch.setattr(Registry, "write_usage", noted)
    monkeypatch.setattr("app.access.service.FLUSH_SECONDS", 1000)
    async with house(tmp_path) as home:
        for name in ("a", "b"):
            key = await add(home, name)
            for _ in range(3):
                assert (await home.ask(headers=key)).status == 200
        assert written == []
        await home.gateway.access.flush()
        await home.gateway.access.flush()
        await home.gateway.access.flush()
        assert written == [2, 2]
    with RegistryReader(tmp_path / "registry.db") as reader:
        assert list(reader.usages()) == ["a", "b"]


async def test_a_listener_for_others_is_closed_without_keys(tmp_path: Path) -> None:
    """Only a loopback address is open without any."""

    async def nothing(work: Any) -> Any:
        raise AssertionError

    far = config("http://127.0.0.1:9", tmp_path, gateway={"listen": "0.0.0.0:0"})
    near = config("http://127.0.0.1:9", tmp_path)
    assert AccessService(far, TOKEN, nothing).callers
    assert not AccessService(near, TOKEN, nothing).callers


async def test_a_reload_does_not_undo_a_change_that_comes_meanwhile(
    home: GatewayFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes what it reads of the registry in its last piece of work there, whatever comes before that."""
    promotions, keys = home.gateway.promotions, list[dict[str, str]]()
    do = promotions.do

    async def meanwhile(work: Any) -> Any:
        keys.append(await add(home, f"attic{len(keys)}"))
        return await do(work)

    monkeypatch.setattr(promotions, "do", meanwhile)
    assert (await operate(home, "POST", "/admin/reload")).status == 200
    for key in keys:
        assert (await home.ask(headers=key)).status == 200
        await home.booked()
