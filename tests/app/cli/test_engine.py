"""`manners engine list` and `manners engine check`: what there is, and whether it behaves, by exit code."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import structlog

import app.conformance.suite as suite
from app.__main__ import main
from app.conformance.checks import CANCEL, CHECKS, NO_THOUGHT, SUM, THINKING, Check, Want, ask, user
from app.conformance.suite import CheckOutcome
from deploy.engine.dialects import DIALECTS
from tests.script import reply
from tests.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def log_settings() -> Any:
    """Put back."""
    outer = structlog.get_config()
    yield
    structlog.configure(**outer)


async def manners(*args: str) -> int:
    """The command, which has an event loop of its own."""
    return await asyncio.to_thread(main, list(args))


async def test_the_list_names_every_engine_and_who_uses_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a file, of the embedded default; nothing is started for it."""
    assert await manners("engine", "list") == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if "embedded" in line}
    assert lines.keys() == {
        "annie-nano", "annie-nano-bf16", "annie-nano-nvfp4", "annie-nano-thin-ptq", "stranger-nano",
    }  # fmt: skip
    assert lines["annie-nano"].split()[:5] == ["annie-nano", "embedded", "llama-server", "chat", "qwen"]
    assert lines["annie-nano"].split()[-1].endswith("models/annie-nano-q4_k_m")


@pytest_asyncio.fixture(loop_scope="module")
async def checked(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedEngine]:
    """An engine that always says the same, and a suite of two rows and a cancel that all is well with."""

    async def free(it: suite.ConformanceSession) -> CheckOutcome:
        return CheckOutcome(CANCEL, True)

    rows = tuple(
        Check(name, (ask(user("Hi")), ask(user("Hi"), stream=False)), Want(lacks=words))
        for name, words in (("a greeting", "Hm."), ("thinking on", "there."))
    )
    monkeypatch.setattr(suite, "CHECKS", rows)
    monkeypatch.setattr(suite, "run_cancel", free)
    async with ScriptedEngine() as engine:
        engine.always(*reply("Hello ", "there."))
        yield engine


async def test_a_row_that_is_wrong_is_shown_with_its_reason_and_code_1(
    checked: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await manners("engine", "check", checked.url, "--dialect", "vllm") == 1
    title, *lines, counts = capsys.readouterr().out.splitlines()
    assert title.startswith(f"{checked.url}, vllm, scripted")
    rows = [
        line.split() for line in lines if line.split()[-1:] != ["why"] and "─" not in line and line.strip()
    ]
    assert rows[0] == ["a", "greeting", "yes"]
    assert rows[1][:3] == ["thinking", "on", "no"] and rows[1][-1] == "there.'"
    assert counts == "3 rows: 2 yes, 0 gap, 1 no"


async def test_a_known_gap_is_shown_and_is_no_failure(
    checked: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    """As JSON; the model's name is the one that was given, and it is asked for."""
    assert await manners("engine", "check", f"{checked.url}/v1/", "--model", "far-9b", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    about = [told[key] for key in ("url", "dialect", "model", "build")]
    assert about == [checked.url, "openai", "far-9b", None]
    assert told["rows"] == [
        {"name": "a greeting", "heard": "yes", "why": ""},
        {"name": "thinking on", "heard": "gap", "why": DIALECTS["openai"].gaps["thinking on"]},
        {"name": CANCEL, "heard": "yes", "why": ""},
    ]
    assert {seen.body["model"] for seen in checked.requests} == {"far-9b"}


@pytest.mark.parametrize(("said", "asked"), [("Hello.", 4), ("<think>Hm.", 6)])
async def test_a_model_that_does_not_think_is_no_failure_and_is_not_asked_again(
    checked: ScriptedEngine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: str,
    asked: int,
) -> None:
    """A model whose thought does not end is asked with budgets, too: a budget can end the thought. Each row is printed at its end."""
    rows = [check for check in CHECKS if check.name in (THINKING, "thinking budget 8")]
    monkeypatch.setattr(suite, "CHECKS", rows)
    checked.always(*reply(said, reason="stop" if said == "Hello." else "length"))
    code = await manners("engine", "check", checked.url, "--dialect", "vllm", "--json")
    out, err = capsys.readouterr()
    assert (code, out.count(f"the model: {NO_THOUGHT}")) == ((0, 2) if said == "Hello." else (0, 0))
    assert sum(json.dumps(SUM["content"]) in json.dumps(seen.body) for seen in checked.requests) == asked
    assert "thinking budget 8" in err
