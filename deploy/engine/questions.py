"""Questions that find an engine's abilities, common to several dialects. Each returns fields of `Abilities`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpcore2

from deploy.core.engine_access import EngineAccess
from deploy.core.engine_http import ask_engine, plain_word, read_json
from gates.detect.tags import markers

BUDGET = 4
"""The thinking budget of the question in tokens; an answer is expected after it."""
ANSWER_ROOM = 48
BUDGET_QUESTION = "What is 1+1?"
OFF_QUESTIONS = ("Say hello.", "What is 12 times 7?")
OFF_ROOM = 96
"""max_tokens of each answer with thinking off: three or four spoken sentences, two seconds at 50 tokens per second."""
MAX_COUNT = 1 << 31
"""More than any token id or context length."""
BUILD_CHARACTERS = 100
ON, OFF = {"enable_thinking": True}, {"enable_thinking": False}
PROBE_TOOL = {
    "type": "function",
    "function": {"name": "probe", "parameters": {"type": "object", "properties": {}}},
}

Found = dict[str, Any]
"""The fields of `Abilities` that one question has answered."""


class Asker:
    """Sends questions to one engine. Raises HTTP_ERRORS, also for a 5xx: an engine that has just started says nothing by
    it; ValueError for a reply that is no JSON.
    """

    def __init__(self, url: str, model: str, access: EngineAccess) -> None:
        self._url, self._access = url, access
        self.model = model

    async def get(self, path: str) -> Any:
        """GET a path; its JSON."""
        return (await self._ask("GET", path))[1]

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """POST a body; the status and the JSON of the reply."""
        return await self._ask("POST", path, body)

    async def chat(self, text: str, **fields: Any) -> tuple[int, Any]:
        """A non-streaming chat completion for one user message."""
        message = {"role": "user", "content": text}
        body = {"model": self.model, "messages": [message], "temperature": 0, **fields}
        return await self.post("/v1/chat/completions", body)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        async with ask_engine(method, self._url + path, body, self._access) as reply:
            if reply.status >= 500:
                raise httpcore2.RemoteProtocolError(f"HTTP {reply.status}")
            return reply.status, await read_json(reply)


Question = Callable[[Asker], Awaitable[Found]]


def budget(field: str, **extra: Any) -> Question:
    """Whether a thinking budget is accepted and kept: an answer must follow the thought."""

    async def ask(asker: Asker) -> Found:
        limits = {field: BUDGET, "max_tokens": BUDGET + ANSWER_ROOM, "chat_template_kwargs": ON}
        status, said = await asker.chat(BUDGET_QUESTION, **limits, **extra)
        if status == 400:
            return {"budgets": False}
        message = said["choices"][0]["message"]
        fields = [name for name in ("reasoning", "reasoning_content") if message.get(name)]
        return {
            "budgets": bool(message.get("content") or message.get("tool_calls")),
            "reasoning_field": fields[0] if fields else None,
        }

    return ask


async def thinking_off(asker: Asker) -> Found:
    """Whether thinking can be switched off (vLLM #19839), tried with a greeting and a sum. Only a complete answer shows it."""
    replies = [await asker.chat(q, max_tokens=OFF_ROOM, chat_template_kwargs=OFF) for q in OFF_QUESTIONS]
    choices = [said["choices"][0] for _, said in replies]
    if any(_thinks(choice["message"]) for choice in choices):
        return {"off_works": False}
    ended = all(c.get("finish_reason") == "stop" and c["message"].get("content") for c in choices)
    return {"off_works": True} if ended else {}


def _thinks(message: Mapping[str, Any]) -> bool:
    if message.get("reasoning") or message.get("reasoning_content"):
        return True
    return any(markers(message.get("content") or ""))


def continues(**fields: Any) -> Question:
    """Whether an assistant message at the end is continued; some builds answer 400 (llama.cpp #20861)."""

    async def ask(asker: Asker) -> Found:
        turns = [{"role": "user", "content": "Say hello."}, {"role": "assistant", "content": "Hello"}]
        body = {"model": asker.model, "messages": turns, "max_tokens": 1, "temperature": 0}
        sent = {**body, "chat_template_kwargs": OFF, **fields}
        status, said = await asker.post("/v1/chat/completions", sent)
        return {"continues": status != 400 and bool(said["choices"])}

    return ask


def render_body(model: str) -> dict[str, Any]:
    """A conversation to be rendered by the engine's chat template, with a tool and with thinking on."""
    message = {"role": "user", "content": "Say hello."}
    return {"model": model, "messages": [message], "tools": [PROBE_TOOL], "chat_template_kwargs": ON}


def read_template(prompt: str) -> Found:
    """The abilities that the rendered `render_body`, or else the chat template, shows."""
    calls = "xml" if "<function=" in prompt else "hermes" if "<tool_call>" in prompt else None
    return {"calls": calls}


def tokenized_template(field: str) -> Question:
    """The chat template of an engine that tokenizes a conversation; `field` of `/detokenize` holds the text."""

    async def ask(asker: Asker) -> Found:
        _, tokens = await asker.post("/tokenize", render_body(asker.model))
        _, said = await asker.post("/detokenize", {"model": asker.model, "tokens": tokens["tokens"]})
        return read_template(said[field])

    return ask


async def listed_context(asker: Asker) -> Found:
    """The context length in `/v1/models`."""
    models = (await asker.get("/v1/models"))["data"]
    return {"context": count(next((m["max_model_len"] for m in models if m["id"] == asker.model), None))}


def stated_build(name: str, path: str) -> Question:
    """The version that a path states."""

    async def ask(asker: Asker) -> Found:
        return build(name, (await asker.get(path))["version"])

    return ask


def build(name: str, version: Any) -> Found:
    """An engine's build as it may be shown."""
    cut = version[:BUILD_CHARACTERS] if isinstance(version, str) else None
    return {"build": f"{name} {cut}" if plain_word(cut, BUILD_CHARACTERS) else None}


def count(value: Any) -> int:
    """A number of tokens, or a token's id. Raises ValueError."""
    if type(value) is not int or not 0 <= value < MAX_COUNT:
        raise ValueError("not a count")
    return value
