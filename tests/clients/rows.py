"""What each client package is tried with, in the package's own words: `python -m tests.clients.rows PACKAGE URL [ROW…]`.

Runs in the clients' own environment (`.venv-clients`), which has nothing of ours but this file. Prints one line of
JSON a row: what was asked, and `said` (what came back) or `refused` (the code of the gateway's refusal).
"""

import asyncio
import importlib.metadata
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

MODEL = "annie"
LONG = 512
"""Tokens: grammars of JSON allow much white space, which a sampled reply may use."""
HELLO: list[Any] = [{"role": "user", "content": "Hello!"}]
HAPPY: list[Any] = [{"role": "user", "content": "I am so happy today!"}]
TRIP = "What did Priya say about the trip?"
TOLD = "Priya said the trip to Mysuru is on Friday."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string", "maxLength": 60}},
    "required": ["query"],
    "additionalProperties": False,
}
MEMORY: dict[str, Any] = {
    "name": "search_memory",
    "description": "Search what the user told you before.",
    "parameters": SCHEMA,
    "strict": True,
}
TOOLS: list[Any] = [{"type": "function", "function": MEMORY}]
NAMED: Any = {"type": "function", "function": {"name": "search_memory"}}


class Feeling(BaseModel):
    """Glad or sad."""

    mood: Literal["glad", "sad"]


class Mood(Feeling):
    """How somebody feels, and how much."""

    score: int = Field(ge=0, le=9)


Row = Callable[[str], Awaitable[Any]]
ROWS: dict[str, dict[str, Row]] = {}


def row(package: str, what: str) -> Callable[[Row], Row]:
    """Enter a row of a package."""

    def enter(made: Row) -> Row:
        ROWS.setdefault(package, {})[what] = made
        return made

    return enter


def words(said: Any) -> str:
    """Speech, which must be some."""
    assert isinstance(said, str) and said.strip(), said
    return said


def mood(found: Any) -> str:
    """Structured output, of the type that was asked for."""
    assert isinstance(found, Feeling), found
    return type(found).__name__


def called(name: Any, arguments: Any) -> str:
    """A call of the tool, with arguments that fit."""
    read = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert name == "search_memory" and isinstance(read["query"], str), (name, arguments)
    return str(name)


# openai


def _openai(url: str) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


@row("openai", "chat")
async def _(url: str) -> Any:
    done = await _openai(url).chat.completions.create(model=MODEL, messages=HELLO)
    return words(done.choices[0].message.content)


@row("openai", "chat, streamed")
async def _(url: str) -> Any:
    stream = await _openai(url).chat.completions.create(model=MODEL, messages=HELLO, stream=True)
    return words("".join([c.choices[0].delta.content or "" async for c in stream if c.choices]))


@row("openai", "chat, a tool")
async def _(url: str) -> Any:
    asked: list[Any] = [{"role": "user", "content": TRIP}]
    done = await _openai(url).chat.completions.create(model=MODEL, messages=asked, tools=TOOLS, temperature=0)
    (made,) = done.choices[0].message.tool_calls
    return called(made.function.name, made.function.arguments)


@row("openai", "chat, a named tool, streamed")
async def _(url: str) -> Any:
    async with _openai(url).chat.completions.stream(
        model=MODEL, messages=HELLO, tools=TOOLS, tool_choice=NAMED
    ) as stream:
        done = await stream.get_final_completion()
    (made,) = done.choices[0].message.tool_calls
    return called(made.function.name, made.function.arguments)


@row("openai", "chat, structured output")
async def _(url: str) -> Any:
    done = await _openai(url).chat.completions.parse(model=MODEL, messages=HAPPY, response_format=Mood)
    return mood(done.choices[0].message.parsed)


@row("openai", "responses")
async def _(url: str) -> Any:
    return words((await _openai(url).responses.create(model=MODEL, input="Hello!")).output_text)


@row("openai", "responses, streamed")
async def _(url: str) -> Any:
    async with _openai(url).responses.stream(model=MODEL, input="Hello!") as stream:
        async for _event in stream:
            pass
        return words((await stream.get_final_response()).output_text)


@row("openai", "responses, a named tool")
async def _(url: str) -> Any:
    tools: Any = [{"type": "function", **MEMORY}]
    choice: Any = {"type": "function", "name": "search_memory"}
    done = await _openai(url).responses.create(model=MODEL, input="Hello!", tools=tools, tool_choice=choice)
    (made,) = [item for item in done.output if item.type == "function_call"]
    return called(made.name, made.arguments)


@row("openai", "responses, structured output")
async def _(url: str) -> Any:
    done = await _openai(url).responses.parse(model=MODEL, input="I am so happy today!", text_format=Mood)
    return mood(done.output_parsed)


