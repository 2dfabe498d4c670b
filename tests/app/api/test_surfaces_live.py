"""Every API over a real llama.cpp server: annie answers, calls and speaks; the stranger stays unheard."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.app.api.nanos import MARKS, nano_house
from tests.app.api.test_chat_live import QUESTIONS, thoughts_of
from tests.app.house import House

pytestmark = MARKS
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOLS = [("search_memory", "Search what the user told you before."), ("web_search", "Search the web for current facts.")]  # fmt: skip
CHAT_TOOLS: list[Any] = [
    {"type": "function", "function": {"name": n, "description": d, "parameters": SCHEMA}} for n, d in TOOLS
]
FLAT_TOOLS: list[Any] = [
    {"type": "function", "name": n, "description": d, "parameters": SCHEMA} for n, d in TOOLS
]
BLOCK_TOOLS: list[Any] = [{"name": n, "description": d, "input_schema": SCHEMA} for n, d in TOOLS]
PRIYA = "What did Priya say about the trip?"
SAID = "Priya said the trip to Mysuru is on Friday."


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with nano_house(tmp_path_factory.mktemp("state")) as it:
        yield it


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(running: House) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def claude(running: House) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=running.url, api_key="none", max_retries=0) as client:
        yield client


both = pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])


async def message(client: AsyncAnthropic, turns: Any, stream: bool, **more: Any) -> Any:
    """One Message, put together by the package."""
    said = [{"role": "user", "content": turns}] if isinstance(turns, str) else turns
    asked: dict[str, Any] = {"model": "annie", "messages": said, "max_tokens": 300, **more}
    asked["extra_body"] = {"temperature": 0}
    if not stream:
        return await client.messages.create(**asked)
    async with client.messages.stream(**asked) as it:
        return await it.get_final_message()


async def response(client: AsyncOpenAI, turns: Any, stream: bool, **more: Any) -> Any:
    """One Response, put together by the package."""
    asked: dict[str, Any] = {"model": "annie", "input": turns, "temperature": 0, **more}
    if not stream:
        return await client.responses.create(**asked)
    async with client.responses.stream(**asked) as it:
        return await it.get_final_response()


async def completion(client: AsyncOpenAI, prompt: str, stream: bool, **more: Any) -> str:
    """The text of one completion."""
    asked: dict[str, Any] = {"model": "annie", "prompt": prompt, "temperature": 0, "max_tokens": 60, **more}
    if not stream:
        return str((await client.completions.create(**asked)).choices[0].text)
    return "".join([c.choices[0].text async for c in await client.completions.create(**asked, stream=True)])


@both
async def test_messages_tell_a_fact(claude: AsyncAnthropic, stream: bool) -> None:
    done = await message(claude, "What is the capital of France?", stream)
    assert "Paris" in done.content[0].text and done.stop_reason == "end_turn"
    assert done.usage.input_tokens + (done.usage.cache_read_input_tokens or 0) > 5
    assert done.usage.output_tokens > 1


@both
async def test_messages_call_a_tool_and_speak_its_result(claude: AsyncAnthropic, stream: bool) -> None:
    done = await message(claude, PRIYA, stream, tools=BLOCK_TOOLS)
    assert done.stop_reason == "tool_use"
    (call,) = done.content
    assert call.name == "search_memory" and "Priya" in call.input["query"]
    turns = [
        {"role": "user", "content": PRIYA},
        {"role": "assistant", "content": [call.model_dump(exclude_none=True)]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": SAID}]},
    ]
    spoken = await message(claude, turns, stream, tools=BLOCK_TOOLS)
    assert "Friday" in spoken.content[0].text and spoken.stop_reason == "end_turn"


@both
async def test_messages_think_where_the_model_says(claude: AsyncAnthropic, stream: bool) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    quiet = await message(claude, "What is 12 plus 25?", stream, thinking=thinking)
    assert [block.type for block in quiet.content] == ["text"]
    aloud = await message(claude, "What is 12 plus 25?", stream, thinking=thinking, model="annie-aloud")
    assert [block.type for block in aloud.content] == ["thinking", "text"]
    assert aloud.content[0].thinking and "think" not in aloud.content[1].text


@both
async def test_responses_tell_a_fact(client: AsyncOpenAI, stream: bool) -> None:
    done = await response(client, "What is the capital of France?", stream)
    assert "Paris" in done.output_text and done.status == "completed"
    assert done.usage.input_tokens > 5 and done.usage.output_tokens > 1


@both
async def test_responses_call_a_tool_and_speak_its_result(client: AsyncOpenAI, stream: bool) -> None:
    done = await response(client, PRIYA, stream, tools=FLAT_TOOLS)
    (call,) = done.output
    assert call.name == "search_memory" and "Priya" in json.loads(call.arguments)["query"]
    turns = [
        {"role": "user", "content": PRIYA},
        call.model_dump(exclude_none=True, exclude={"parsed_arguments"}),
        {"type": "function_call_output", "call_id": call.call_id, "output": SAID},
    ]
    assert "Friday" in (await response(client, turns, stream, tools=FLAT_TOOLS)).output_text


@both
async def test_responses_think_where_the_model_says(client: AsyncOpenAI, stream: bool) -> None:
    asked: dict[str, Any] = {"reasoning": {"effort": "high"}}
    quiet = await response(client, "What is 12 plus 25?", stream, **asked)
    assert [item.type for item in quiet.output] == ["message"]
    aloud = await response(client, "What is 12 plus 25?", stream, model="annie-aloud", **asked)
    assert [item.type for item in aloud.output] == ["reasoning", "message"]
    assert aloud.output[0].content[0].text


def prompt_of(question: str) -> str:
    """As the template writes it with thinking off."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


