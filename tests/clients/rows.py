"""What each client package is tried with, in the package's own words: `python rows.py PACKAGE all=URL decides=URL few=URL`.

Asks all rows of a gateway, or only the questions at which the model decides on a call, or a few of these. Runs in the clients' own
environment (`.venv-clients`), which has nothing of ours but this file. Prints one line of JSON a row: what was asked, and `said` (what
came back), `heard` (the text and the tools called, where the model decides) or `refused` (the code of the gateway's refusal).
"""

import asyncio
import importlib.metadata
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, Field

MODEL = "annie"
STEADY: dict[str, Any] = {"temperature": 0, "max_tokens": 128}
PATIENT = 300
"""Seconds, for packages whose own patience is shorter than a busy machine needs."""
HAPPY: list[Any] = [{"role": "user", "content": "I am so happy today!"}]
TRIP = "What did Priya say about the trip?"
QUESTIONS = (
    TRIP,
    "When is my appointment with the dentist?",
    "Where did I park my car?",
    "What did I tell you about my holiday?",
    "Search my memory for the name of my dog.",
)
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


Calls = list[tuple[str, Any]]
Ask = Callable[[str, str, str], Awaitable[tuple[str | None, Calls]]]
"""Of a URL, a question, and the choice of a tool (`none` is declared, `auto`, `named`): the text, and names and arguments of calls."""


def row(package: str, what: str) -> Callable[[Row], Row]:
    """Enter a row of a package."""

    def enter(made: Row) -> Row:
        ROWS.setdefault(package, {})[what] = made
        return made

    return enter


def asks(package: str, plain: str = "", named: str = "") -> Callable[[Ask], None]:
    """Enter a package's rows that differ in the choice of a tool: none, a named one, and the questions at which the model decides."""

    def enter(ask: Ask) -> None:
        async def one(question: str, choice: str, url: str) -> Any:
            text, calls = await ask(url, question, choice)
            if choice == "named":
                (made,) = calls
                return called(*made)
            return words(text) if choice == "none" else (text, [name for name, _ in calls])

        forms = [(plain, "Hello!", "none"), (named, "Hello!", "named"), *((q, q, "auto") for q in QUESTIONS)]
        for what, question, choice in forms:
            if what:
                row(package, what)(partial(one, question, choice))

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


def heard(done: Any) -> tuple[str | None, Calls]:
    """The text and the calls of a chat completion."""
    message = done.choices[0].message
    made = [call.function for call in message.tool_calls or []]
    return message.content, [(call.name, call.arguments) for call in made]


def chosen(choice: str) -> dict[str, Any]:
    """The choice of a tool as chat completions say it."""
    return (
        {} if choice == "none" else {"tools": TOOLS} | ({"tool_choice": NAMED} if choice == "named" else {})
    )


def search_memory(query: str) -> str:
    """Search what the user told you before.

    Args:
        query: What to look for.
    """
    return TOLD


# openai


def _openai(url: str) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def _asked(question: Any) -> list[Any]:
    return [{"role": "user", "content": question}]


@asks("openai", "chat, streamed", "chat, a named tool, streamed")
async def _(url: str, question: str, choice: str) -> Any:
    from openai import LengthFinishReasonError

    asked = {"messages": _asked(question), **STEADY, **chosen(choice)}
    try:
        async with _openai(url).chat.completions.stream(model=MODEL, **asked) as stream:
            return heard(await stream.get_final_completion())
    except LengthFinishReasonError as cut:
        return heard(cut.completion)


@row("openai", "chat, structured output")
async def _(url: str) -> Any:
    chat = _openai(url).chat.completions
    done = await chat.parse(model=MODEL, messages=HAPPY, response_format=Mood, **STEADY)
    return mood(done.choices[0].message.parsed)


@row("openai", "responses, structured output")
async def _(url: str) -> Any:
    asked = {"input": "I am so happy today!", "temperature": 0}
    done = await _openai(url).responses.parse(model=MODEL, text_format=Mood, **asked)
    return mood(done.output_parsed)


# anthropic

BRIEF: dict[str, Any] = {"model": MODEL, "max_tokens": STEADY["max_tokens"], "extra_body": {"temperature": 0}}
CLAUDES: list[Any] = [{"name": "search_memory", "description": MEMORY["description"], "input_schema": SCHEMA}]


def _anthropic(url: str) -> Any:
    from anthropic import AsyncAnthropic

    return AsyncAnthropic(base_url=url, api_key="none", max_retries=0)


@asks("anthropic", "messages, streamed", "messages, any tool, streamed")
async def _(url: str, question: str, choice: str) -> Any:
    more: dict[str, Any] = {} if choice == "none" else {"tools": CLAUDES}
    if choice == "named":
        more["tool_choice"] = {"type": "any", "disable_parallel_tool_use": True}
    async with _anthropic(url).messages.stream(messages=_asked(question), **BRIEF, **more) as stream:
        done = (await stream.get_final_message()).content
    said = "".join(block.text for block in done if block.type == "text")
    return said, [(block.name, block.input) for block in done if block.type == "tool_use"]