@row("openai", "completions")
async def _(url: str) -> Any:
    done = await _openai(url).completions.create(model=MODEL, prompt="Hello", max_tokens=32, temperature=0)
    return words(done.choices[0].text)


@row("openai", "models")
async def _(url: str) -> Any:
    return words((await _openai(url).models.list()).data[0].id)


@row("openai", "several choices (n)")
async def _(url: str) -> Any:
    done = await _openai(url).chat.completions.create(model=MODEL, messages=HELLO, n=2)
    one, two = done.choices
    return words(one.message.content) + words(two.message.content)


@row("openai", "completions of several prompts")
async def _(url: str) -> Any:
    done = await _openai(url).completions.create(
        model=MODEL, prompt=["Hello", "Good morning"], max_tokens=32, temperature=0
    )
    one, two = done.choices
    return words(one.text) + words(two.text)


@row("openai", "logprobs")
async def _(url: str) -> Any:
    done = await _openai(url).chat.completions.create(model=MODEL, messages=HELLO, logprobs=True)
    told = done.choices[0].logprobs
    assert told is not None and told.content is not None
    return words("".join(token.token for token in told.content))


@row("openai", "an image")
async def _(url: str) -> Any:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    await _openai(url).chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [image]}])


@row("openai", "speech as an answer (modalities)")
async def _(url: str) -> Any:
    audio: Any = {"voice": "alloy", "format": "mp3"}
    await _openai(url).chat.completions.create(
        model=MODEL, messages=HELLO, modalities=["text", "audio"], audio=audio
    )


@row("openai", "a tool that is not declared")
async def _(url: str) -> Any:
    choice: Any = {"type": "function", "function": {"name": "dance"}}
    await _openai(url).chat.completions.create(model=MODEL, messages=HELLO, tools=TOOLS, tool_choice=choice)


@row("openai", "responses that are stored")
async def _(url: str) -> Any:
    await _openai(url).responses.create(model=MODEL, input="Hello!", store=True)


# anthropic

CLAUDES: list[Any] = [{"name": "search_memory", "description": MEMORY["description"], "input_schema": SCHEMA}]


def _anthropic(url: str) -> Any:
    from anthropic import AsyncAnthropic

    return AsyncAnthropic(base_url=url, api_key="none", max_retries=0)


@row("anthropic", "messages")
async def _(url: str) -> Any:
    done = await _anthropic(url).messages.create(model=MODEL, messages=HELLO, max_tokens=LONG)
    return words(done.content[0].text)


@row("anthropic", "messages, streamed")
async def _(url: str) -> Any:
    async with _anthropic(url).messages.stream(model=MODEL, messages=HELLO, max_tokens=LONG) as stream:
        return words("".join([piece async for piece in stream.text_stream]))


@row("anthropic", "messages, a named tool")
async def _(url: str) -> Any:
    choice: Any = {"type": "tool", "name": "search_memory"}
    done = await _anthropic(url).messages.create(
        model=MODEL, messages=HELLO, max_tokens=LONG, tools=CLAUDES, tool_choice=choice
    )
    (made,) = [block for block in done.content if block.type == "tool_use"]
    return called(made.name, made.input)


@row("anthropic", "messages, any tool, streamed")
async def _(url: str) -> Any:
    choice: Any = {"type": "any", "disable_parallel_tool_use": True}
    async with _anthropic(url).messages.stream(
        model=MODEL, messages=HELLO, max_tokens=LONG, tools=CLAUDES, tool_choice=choice
    ) as stream:
        done = await stream.get_final_message()
    (made,) = [block for block in done.content if block.type == "tool_use"]
    return called(made.name, made.input)


@row("anthropic", "messages, structured output")
async def _(url: str) -> Any:
    done = await _anthropic(url).messages.parse(
        model=MODEL, messages=HAPPY, max_tokens=LONG, output_format=Feeling
    )
    return mood(done.parsed_output)


@row("anthropic", "messages.count_tokens")
async def _(url: str) -> Any:
    counted = await _anthropic(url).messages.count_tokens(model=MODEL, messages=HELLO, tools=CLAUDES)
    assert counted.input_tokens > 10, counted
    return "a count"


@row("anthropic", "servers of tools (mcp_servers)")
async def _(url: str) -> Any:
    servers: Any = [{"type": "url", "url": "https://example.org", "name": "x"}]
    await _anthropic(url).beta.messages.create(
        model=MODEL, messages=HELLO, max_tokens=32, mcp_servers=servers
    )


@row("anthropic", "an image")
async def _(url: str) -> Any:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    asked: list[Any] = [{"role": "user", "content": [image]}]
    await _anthropic(url).messages.create(model=MODEL, messages=asked, max_tokens=32)


# instructor


