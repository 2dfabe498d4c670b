"""Images and sounds: handed to an engine that takes them, refused by name where none does, and never fetched."""

import base64
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticCustomError

from app.api.chat_request import _encoded
from deploy.engine.samples import SAMPLES
from tests.app.access.test_keys_live import add
from tests.app.house import HELLO, NEVER, config, configured, eventually, house, run
from tests.script import status
from tests.scripted_engine import ScriptedEngine

SEEN, PLAYED = SAMPLES["image"], SAMPLES["audio"]
URL = SEEN["image_url"]["url"]
PNG, WAV = URL.partition(",")[2], PLAYED["input_audio"]["data"]
ASK = {"type": "text", "text": "What do you make of it?"}
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"


def turn(*parts: Any, role: str = "user") -> list[dict[str, Any]]:
    """One turn of these parts."""
    return [{"role": role, "content": list(parts)}]


def body(path: str, turns: list[Any]) -> dict[str, Any]:
    """The smallest request of a surface with these turns."""
    more = {CHAT: {}, MESSAGES: {"max_tokens": 9}, RESPONSES: {}}[path]
    return {"model": "annie", ("input" if path == RESPONSES else "messages"): turns, **more}


LOOKED_AT: dict[str, tuple[str, list[Any], list[Any]]] = {
    "chat": (CHAT, turn(ASK, SEEN), turn(ASK, SEEN)),
    "chat, a sound first": (CHAT, turn(PLAYED, ASK), turn(PLAYED, ASK)),
    "chat, a tool's": (
        CHAT,
        [*HELLO, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c", "content": [SEEN]}],
        [{"role": "tool", "content": [SEEN], "tool_call_id": "c"}],
    ),
    "messages": (MESSAGES, turn({"type": "text", "text": "What do you make of it?"}, BLOCK), turn(ASK, SEEN)),
    "messages, a tool's": (
        MESSAGES,
        [
            *HELLO,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [BLOCK]}]},
        ],
        [{"role": "tool", "content": [SEEN], "tool_call_id": "c"}],
    ),
    "responses": (RESPONSES, turn({"type": "input_text", "text": "What do you make of it?"}, {"type": "input_image", "image_url": URL}), turn(ASK, SEEN)),
    "responses, a tool's": (
        RESPONSES,
        [
            {"role": "user", "content": "Look."},
            {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_image", "image_url": URL, "detail": "low"}],
            },
        ],
        [{"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url", "image_url": {"url": URL, "detail": "low"}}]}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKED_AT)
async def test_an_engine_that_takes_it_gets_it_as_it_came(tmp_path: Path, name: str) -> None:
    path, turns, sent = LOOKED_AT[name]
    async with house(tmp_path, media=["image", "audio"]) as home:
        answer = await home.post(path, body(path, turns))
        assert answer.status == 200, answer.raw
        (seen,) = home.engine.requests
        assert seen.body["messages"][-1:] == sent


@pytest.mark.parametrize("name", LOOKED_AT)
async def test_where_no_engine_takes_it_the_caller_is_told_what(tmp_path: Path, name: str) -> None:
    path, turns, _ = LOOKED_AT[name]
    async with house(tmp_path) as home:
        answer = await home.post(path, body(path, turns))
        assert answer.status == 400 and not home.engine.requests
        assert b"unsupported_content" in answer.raw
        assert (b"takes sounds" if "sound" in name else b"takes images") in answer.raw


@pytest.mark.parametrize("dialect, says", [("llama-server", True), ("vllm", True), ("openai", False)])
async def test_engines_that_can_tell_need_no_word_in_the_configuration(
    tmp_path: Path, dialect: str, says: bool
) -> None:
    async with ScriptedEngine() as engine:
        engine.answers = {
            "/props": {"default_generation_settings": {"n_ctx": 512}, "modalities": {"vision": True}}
        }
        engine.answers["image"] = status(200, {"choices": [{}]})
        async with run(config(engine, tmp_path, dialect=dialect), engine) as home:
            assert (await home.post(CHAT, body(CHAT, turn(SEEN)))).status == (200 if says else 400)