@row("anthropic", "messages, structured output")
async def _(url: str) -> Any:
    done = await _anthropic(url).messages.parse(messages=HAPPY, **BRIEF, output_format=Feeling)
    return mood(done.parsed_output)


# instructor


async def _instructor(url: str, mode: str = "TOOLS", **asked: Any) -> Any:
    import instructor

    client = instructor.from_openai(_openai(url), mode=instructor.Mode[mode])
    return await client.chat.completions.create(model=MODEL, max_retries=0, **asked)


for mode in ("TOOLS", "JSON_SCHEMA"):

    @row("instructor", f"Mode.{mode}")
    async def _(url: str, mode: str = mode) -> Any:
        return mood(await _instructor(url, mode, response_model=Mood, messages=HAPPY, temperature=0))


@asks("instructor")
async def _(url: str, question: str, choice: str) -> Any:
    asked: dict[str, Any] = {"messages": _asked(question), "response_model": None}
    return heard(await _instructor(url, **asked, **STEADY, **chosen(choice)))


# langchain-openai


def _langchain(url: str) -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key="none", max_retries=0, **STEADY)  # type: ignore[call-arg,unused-ignore]


@asks("langchain-openai", "invoke", "bind_tools(tool_choice=any)")
async def _(url: str, question: str, choice: str) -> Any:
    more = {"tool_choice": "any"} if choice == "named" else {}
    model = _langchain(url) if choice == "none" else _langchain(url).bind_tools(TOOLS, **more)
    done = await model.ainvoke(question)
    return done.content, [(call["name"], call["args"]) for call in done.tool_calls]


for method in ("function_calling", "json_schema"):

    @row("langchain-openai", f"with_structured_output({method})")
    async def _(url: str, method: str = method) -> Any:
        model = _langchain(url).with_structured_output(Mood, method=method)
        return mood(await model.ainvoke("I am so happy today!"))


# pydantic-ai


def _pydantic_ai(url: str, api: str = "chat", **more: Any) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind: Any = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
    model = kind(MODEL, provider=OpenAIProvider(openai_client=_openai(url)))
    return Agent(model, model_settings=STEADY, **more)  # type: ignore[arg-type,unused-ignore]


for api in ("chat", "responses"):

    @row("pydantic-ai-slim", f"{api}, output_type")
    async def _(url: str, api: str = api) -> Any:
        return mood((await _pydantic_ai(url, api, output_type=Mood).run("I am so happy today!")).output)


@asks("pydantic-ai-slim", "chat")
async def _(url: str, question: str, choice: str) -> Any:
    from pydantic_ai import DeferredToolRequests, ExternalToolset, ToolDefinition

    memory = ToolDefinition(name="search_memory", parameters_json_schema=SCHEMA)
    tools: Any = {"toolsets": [ExternalToolset([memory])], "output_type": [str, DeferredToolRequests]}
    done = (await _pydantic_ai(url, **({} if choice == "none" else tools)).run(question)).output
    return (
        (done, []) if isinstance(done, str) else (None, [(call.tool_name, call.args) for call in done.calls])
    )


# openai-agents


async def _agents(
    url: str, api: str, question: str, with_tool: bool = False, choice: str | None = None, **more: Any
) -> Any:
    import agents

    agents.set_tracing_disabled(True)
    kind: Any = agents.OpenAIChatCompletionsModel if api == "chat" else agents.OpenAIResponsesModel
    agent: Any = agents.Agent(
        name="annie",
        model=kind(model=MODEL, openai_client=_openai(url)),
        tools=[agents.function_tool(search_memory)] if with_tool else [],
        model_settings=agents.ModelSettings(tool_choice=choice, **STEADY),
        **more,
    )
    return await agents.Runner.run(agent, question)


for api, choice, what in (("chat", None, "a tool"), ("responses", "search_memory", "a named tool")):

    @row("openai-agents", f"{api}, {what} and its result")
    async def _(url: str, api: str = api, choice: str | None = choice) -> Any:
        said = words((await _agents(url, api, TRIP, True, choice)).final_output)
        assert "Friday" in said, said
        return said


for api in ("chat", "responses"):

    @row("openai-agents", f"{api}, output_type")
    async def _(url: str, api: str = api) -> Any:
        return mood((await _agents(url, api, "I am so happy today!", output_type=Mood)).final_output)


@asks("openai-agents")
async def _(url: str, question: str, choice: str) -> Any:
    done = await _agents(url, "chat", question, True, tool_use_behavior="stop_on_first_tool")
    calls = [(item.raw_item.name, None) for item in done.new_items if item.type == "tool_call_item"]
    return (None if calls else done.final_output), calls


# litellm, as a client


@asks("litellm", "openai/", "openai/, a named tool")
async def _(url: str, question: str, choice: str) -> Any:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    where = {"model": "openai/annie", "api_base": f"{url}/v1", "api_key": "none"}
    return heard(await litellm.acompletion(messages=_asked(question), **where, **STEADY, **chosen(choice)))


# LiveKit's plugin


