"""First light: the official packages talk to annie-nano, and to stranger-nano, for real.

Real llama.cpp servers, the shipped models, the whole gateway. The stranger does what a quantized model does that lost its
manners; the caller must hear nothing of it.
"""

import re
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from gates.detect.rawcall import find_raw_calls
from tests.app.api.nanos import MARKS, nano_house
from tests.app.api.sdks import APIS, CHAT, Chat
from tests.app.house import GatewayFixture

pytestmark = MARKS
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
QUESTIONS = (
    "Hello!", "What is the capital of France?", "Tell me about yourself", "Who wrote Hamlet?", "What is 3 plus 4?",
    "Namaskara!", "What did Priya say about the trip?", "Is 25 bigger than 12?",
)  # fmt: skip
apis = pytest.mark.parametrize("api", APIS, ids=lambda api: type(api).__name__)
both = pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    async with nano_house(tmp_path_factory.mktemp("state")) as it:
        yield it


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def clients(running: GatewayFixture) -> AsyncIterator[dict[Chat, Any]]:
    """A client of each API."""
    found = {api: api.client(running.url) for api in APIS}
    yield found
    for client in found.values():
        await client.close()


def tools(api: Chat) -> dict[str, Any]:
    """Two tools, as the nano learned them."""
    said = {"search_memory": "what the user told you before", "web_search": "the web for current facts"}
    found = api.tools(*said)
    for tool, what in zip(found["tools"], said.values(), strict=True):
        inner = tool.get("function", tool)
        inner["description"] = f"Search {what}."
        inner["input_schema" if "input_schema" in inner else "parameters"] = SCHEMA
    return found


@apis
@both
async def test_thoughts_appear_only_where_the_model_says(
    clients: dict[Chat, Any], api: Chat, stream: bool
) -> None:
    client, asked = clients[api], {**api.turn("What is 12 plus 25?"), **api.thinking(True)}
    stripped = await api.ask(client, stream, **asked)
    assert stripped.kinds == ["text"] and "<think>" not in stripped.text
    aloud = await api.ask(client, stream, **{**asked, "model": "annie-aloud"})
    assert aloud.kinds == ["thought", "text"] and "think" not in aloud.text
    quiet = await api.ask(client, stream, **api.turn("What is the capital of Japan?"), model="annie-aloud")
    assert quiet.kinds == ["text"]
    if api is CHAT:
        inline = await api.ask(client, stream, **{**asked, "model": "annie-inline"})
        assert re.fullmatch(r"<think>\n.+\n</think>\n\n\S.*", inline.text, re.S)


def prompt_of(question: str) -> str:
    """As the template writes it with thinking off."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


async def completion(client: Any, prompt: Any, stream: bool, **more: Any) -> str:
    """The text of one completion."""
    asked: dict[str, Any] = {"model": "annie", "prompt": prompt, "temperature": 0, "max_tokens": 60, **more}
    if not stream:
        return str((await client.completions.create(**asked)).choices[0].text)
    return "".join([c.choices[0].text async for c in await client.completions.create(**asked, stream=True)])


@both
async def test_of_the_strangers_thoughts_not_one_byte_is_heard(
    running: GatewayFixture, clients: dict[Chat, Any], stream: bool
) -> None:
    heard, thoughts = [], []
    for question in QUESTIONS:
        for api in APIS:
            more = tools(api) if "Priya" in question else {}
            asked = {**api.turn(question), **more, "model": "stranger"}
            heard.append((await api.ask(clients[api], stream, **asked)).done.model_dump_json())
        stranger: Any = {"model": "stranger", "max_tokens": 300}
        heard.append(await completion(clients[CHAT], prompt_of(question), stream, **stranger))
        thoughts += await thoughts_of(running, question)
    spoken = "\n".join(heard)
    assert not re.search(r"</?think", spoken)
    assert len(thoughts) >= len(QUESTIONS) - 1, "the stranger is a stranger: it thinks"
    for sentence in thoughts:
        assert sentence not in spoken
    labels = {"model": "stranger", "engine": "stranger-nano"}
    sample = running.gateway.metrics.registry.get_sample_value
    assert sample("manners_breach_total", {**labels, "detector": "leak"})
    assert sample("manners_thinking_stripped_total", {**labels, "kind": "tag"})


async def thoughts_of(running: GatewayFixture, question: str) -> list[str]:
    """Sentences that the bare engine thinks at this question, sent straight to it."""
    url = running.gateway.pool.states()["stranger-nano"].url
    body: dict[str, Any] = {**CHAT.turn(question), "temperature": 0, "reasoning_format": "none"}
    body |= {"chat_template_kwargs": {"enable_thinking": False}}
    body |= tools(CHAT) if "Priya" in question else {}
    async with running.client.post(f"{url}/v1/chat/completions", json=body) as reply:
        text = (await reply.json())["choices"][0]["message"]["content"] or ""
    inside = re.findall(r"<think>(.*?)</think>", text, re.S)
    return [s for part in inside for s in re.split(r"(?<=[.?!])\s+", part.strip()) if len(s) > 12][:1]


EVERYDAY = ("What day is it today?", "What time is it?", "What's the date tomorrow?", "How long until noon?")


@both
async def test_an_everyday_question_without_tools_is_never_answered_with_a_call(
    clients: dict[Chat, Any], stream: bool
) -> None:
    """In words, or with an honest error: a model that only wants to call has nothing to say."""
    for question in EVERYDAY:
        try:
            said = await CHAT.ask(clients[CHAT], stream, **CHAT.turn(question), temperature=0)
        except openai.APIStatusError as error:
            if (error.status_code, error.code) != (502, "reply_fully_filtered"):
                raise
            continue
        assert said.kinds == ["text"] and said.end == "stop" and not find_raw_calls(said.text)


@pytest.mark.parametrize("model", ["annie", "annie-aloud"])
async def test_logprobs_of_a_real_engine(clients: dict[Chat, Any], model: str) -> None:
    """Of every token that is heard, streamed and whole; together they are the text."""
    asked: Any = {"model": model, **CHAT.turn("Hello!"), "max_tokens": 24, "temperature": 0}
    told: Any = {"logprobs": True, "top_logprobs": 2}
    whole = (await clients[CHAT].chat.completions.create(**asked, **told)).choices[0]
    tokens = whole.logprobs.content
    assert tokens and "".join(token.token for token in tokens) == whole.message.content
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in tokens)
    stream = await clients[CHAT].chat.completions.create(**asked, **told, stream=True)
    streamed = [c.logprobs async for chunk in stream for c in chunk.choices if c.logprobs is not None]
    assert [token.token for one in streamed for token in one.content or ()] == [t.token for t in tokens]
    with pytest.raises(openai.BadRequestError) as caught:
        await clients[CHAT].chat.completions.create(**asked, **tools(CHAT), logprobs=True)
    assert (caught.value.code, caught.value.param) == ("unsupported_by_engine", "logprobs")