@row("instructor", "Mode.TOOLS")
async def _(url: str) -> Any:
    import instructor

    client = instructor.from_openai(_openai(url), mode=instructor.Mode.TOOLS)
    return mood(
        await client.chat.completions.create(model=MODEL, response_model=Mood, messages=HAPPY, max_retries=0)
    )


@row("instructor", "Mode.JSON_SCHEMA")
async def _(url: str) -> Any:
    import instructor

    client = instructor.from_openai(_openai(url), mode=instructor.Mode.JSON_SCHEMA)
    return mood(
        await client.chat.completions.create(model=MODEL, response_model=Mood, messages=HAPPY, max_retries=0)
    )


# langchain-openai


def _langchain(url: str) -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key="none", max_retries=0)  # type: ignore[call-arg,unused-ignore]


@row("langchain-openai", "invoke")
async def _(url: str) -> Any:
    return words((await _langchain(url).ainvoke("Hello!")).content)


@row("langchain-openai", "astream")
async def _(url: str) -> Any:
    return words("".join([chunk.content async for chunk in _langchain(url).astream("Hello!")]))


@row("langchain-openai", "bind_tools(tool_choice=any)")
async def _(url: str) -> Any:
    done = await _langchain(url).bind_tools(TOOLS, tool_choice="any").ainvoke("Hello!")
    (made,) = done.tool_calls
    return called(made["name"], made["args"])


@row("langchain-openai", "with_structured_output(function_calling)")
async def _(url: str) -> Any:
    model = _langchain(url).with_structured_output(Mood, method="function_calling")
    return mood(await model.ainvoke("I am so happy today!"))


@row("langchain-openai", "with_structured_output(json_schema)")
async def _(url: str) -> Any:
    return mood(await _langchain(url).with_structured_output(Mood).ainvoke("I am so happy today!"))


# pydantic-ai


