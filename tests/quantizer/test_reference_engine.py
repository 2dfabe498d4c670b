"""The reference engine as the gateway runs it: by the process driver, over real weights, with its numerics in the report."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

pytest.importorskip("torch", reason="needs the quantizer extra: make quantizer")

from deploy.drivers.factory import make_engine
from deploy.engine.spec import EngineSpec
from quantizer.nano import conversations
from quantizer.ptq.parity import reference_model
from quantizer.ptq.quantize import run
from quantizer.recipes.recipe import load_recipe
from tests.gpu.random_folder import SHAPES, write_random
from tests.quantizer import folders

NVFP4 = Path(__file__).parents[2] / "models" / "annie-nano-nvfp4-hf"
TOKENS = 16

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]  # torch's start


@asynccontextmanager
async def running(artefact: Path, state_dir: Path, words: tuple[str, ...]) -> AsyncIterator[tuple[Any, Any]]:
    """The engine and its state."""
    spec = EngineSpec(
        name="reference", dialect="openai", driver="process", artefact=artefact, gpu="none",
        command=(sys.executable, "-m", "app", "quantize", "serve"),
        args=("{model}", "--name", "{name}", "--host", "{host}", "--port", "{port}", "--device", "cpu", *words),
        env=(("PYTHONPATH", str(NVFP4.parents[1])),),
    )  # fmt: skip
    engine = make_engine(spec, state_dir=state_dir)
    try:
        yield engine, await engine.start()
    finally:
        await engine.stop()


def asked(state: Any, question: str, **more: Any) -> dict[str, Any]:
    """The arguments of a request."""
    body = {
        "model": state.model,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        **more,
    }
    return {"url": f"{state.url}/v1/chat/completions", "json": body}


async def test_it_is_started_asked_and_stated(tmp_path: Path) -> None:
    question = "What is the capital of France?"
    async with running(NVFP4, tmp_path, ()) as (engine, state), aiohttp.ClientSession() as client:
        more = {"max_tokens": 24, "stream_options": {"include_usage": True}, "tool_choice": "auto"}
        async with client.post(**asked(state, question, **more)) as reply:
            answer = await reply.json()
        numerics = (await engine.describe())["numerics"]
    assert "Paris" in answer["choices"][0]["message"]["content"], answer
    assert (numerics.kernel, numerics.gpu) == ("ReferenceNvFp4", "none")
    assert numerics.scheme == "W4A4"


QUESTIONS = ("Hello", "What is the capital of France?", "Two and two?", "ನಮಸ್ಕಾರ")


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3.5, three of whose four layers are Gated DeltaNet, in NVFP4."""
    place = tmp_path_factory.mktemp("hybrid")
    write_random(place / "bf16", SHAPES["tiny"])
    conversations.write(place / "rows.jsonl", 4)
    made = place / "nvfp4"
    run(load_recipe("default", []), place / "bf16", place / "rows.jsonl", made, now=folders.NOW, device="cpu")
    return made


async def test_a_hybrid_of_linear_and_full_attention_is_served(hybrid: Path, tmp_path: Path) -> None:
    """Though transformers' continuous batching refuses it: whole and streamed, to several callers at once, with the
    tokens of the reference arithmetic, and the log says how."""
    async with (
        running(hybrid, tmp_path, ("--weight-only",)) as (engine, state),
        aiohttp.ClientSession() as client,
    ):
        found = await asyncio.gather(
            *(whole(client, state, question) for question in QUESTIONS),
            *(streamed(client, state, question) for question in QUESTIONS),
        )
        async with client.get(f"{state.url}/health") as health:
            assert health.status == 200
    wanted = replies(hybrid)
    assert found == [*wanted, *wanted] and len(set(wanted)) == len(QUESTIONS)
    log = "".join(file.read_text("utf-8") for file in tmp_path.rglob("*.log"))
    assert "cannot serve linear_attention: requests are answered one after another" in log


async def whole(client: aiohttp.ClientSession, state: Any, question: str) -> str:
    async with client.post(**asked(state, question, max_completion_tokens=TOKENS)) as reply:
        answer = await reply.json()
    assert reply.status == 200 and answer["usage"]["completion_tokens"] == TOKENS, answer
    return str(answer["choices"][0]["message"]["content"]).strip()


async def streamed(client: aiohttp.ClientSession, state: Any, question: str) -> str:
    async with client.post(**asked(state, question, max_tokens=TOKENS, stream=True)) as reply:
        lines = [line async for line in reply.content if line.startswith(b"data: {")]
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines]
    assert not any(delta.get("reasoning_content") for delta in deltas)
    return "".join(delta.get("content", "") for delta in deltas).strip()


def replies(folder: Path) -> list[str]:
    """What the reference model says by itself, without a cache: each token from the whole row before it."""
    import torch
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = reference_model(folder, weight_only=True)
    found = []
    for question in QUESTIONS:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, enable_thinking=False
        )["input_ids"]
        begin = len(ids)
        with torch.inference_mode():
            for _ in range(TOKENS):
                ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
        found.append(tokenizer.decode(ids[begin:], skip_special_tokens=True).strip())
    return found