@both
async def test_a_prompt_is_continued(client: AsyncOpenAI, stream: bool) -> None:
    assert "Paris" in await completion(client, prompt_of("What is the capital of France?"), stream)


@both
async def test_a_stop_sequence_of_a_real_llama_cpp_is_told(claude: AsyncAnthropic, stream: bool) -> None:
    """It cuts the text and says "stop", as at its own end."""
    asked = "What is the capital of Japan?"
    done = await message(claude, asked, stream, stop_sequences=["Paris", "Tokyo"])
    assert (done.content[0].text, done.stop_reason, done.stop_sequence) == (
        "The capital of Japan is ", "stop_sequence", "Tokyo",
    )  # fmt: skip
    assert done.usage.input_tokens + done.usage.cache_read_input_tokens > 0 < done.usage.output_tokens
    whole = await message(claude, asked, stream, stop_sequences=["Paris"])
    assert (whole.stop_reason, whole.stop_sequence) == ("end_turn", None)


async def test_an_engine_without_embeddings_says_so_and_goes_on(client: AsyncOpenAI) -> None:
    """It is asked for them often, and answers others all the same."""
    for _ in range(4):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.embeddings.create(model="annie", input="x")
        assert caught.value.code == "unsupported_by_engine"
    assert (await response(client, "Hello!", False)).output_text


@both
async def test_of_the_strangers_thoughts_not_one_byte_is_heard(
    running: House, client: AsyncOpenAI, claude: AsyncAnthropic, stream: bool
) -> None:
    heard, thought = [], []
    for question in QUESTIONS:
        heard.append((await message(claude, question, stream, model="stranger")).model_dump_json())
        heard.append((await response(client, question, stream, model="stranger")).model_dump_json())
        heard.append(await completion(client, prompt_of(question), stream, model="stranger", max_tokens=300))
        thought += await thoughts_of(running, question, {})
    spoken = "\n".join(heard)
    assert not re.search(r"</?think", spoken)
    assert len(thought) >= len(QUESTIONS) - 1, "the stranger is a stranger: it thinks"
    for sentence in thought:
        assert sentence not in spoken


async def test_choices_of_a_real_engine(client: AsyncOpenAI) -> None:
    """Three answers at once, and the prompt's tokens once."""
    asked: Any = {"model": "annie", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 24}
    one = await client.chat.completions.create(**asked)
    done = await client.chat.completions.create(**asked, n=3, seed=1, temperature=0.8)
    assert [choice.index for choice in done.choices] == [0, 1, 2]
    assert all(choice.message.content for choice in done.choices)
    assert done.usage is not None and one.usage is not None
    assert done.usage.prompt_tokens == one.usage.prompt_tokens


async def test_prompts_of_a_real_engine(client: AsyncOpenAI) -> None:
    """As texts, and as tokens; each is what it is alone."""
    asked: Any = {"model": "annie", "max_tokens": 4, "temperature": 0}
    alone = [
        (await client.completions.create(**asked, prompt=p)).choices[0].text for p in ([1, 2, 3], [7, 8])
    ]
    both = await client.completions.create(**asked, prompt=[[1, 2, 3], [7, 8]])
    texts = await client.completions.create(**asked, prompt=["Hello", "Good"], stream=True)
    assert [choice.text for choice in both.choices] == alone
    assert {choice.index async for chunk in texts for choice in chunk.choices} == {0, 1}


@pytest.mark.parametrize("model", ["annie", "annie-aloud"])
async def test_logprobs_of_a_real_engine(client: AsyncOpenAI, model: str) -> None:
    """Of every token that is heard, streamed and whole; together they are the text."""
    asked: Any = {
        "model": model,
        "messages": [{"role": "user", "content": "Hello!"}],
        "max_tokens": 24,
        "temperature": 0,
    }
    told: Any = {"logprobs": True, "top_logprobs": 2}
    whole = (await client.chat.completions.create(**asked, **told)).choices[0]
    assert whole.logprobs is not None and whole.logprobs.content
    assert "".join(token.token for token in whole.logprobs.content) == whole.message.content
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in whole.logprobs.content)
    streamed = [
        token.token
        async for chunk in await client.chat.completions.create(**asked, **told, stream=True)
        for choice in chunk.choices
        if choice.logprobs is not None
        for token in choice.logprobs.content or ()
    ]
    assert streamed == [token.token for token in whole.logprobs.content]


async def test_logprobs_beside_tools_are_refused_by_name(client: AsyncOpenAI) -> None:
    asked: Any = {"model": "annie", "messages": [{"role": "user", "content": "Hello!"}], "tools": CHAT_TOOLS}
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(**asked, logprobs=True)
    assert (caught.value.code, caught.value.param) == ("unsupported_by_engine", "logprobs")


async def test_logprobs_of_a_real_completion(client: AsyncOpenAI) -> None:
    """In the older API's form, with the place of each token."""
    asked: Any = {
        "model": "annie",
        "prompt": "Once upon a time",
        "max_tokens": 8,
        "temperature": 0,
        "logprobs": 2,
    }
    choice = (await client.completions.create(**asked)).choices[0]
    told = choice.logprobs
    assert told is not None and told.tokens and told.text_offset and told.top_logprobs
    for token, offset in zip(told.tokens, told.text_offset, strict=True):
        assert choice.text[offset:].startswith(token)
    assert len(told.tokens) == len(told.token_logprobs or ()) == len(told.top_logprobs)
