"""The three chat APIs through their official packages: one test is tried with all of them."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import anthropic
import openai
from anthropic.types import RawMessageStreamEvent
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from tests.app.house import GatewayFixture

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


@dataclass(frozen=True)
class Said:
    """What a reply says, whatever its API calls it. `kinds`: its parts; `end`: why it ended, in the API's own word."""

    text: str
    thought: str
    calls: list[tuple[str, Any, str]]
    kinds: list[str]
    end: str | None
    usage: tuple[int, int]
    done: Any


class Chat:
    """`POST /v1/chat/completions`."""

    path = "/v1/chat/completions"
    package: ClassVar[Any] = openai
    id_prefix = "chatcmpl-"
    ends: ClassVar[dict[str, str]] = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}

    def client(self, url: str, key: str = "any") -> Any:
        return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)

    def tools(self, *names: str) -> dict[str, Any]:
        return {"tools": [{"type": "function", "function": {"name": n, "parameters": SCHEMA}} for n in names]}

    def turn(self, text: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": text}]}

    def thinking(self, on: bool) -> dict[str, Any]:
        return {"extra_body": {"chat_template_kwargs": {"enable_thinking": on}}}

    def body(self, **more: Any) -> dict[str, Any]:
        """A raw request."""
        return {"model": "annie", **self.turn("Hello!"), **more}

    async def ask(self, client: Any, stream: bool, **asked: Any) -> Said:
        asked = {"model": "annie", **asked}
        if not stream:
            return self.read(await client.chat.completions.create(**asked))
        asked["stream_options"] = {"include_usage": True}
        async with client.chat.completions.stream(**asked) as it:
            return self.read(await it.get_final_completion())

    async def begin(self, client: Any, **asked: Any) -> Any:
        """The events of a stream, as the package reads them."""
        return await client.chat.completions.create(model="annie", stream=True, **asked)

    def word(self, event: Any) -> str:
        """What an event adds to the text."""
        return event.choices[0].delta.content or "" if event.choices else ""

    def read(self, done: Any) -> Said:
        (choice,) = done.choices
        message = choice.message
        calls = [(c.function.name, json.loads(c.function.arguments), c.id) for c in message.tool_calls or ()]
        thought = (message.model_extra or {}).get("reasoning_content") or ""
        kinds = ["thought"] * bool(thought) + ["text"] * bool(message.content) + ["call"] * len(calls)
        usage = (done.usage.prompt_tokens, done.usage.completion_tokens) if done.usage else (0, 0)
        return Said(message.content or "", thought, calls, kinds, choice.finish_reason, usage, done)

    def answered(self, said: Said, question: str, result: str) -> dict[str, Any]:
        """The next request: the question, the reply, and the result of its call."""
        message = said.done.choices[0].message.model_dump(exclude_none=True)
        told = {"role": "tool", "tool_call_id": said.calls[0][2], "content": result}
        return {"messages": [*self.turn(question)["messages"], message, told]}


class Responses(Chat):
    """`POST /v1/responses`."""

    path = "/v1/responses"
    id_prefix = "resp_"
    ends: ClassVar[dict[str, str]] = {
        "stop": "completed", "length": "max_output_tokens", "repetition": "max_output_tokens",
        "content_filter": "content_filter", "tool_calls": "completed",
    }  # fmt: skip

    def tools(self, *names: str) -> dict[str, Any]:
        return {"tools": [{"type": "function", "name": n, "parameters": SCHEMA} for n in names]}

    def turn(self, text: str) -> dict[str, Any]:
        return {"input": text}

    def thinking(self, on: bool) -> dict[str, Any]:
        return {"reasoning": {"effort": "high" if on else "none"}}

    async def ask(self, client: Any, stream: bool, **asked: Any) -> Said:
        asked = {"model": "annie", **asked}
        if not stream:
            return self.read(await client.responses.create(**asked))
        async with client.responses.stream(**asked) as it:
            events = [event async for event in it]
        return self.read(events[-1].response)  # the package's own way raises for one that is incomplete

    async def begin(self, client: Any, **asked: Any) -> Any:
        return await client.responses.create(model="annie", stream=True, **asked)

    def word(self, event: Any) -> str:
        return event.delta if event.type == "response.output_text.delta" else ""

    def read(self, done: Any) -> Said:
        kinds = {"message": "text", "reasoning": "thought", "function_call": "call"}
        calls = [
            (i.name, json.loads(i.arguments), i.call_id) for i in done.output if i.type == "function_call"
        ]
        thought = "".join(part.text for i in done.output if i.type == "reasoning" for part in i.content)
        end = done.incomplete_details.reason if done.incomplete_details else done.status
        usage = (done.usage.input_tokens, done.usage.output_tokens) if done.usage else (0, 0)
        return Said(done.output_text, thought, calls, [kinds[i.type] for i in done.output], end, usage, done)

    def answered(self, said: Said, question: str, result: str) -> dict[str, Any]:
        made = [i.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for i in said.done.output]
        told = {"type": "function_call_output", "call_id": said.calls[0][2], "output": result}
        return {"input": [{"role": "user", "content": question}, *made, told]}

    def events(self, raw: bytes) -> list[dict[str, Any]]:
        """The events of a stream: named, numbered, known to the package; items open and close in a row."""
        found = _events(raw, TypeAdapter(ResponseStreamEvent))
        assert [event["sequence_number"] for event in found] == [*range(len(found))]
        items: list[Any] = []
        opened: dict[str, Any] = {}
        pieces = ""
        for event in found[2:-1]:
            kind = event["type"].removeprefix("response.")
            assert event["output_index"] == len(items) and bool(opened) == (kind != "output_item.added")
            if kind == "output_item.added":
                opened, pieces = event["item"], ""
            elif kind == "output_item.done":
                assert event["item"]["id"] == opened["id"]
                items.append(event["item"])
                opened = {}
            elif kind.endswith(".delta"):
                pieces += event["delta"]
            elif kind.endswith(("text.done", "arguments.done")):
                assert event.get("text", event.get("arguments")) == pieces
        if found[-1]["type"] != "response.failed":
            assert not opened and found[-1]["response"]["output"] == items
        return found


class Messages(Chat):
    """`POST /v1/messages`."""

    path = "/v1/messages"
    package: ClassVar[Any] = anthropic
    id_prefix = "msg_"
    ends: ClassVar[dict[str, str]] = {
        "stop": "end_turn", "length": "max_tokens", "repetition": "max_tokens",
        "content_filter": "refusal", "tool_calls": "tool_use",
    }  # fmt: skip

    def client(self, url: str, key: str = "any") -> Any:
        return anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0)

    def tools(self, *names: str) -> dict[str, Any]:
        return {"tools": [{"name": n, "input_schema": SCHEMA} for n in names]}

    def turn(self, text: str) -> dict[str, Any]:
        return {**super().turn(text), "max_tokens": 300}

    def thinking(self, on: bool) -> dict[str, Any]:
        switch = {"type": "enabled", "budget_tokens": 2048} if on else {"type": "disabled"}
        return {"thinking": switch, "max_tokens": 4096}

    async def ask(self, client: Any, stream: bool, **asked: Any) -> Said:
        asked = {"model": "annie", "max_tokens": 300, **asked}
        if "temperature" in asked:  # the package no longer has it
            asked["extra_body"] = {"temperature": asked.pop("temperature")}
        if not stream:
            return self.read(await client.messages.create(**asked))
        async with client.messages.stream(**asked) as it:
            return self.read(await it.get_final_message())

    async def begin(self, client: Any, **asked: Any) -> Any:
        return await client.messages.create(model="annie", stream=True, **asked)

    def word(self, event: Any) -> str:
        return event.delta.text if event.type == "content_block_delta" else ""

    def read(self, done: Any) -> Said:
        kinds = {"text": "text", "thinking": "thought", "tool_use": "call"}
        texts = "".join(block.text for block in done.content if block.type == "text")
        thought = "".join(block.thinking for block in done.content if block.type == "thinking")
        calls = [(block.name, block.input, block.id) for block in done.content if block.type == "tool_use"]
        usage = (
            done.usage.input_tokens + (done.usage.cache_read_input_tokens or 0),
            done.usage.output_tokens,
        )
        return Said(
            texts, thought, calls, [kinds[b.type] for b in done.content], done.stop_reason, usage, done
        )

    def answered(self, said: Said, question: str, result: str) -> dict[str, Any]:
        blocks = [block.model_dump(exclude_none=True) for block in said.done.content]
        told = {"type": "tool_result", "tool_use_id": said.calls[0][2], "content": result}
        turns = [{"role": "assistant", "content": blocks}, {"role": "user", "content": [told]}]
        return {**self.turn(question), "messages": [*self.turn(question)["messages"], *turns]}

    def events(self, raw: bytes) -> list[dict[str, Any]]:
        """The events of a stream: named, known to the package; blocks open and close in a row."""
        found = _events(raw, TypeAdapter(RawMessageStreamEvent))
        opened, is_open = -1, False
        for event in found:
            if event["type"] == "content_block_start":
                assert not is_open
                opened, is_open = opened + 1, True
            if "index" in event:
                assert is_open and event["index"] == opened
            is_open = is_open and event["type"] != "content_block_stop"
        assert found[0]["type"] == "message_start"
        if found[-1]["type"] != "error":
            assert not is_open
            assert [event["type"] for event in found[-2:]] == ["message_delta", "message_stop"]
        return found


def _events(raw: bytes, known: TypeAdapter[Any]) -> list[dict[str, Any]]:
    *frames, rest = raw.split(b"\n\n")
    assert rest == b""
    found = []
    for frame in frames:
        name, data = frame.split(b"\n")
        event = json.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        if event["type"] != "error":
            known.validate_python(event, strict=False)
        found.append(event)
    return found


CHAT, RESPONSES, MESSAGES = Chat(), Responses(), Messages()
APIS = (CHAT, RESPONSES, MESSAGES)


async def raw(home: GatewayFixture, api: Chat, **more: Any) -> tuple[int, bytes]:
    """One request without a package."""
    answer = await home.post(api.path, api.body(**more))
    return answer.status, answer.raw