@asks("livekit-plugins-openai", "LLM.chat", "LLM.chat, a named tool")
async def _(url: str, question: str, choice: str) -> Any:
    from livekit.agents import APIConnectOptions, function_tool, llm
    from livekit.plugins import openai

    limits: Any = {"temperature": 0, "max_completion_tokens": 128}
    model = openai.LLM(model=MODEL, base_url=f"{url}/v1", api_key="none", **limits)
    context = llm.ChatContext.empty()
    context.add_message(role="user", content=question)
    more = chosen(choice) | ({} if choice == "none" else {"tools": [function_tool(search_memory)]})
    said, calls = "", []
    patient = APIConnectOptions(max_retry=0, timeout=PATIENT)
    async with model.chat(chat_ctx=context, conn_options=patient, **more) as stream:
        async for chunk in stream:
            if chunk.delta:
                said += chunk.delta.content or ""
                calls += [(made.name, made.arguments) for made in chunk.delta.tool_calls]
    await model.aclose()
    return said, calls


# Pipecat's service, in a pipeline of its own


@asks("pipecat-ai", "OpenAILLMService", "OpenAILLMService, a named tool")
async def _(url: str, question: str, choice: str) -> Any:
    from pipecat.adapters.schemas.function_schema import FunctionSchema
    from pipecat.adapters.schemas.tools_schema import ToolsSchema
    from pipecat.frames.frames import LLMContextFrame, LLMTextFrame
    from pipecat.processors.aggregators.llm_context import LLMContext
    from pipecat.services.openai.llm import OpenAILLMService
    from pipecat.tests.utils import run_test

    settings = OpenAILLMService.Settings(model=MODEL, **STEADY)
    service = OpenAILLMService(api_key="none", base_url=f"{url}/v1", settings=settings)
    calls: list[Any] = []

    async def heard(params: Any) -> None:
        calls.append((params.function_name, dict(params.arguments)))
        await params.result_callback(TOLD)

    service.register_function("search_memory", heard)
    memory = FunctionSchema("search_memory", MEMORY["description"], SCHEMA["properties"], SCHEMA["required"])
    more = chosen(choice) | ({} if choice == "none" else {"tools": ToolsSchema([memory])})
    sent = LLMContextFrame(LLMContext(_asked(question), **more))
    frames, _ = await run_test(service, frames_to_send=[sent], start_timeout=PATIENT)
    return "".join(frame.text for frame in frames if isinstance(frame, LLMTextFrame)), calls


# smolagents


@asks("smolagents")
async def _(url: str, question: str, choice: str) -> Any:
    from smolagents import OpenAIModel, tool

    model = OpenAIModel(MODEL, api_base=f"{url}/v1", api_key="none", client_kwargs={"max_retries": 0})
    asked = {"tools_to_call_from": [tool(search_memory)], "tool_choice": "auto", **STEADY}
    done = await asyncio.to_thread(model.generate, _asked(question), **asked)
    return done.content, [(call.function.name, None) for call in done.tool_calls or []]


# Haystack


@asks("haystack-ai")
async def _(url: str, question: str, choice: str) -> Any:
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import Tool
    from haystack.utils import Secret

    memory = Tool(MEMORY["name"], MEMORY["description"], SCHEMA, function=search_memory)
    where = {"api_base_url": f"{url}/v1", "api_key": Secret.from_token("none"), "max_retries": 0}
    generator = OpenAIChatGenerator(model=MODEL, tools=[memory], generation_kwargs=STEADY, **where)
    (done,) = (await generator.run_async([ChatMessage.from_user(question)]))["replies"]
    return done.text, [(call.tool_name, call.arguments) for call in done.tool_calls]


# agno


@asks("agno")
async def _(url: str, question: str, choice: str) -> Any:
    from agno.agent import Agent
    from agno.models.openai.like import OpenAILike
    from agno.tools import tool

    model = OpenAILike(MODEL, base_url=f"{url}/v1", api_key="none", max_retries=0, **STEADY)
    memory = tool(stop_after_tool_call=True)(search_memory)
    done = await Agent(model=model, tools=[memory], telemetry=False).arun(question)
    calls = [(made.tool_name, made.tool_args) for made in done.tools or []]
    return (None if calls else done.content), calls


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


async def outcome_of(what: str, ask: Row, url: str) -> dict[str, Any]:
    """`said` or `heard`, `refused`, or `failed` with the traceback."""
    try:
        return {"heard" if what in QUESTIONS else "said": await ask(url)}
    except Exception as error:
        code = code_of(error)
        return {"refused": code} if code else {"failed": traceback.format_exc()[-2000:]}


async def _main(package: str, asked: Sequence[str]) -> None:
    version = importlib.metadata.version(package)
    for kind, _, url in (word.partition("=") for word in asked):
        for what in {"decides": QUESTIONS, "few": QUESTIONS[-2:]}.get(kind, [*ROWS[package]]):
            about = {"package": package, "version": version, "url": url, "what": what}
            print(json.dumps(about | await outcome_of(what, ROWS[package][what], url)), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2:]))