def _pydantic_ai(url: str, responses: bool, **more: Any) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind = OpenAIResponsesModel if responses else OpenAIChatModel
    return Agent(kind(MODEL, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none")), **more)


@row("pydantic-ai-slim", "chat")
async def _(url: str) -> Any:
    return words((await _pydantic_ai(url, False).run("Hello!")).output)


@row("pydantic-ai-slim", "chat, output_type")
async def _(url: str) -> Any:
    return mood((await _pydantic_ai(url, False, output_type=Mood).run("I am so happy today!")).output)


@row("pydantic-ai-slim", "responses, output_type")
async def _(url: str) -> Any:
    return mood((await _pydantic_ai(url, True, output_type=Mood).run("I am so happy today!")).output)


# openai-agents


async def _agents(
    url: str,
    responses: bool,
    question: str,
    with_tool: bool = False,
    choice: str | None = None,
    output: Any = None,
) -> Any:
    from agents import (
        Agent,
        ModelSettings,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )

    def search_memory(query: str) -> str:
        """Search what the user told you before."""
        return TOLD

    set_tracing_disabled(True)
    kind: Any = OpenAIResponsesModel if responses else OpenAIChatCompletionsModel
    model = kind(model=MODEL, openai_client=_openai(url))
    agent: Any = Agent(
        name="annie",
        model=model,
        tools=[function_tool(search_memory)] if with_tool else [],
        output_type=output,
        model_settings=ModelSettings(temperature=0, tool_choice=choice),
    )
    return (await Runner.run(agent, question)).final_output


@row("openai-agents", "chat, a tool and its result")
async def _(url: str) -> Any:
    said = words(await _agents(url, False, TRIP, True))
    assert "Friday" in said, said
    return said


@row("openai-agents", "responses, a named tool and its result")
async def _(url: str) -> Any:
    said = words(await _agents(url, True, TRIP, True, "search_memory"))
    assert "Friday" in said, said
    return said


@row("openai-agents", "chat, output_type")
async def _(url: str) -> Any:
    return mood(await _agents(url, False, "I am so happy today!", output=Mood))


@row("openai-agents", "responses, output_type")
async def _(url: str) -> Any:
    return mood(await _agents(url, True, "I am so happy today!", output=Mood))


# litellm, as a client


async def _litellm(url: str, messages: list[Any], anthropic: bool = False, **more: Any) -> Any:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    where = {"model": "anthropic/annie", "api_base": url} if anthropic else {
        "model": "openai/annie", "api_base": f"{url}/v1"}  # fmt: skip
    return await litellm.acompletion(messages=messages, api_key="none", **where, **more)


@row("litellm", "openai/")
async def _(url: str) -> Any:
    return words((await _litellm(url, HELLO)).choices[0].message.content)


@row("litellm", "openai/, streamed")
async def _(url: str) -> Any:
    stream = await _litellm(url, HELLO, stream=True)
    return words("".join([chunk.choices[0].delta.content or "" async for chunk in stream]))


@row("litellm", "openai/, a named tool")
async def _(url: str) -> Any:
    done = await _litellm(url, HELLO, tools=TOOLS, tool_choice=NAMED)
    (made,) = done.choices[0].message.tool_calls
    return called(made.function.name, made.function.arguments)


@row("litellm", "openai/, response_format")
async def _(url: str) -> Any:
    done = await _litellm(url, HAPPY, response_format=Mood)
    return mood(Mood.model_validate_json(done.choices[0].message.content))


@row("litellm", "anthropic/, a named tool")
async def _(url: str) -> Any:
    done = await _litellm(url, HELLO, anthropic=True, max_tokens=LONG, tools=TOOLS, tool_choice=NAMED)
    (made,) = done.choices[0].message.tool_calls
    return called(made.function.name, made.function.arguments)


# LiveKit's plugin


async def _livekit(url: str, **more: Any) -> tuple[str, list[Any]]:
    from livekit.agents import llm
    from livekit.plugins import openai

    model = openai.LLM(model=MODEL, base_url=f"{url}/v1", api_key="none", temperature=0)
    context = llm.ChatContext.empty()
    context.add_message(role="user", content="Hello!")
    said, calls = "", []
    async with model.chat(chat_ctx=context, **more) as stream:
        async for chunk in stream:
            if chunk.delta:
                said += chunk.delta.content or ""
                calls += chunk.delta.tool_calls
    await model.aclose()
    return said, calls


@row("livekit-plugins-openai", "LLM.chat")
async def _(url: str) -> Any:
    return words((await _livekit(url))[0])


@row("livekit-plugins-openai", "LLM.chat, a named tool")
async def _(url: str) -> Any:
    from livekit.agents import function_tool

    async def search_memory(query: str) -> str:
        """Search what the user told you before."""
        return TOLD

    _, (made,) = await _livekit(url, tools=[function_tool(search_memory)], tool_choice=NAMED)
    return called(made.name, made.arguments)


# Pipecat's service, in a pipeline of its own


async def _pipecat(url: str, **context: Any) -> tuple[str, list[Any]]:
    from pipecat.frames.frames import LLMContextFrame, LLMTextFrame
    from pipecat.processors.aggregators.llm_context import LLMContext
    from pipecat.services.openai.llm import OpenAILLMService
    from pipecat.tests.utils import run_test

    service = OpenAILLMService(
        api_key="none", base_url=f"{url}/v1", settings=OpenAILLMService.Settings(model=MODEL)
    )
    calls: list[Any] = []

    async def heard(params: Any) -> None:
        calls.append((params.function_name, dict(params.arguments)))
        await params.result_callback(TOLD)

    service.register_function("search_memory", heard)
    frames, _ = await run_test(
        service, frames_to_send=[LLMContextFrame(LLMContext(list(HELLO), **context))], start_timeout=30
    )
    return "".join(frame.text for frame in frames if isinstance(frame, LLMTextFrame)), calls


@row("pipecat-ai", "OpenAILLMService")
async def _(url: str) -> Any:
    return words((await _pipecat(url))[0])


@row("pipecat-ai", "OpenAILLMService, a named tool")
async def _(url: str) -> Any:
    from pipecat.adapters.schemas.function_schema import FunctionSchema
    from pipecat.adapters.schemas.tools_schema import ToolsSchema

    memory = FunctionSchema("search_memory", MEMORY["description"], SCHEMA["properties"], SCHEMA["required"])
    _, (made,) = await _pipecat(url, tools=ToolsSchema([memory]), tool_choice=NAMED)
    return called(*made)


def code_of(error: BaseException | None) -> str | None:
    """The code of the gateway's refusal, wherever a package keeps the body of an error."""
    while error is not None:
        body = getattr(error, "body", None)
        inner = body.get("error", body) if isinstance(body, dict) else {}
        found = inner.get("code") or inner.get("details", {}).get("error_code")
        if found:
            return str(found)
        error = error.__cause__ or error.__context__
    return None


async def run(rows: dict[str, Row], url: str) -> list[dict[str, Any]]:
    """Each row's outcome: `said`, `refused`, or `failed` with the traceback."""
    found = []
    for what, ask in rows.items():
        try:
            found.append({"what": what, "said": await ask(url)})
        except Exception as error:
            code = code_of(error)
            outcome = {"refused": code} if code else {"failed": traceback.format_exc()[-2000:]}
            found.append({"what": what, **outcome})
    return found


def main(argv: Sequence[str]) -> None:
    """See the module's docstring."""
    package, url, *only = argv
    version = importlib.metadata.version(package)
    rows = {what: row for what, row in ROWS[package].items() if not only or what in only}
    for outcome in asyncio.run(run(rows, url)):
        print(json.dumps({"package": package, "version": version, **outcome}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
