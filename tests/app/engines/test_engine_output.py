"""What an engine says while it is started, probed and watched reaches operators at most: no log, no caller."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.app.house import GatewayFixture, config, configured, nano, run
from tests.app.proxy.test_request_faults import attack, chokes
from tests.deploy.scripted import OK, Step, answer, scripted
from tests.scale import PATIENCE
from tests.script import Head, Say, event, status
from tests.scripted_engine import ScriptedEngine

WORD = "kumquat-7"
NEVER_UP: dict[str, list[Step]] = {
    "a status": [answer(b"500 Oops", WORD.encode())],
    "a refusal": [answer(b"401 No", WORD.encode())],
    "a stream": [OK, b'data: {"error":{"message":"%b"}}\n\n' % WORD.encode()],
    "no HTTP": [WORD.encode() + b"\r\n\r\n"],
    "a redirect": [answer(b"302 Found\r\nlocation: http://127.0.0.1:9/" + WORD.encode())],
}
MODELS_LIST = [answer(b"200 OK", b'{"data":[{"id":"m"}]}')]


@pytest.mark.parametrize("script", NEVER_UP.values(), ids=NEVER_UP.keys())
async def test_of_an_engine_that_does_not_come_up(tmp_path: Path, script: list[Step]) -> None:
    async with (
        ScriptedEngine() as unused,
        scripted(MODELS_LIST, script) as broken,
        run(config(broken.url, tmp_path), unused, ready=False) as home,
    ):
        line = await home.log.until(1, "engine_down")
        assert (line["engine"], line["error"]) == ("scripted", "StartTimeout")
        assert (await home.ask()).error["code"] == "no_engine"
        await _says_nothing(home)
        (engine,) = (await home.operate("/admin/engines")).json["engines"]
        assert engine["state"] == "failed" and "does not stream" in engine["last_error"]


PROBES: dict[str, Any] = {
    "a status": status(500, WORD.encode()),
    "a stream": (Head(), Say(event({"error": {"message": WORD}}))),
}


@pytest.mark.parametrize("probes", PROBES.values(), ids=PROBES.keys())
async def test_of_one_that_fails_its_probe(tmp_path: Path, probes: Any) -> None:
    async with ScriptedEngine() as engine, run(config(engine, tmp_path), engine) as home:
        engine.probes = probes
        chokes(engine, status(500))
        await attack(home)
        await home.log.until(1, "breaker")
        assert (await home.ask()).error["code"] == "no_engine"
        await _says_nothing(home)


@pytest.mark.engine
async def test_of_a_child_that_refuses_its_model(tmp_path: Path) -> None:
    """llama.cpp's own words, with the path, are in its log and in the operators' answer."""
    (tmp_path / f"{WORD}.gguf").write_bytes(b"GGUF" + b"\0" * 64)
    made = configured(tmp_path / "state", {"nano": nano(tmp_path / f"{WORD}.gguf")}, annie={"live": "nano"})
    async with run(made, ready=False) as home:
        async with asyncio.timeout(PATIENCE):
            await home.log.until(1, "engine_down")
        assert (await home.ask()).error["code"] == "no_engine"
        await _says_nothing(home)


async def _says_nothing(home: GatewayFixture) -> None:
    seen = home.log.getvalue() + (await home.ask()).raw + (await home.get(home.admin + "/metrics")).raw
    assert WORD.encode() not in seen
