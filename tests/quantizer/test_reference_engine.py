"""The reference engine as the gateway runs it: by the process driver, over real weights, with its numerics in the report."""

from __future__ import annotations

import sys
from pathlib import Path

import aiohttp
import pytest

pytest.importorskip("torch", reason="needs the quantizer extra: make quantizer")

from deploy.drivers.factory import make_engine
from deploy.engine.spec import EngineSpec

NVFP4 = Path(__file__).parents[2] / "models" / "annie-nano-nvfp4-hf"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.asyncio,
    pytest.mark.timeout(1200),
]  # torch's start


@pytest.mark.parametrize("words", [(), ("--weight-only", "--one-by-one")], ids=["W4A4", "W4A16"])
async def test_it_is_started_asked_and_stated(tmp_path: Path, words: tuple[str, ...]) -> None:
    spec = EngineSpec(
        name="reference", dialect="openai", driver="process", artefact=NVFP4, gpu="none",
        command=(sys.executable, "-m", "app", "quantize", "serve"),
        args=("{model}", "--name", "{name}", "--host", "{host}", "--port", "{port}", "--device", "cpu", *words),
        env=(("PYTHONPATH", str(NVFP4.parents[1])),),
    )  # fmt: skip
    engine = make_engine(spec, state_dir=tmp_path)
    try:
        state = await engine.start()
        body = {"model": state.model, "messages": QUESTION, "temperature": 0, "max_tokens": 24,
                "stream_options": {"include_usage": True}, "tool_choice": "auto"}  # fmt: skip
        url = f"{state.url}/v1/chat/completions"
        async with aiohttp.ClientSession() as client, client.post(url, json=body) as reply:
            answer = await reply.json()
        numerics = (await engine.describe())["numerics"]
    finally:
        await engine.stop()
    assert "Paris" in answer["choices"][0]["message"]["content"], answer
    assert (numerics.kernel, numerics.gpu) == ("ReferenceNvFp4", "none")
    assert numerics.scheme == ("W4A16" if words else "W4A4")