WRONG: dict[str, tuple[str, list[Any], str, str]] = {
    "an address": (CHAT, turn({"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}), "unsupported_content", "no address is fetched"),
    "no base64": (CHAT, turn({"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}}), "invalid_value", "must be base64"),
    "other letters": (CHAT, turn({"type": "image_url", "image_url": {"url": "data:image/png;base64,ಕನ್ನಡ"}}), "invalid_value", "must be base64"),
    "a system's": (CHAT, [*turn(SEEN, role="system"), *HELLO], "unsupported_content", "not from system"),
    "an assistant's": (CHAT, [*HELLO, *turn(SEEN, role="assistant"), *HELLO], "unsupported_content", "not from assistant"),
    "Anthropic, an address": (MESSAGES, turn({"type": "image", "source": {"type": "url", "url": "http://x"}}), "unsupported_content", "source.type"),
    "Anthropic, a document": (MESSAGES, turn({"type": "document", "source": {"type": "text", "data": "a"}}), "unsupported_content", "'document'"),
    "Anthropic, a system's": (MESSAGES, [*HELLO, *turn(BLOCK, role="assistant"), *HELLO], "unsupported_content", "not from assistant"),
    "Responses, a stored file": (RESPONSES, turn({"type": "input_image", "file_id": "f"}), "missing_field", "image_url"),
    "Responses, a document": (RESPONSES, turn({"type": "input_file", "file_data": "a"}), "unsupported_content", "'input_file'"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
async def test_what_cannot_be_handed_on_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path, turns, code, words = WRONG[name]
    async with house(tmp_path, media=["image", "audio"]) as home:
        answer = await home.post(path, body(path, turns))
        assert answer.status == 400 and not home.engine.requests
        assert code in answer.raw.decode() and words in answer.raw.decode(), answer.raw


def test_a_fault_at_the_end_of_a_large_image_is_found_as_fast_as_none() -> None:
    """The search holds the interpreter."""
    took: dict[str, float] = {}
    for end in ("AAA=", "AAA!") * 3:
        data, began = "A" * 4_000_000 + end, time.process_time()
        with contextlib.suppress(PydanticCustomError):
            _encoded(data)
        took[end] = min(took.get(end, 9.0), time.process_time() - began)
    assert took["AAA!"] < 4 * took["AAA="]


async def test_a_fallback_that_sees_answers_for_a_live_engine_that_does_not(tmp_path: Path) -> None:
    async with ScriptedEngine() as blind, ScriptedEngine() as seeing:
        told: dict[str, Any] = {
            "blind": {"dialect": "openai", "driver": "url", "url": blind.url},
            "seeing": {"dialect": "openai", "driver": "url", "url": seeing.url, "media": ["image"]},
        }
        model = {"live": "blind", "fallback": ["seeing"], "timeouts": NEVER}
        async with run(configured(tmp_path, told, annie=model), blind) as home:
            await eventually(lambda: home.gateway.pool.is_up("seeing"))
            for parts, engine in ((turn(ASK), "blind"), (turn(SEEN), "seeing")):
                answer = await home.post(CHAT, body(CHAT, parts))
                assert (answer.status, answer.headers["x-manners-engine"]) == (200, engine)
            seeing.play(*status(500))  # and none that cannot see is asked behind one that fails
            answer = await home.post(CHAT, body(CHAT, turn(SEEN)))
            assert answer.status == 502 and len(blind.requests) == 1


async def test_an_image_counts_as_tokens_and_not_by_its_bytes(tmp_path: Path) -> None:
    """A key of 60,000 tokens a minute could otherwise never show one."""
    large = base64.b64encode(bytes(600_000)).decode()
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{large}"}}
    async with house(tmp_path, media=["image"]) as home:
        key = await add(home, "porch", tpm=60_000)
        answer = await home.post(CHAT, body(CHAT, turn(part)), key)
        assert answer.status == 200, answer.raw
