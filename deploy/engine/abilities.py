"""What an engine supports with its build and flags, found by trying it once after its start.

Neither a version nor a dialect shows it: a vLLM without `--tool-call-parser` refuses callable tools,
one without `--reasoning-parser` refuses a thinking budget, and other builds differ.
An answer that is late or unusable leaves the default.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import httpx2

from deploy.core.engine_access import OPEN, EngineAccess
from deploy.core.engine_http import engine_client, plain_word, read_json
from deploy.engine.formats import format_of, misfit
from deploy.engine.samples import SAMPLES
from deploy.engine.spec import Medium
from gates.contracts.dialect import Dialect
from gates.detect.tags import tags

BUDGET = 4
"""The thinking budget of the probe in tokens; an answer is expected after it."""
ANSWER_ROOM = 48
BUDGET_QUESTION = "What is 1+1?"
OFF_QUESTIONS = ("Say hello.", "What is 12 times 7?")
MEDIA_QUESTION = "What is this?"
OFF_ROOM = 96
"""max_tokens of each answer with thinking off: three or four spoken sentences, two seconds at 50 tokens per second."""
NO_SUCH_REPLY = "chatcmpl-probe"
ABILITIES_SECONDS = 10.0
"""How long an engine may take to answer all questions; at 25 tokens per second it needs three seconds."""
ROUNDS = 2
SHOWN_SECONDS = 2.0
CLOSER = "</think>"
CLOSING = f"\n{CLOSER}\n\n"
"""The text that closes a thought which the gateway ends, as in the chat template of Qwen3 (https://huggingface.co/Qwen)."""
CLOSING_TOKENS = 64
MAX_COUNT = 1 << 31
"""More than any token id or context length."""
BUILD_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What an engine supports. The defaults are for what could not be tried.

    parses_tools: it accepts tools; otherwise only with `tool_choice: none`.
    budgets: it ends a thought after the number of tokens in the request. None: not tried.
    ends_thoughts: a separate request can end a running thought.
    closing: the token ids of `CLOSING`, for an engine that continues from token ids; () otherwise.
    closer: the id of the single token that ends a thought.
    context: the longest prompt and reply together, in tokens.
    reasoning_field: the field of a message that holds thoughts; None: they are in the text.
    calls: the form of tool calls that the chat template asks for.
    format: how its model writes thoughts and calls (`deploy.engine.formats`); "" if nothing told.
    taught: the format that its chat template teaches, in the same way.
    opens_thought: the prompt opens the thought, so that the model writes no opening tag.
    off_works: it does not think when thinking is off. None: not shown.
    continues: it continues an assistant message at the end of the prompt.
    build: its name and version.
    media: what it takes in a message besides text.
    """

    parses_tools: bool = True
    budgets: bool | None = None
    ends_thoughts: bool = False
    closing: tuple[int, ...] = ()
    closer: int | None = None
    context: int | None = None
    reasoning_field: Literal["reasoning", "reasoning_content"] | None = None
    calls: Literal["hermes", "xml"] | None = None
    format: str = ""
    taught: str = ""
    opens_thought: bool | None = None
    off_works: bool | None = None
    continues: bool | None = None
    build: str | None = None
    media: tuple[Medium, ...] = ()

    @property
    def misfit(self) -> str:
        """Why `format` is not what the template teaches, and what to do; "" if nothing is known to be wrong."""
        return misfit(self.format, self.taught)


Found = dict[str, Any]
"""The fields of `Abilities` that one question has answered."""


class _Asker:
    """Sends questions to one engine."""

    def __init__(self, client: httpx2.AsyncClient, url: str, model: str) -> None:
        self._client = client
        self._url = url
        self.model = model

    async def get(self, path: str) -> Any:
        """GET a path; its JSON."""
        async with self._client.stream("GET", self._url + path) as reply:
            _check_is_answered(reply)
            return await read_json(reply)

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """POST a body; the status and the JSON of the reply."""
        async with self._client.stream("POST", self._url + path, json=body) as reply:
            _check_is_answered(reply)
            return reply.status_code, await read_json(reply)

    async def chat(self, text: str, **fields: Any) -> tuple[int, Any]:
        """A non-streaming chat completion for one user message."""
        message = {"role": "user", "content": text}
        body = {"model": self.model, "messages": [message], "temperature": 0, **fields}
        return await self.post("/v1/chat/completions", body)


def _check_is_answered(reply: httpx2.Response) -> None:
    """Raise HTTPStatusError for a 5xx: from an engine that has just started, it says nothing about its abilities."""
    if reply.is_server_error:
        reply.raise_for_status()


async def abilities(
    url: str,
    *,
    model: str,
    dialect: Dialect,
    deadline_s: float,
    media: tuple[Medium, ...] | None = None,
    format: str | None = None,
    taught: str = "",
    access: EngineAccess = OPEN,
) -> Abilities:
    """Find out what the engine at `url` supports; all questions are sent concurrently, each for at most `deadline_s` seconds.

    A question that got no answer or a 5xx is asked once more: an engine that has just started
    may compile during its first requests. `media` are known, and not asked for; None: they are not known. `format`
    is what the configuration states, `taught` what the template beside the weights teaches; llama-server shows the one that it uses.
    """
    found: Found = {}
    open_questions: Sequence[Question] = QUESTIONS[dialect]
    if media is not None:
        open_questions = [ask for ask in open_questions if ask is not _vllm_media]
    async with engine_client(access) as client:
        asker = _Asker(client, url, model)
        for _ in range(ROUNDS):
            answers = await asyncio.gather(*(_settle(ask, asker, deadline_s) for ask in open_questions))
            for answer in answers:
                found |= answer or {}
            again = [ask for ask, answer in zip(open_questions, answers, strict=True) if answer is None]
            open_questions = again
    if media is not None:
        found["media"] = media
    found["taught"] = found.get("taught") or taught
    found["format"] = format or found["taught"]
    return replace(Abilities(), **found)


async def shown_format(url: str, access: EngineAccess) -> str:
    """The format that a running llama-server's template teaches; "" if it shows none within two seconds."""
    async with engine_client(access) as client:
        found = await _settle(_llama_props, _Asker(client, url, ""), SHOWN_SECONDS)
    return str((found or {}).get("taught", ""))


Question = Callable[[_Asker], Awaitable[Found]]


async def _settle(question: Question, asker: _Asker, deadline_s: float) -> Found | None:
    """What a question found: {} if the answer was unusable, None if there was no answer."""
    try:
        async with asyncio.timeout(deadline_s):
            return await question(asker)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        return {}
    except (httpx2.HTTPError, TimeoutError):
        return None


_PROBE_TOOL = {
    "type": "function",
    "function": {"name": "probe", "parameters": {"type": "object", "properties": {}}},
}
_ON, _OFF = {"enable_thinking": True}, {"enable_thinking": False}


async def _tools(asker: _Asker) -> Found:
    """Whether tools are accepted; vLLM refuses callable tools if it was started without a parser."""
    status, said = await asker.chat(
        "Say hello.", tools=[_PROBE_TOOL], chat_template_kwargs=_OFF, max_tokens=1
    )
    return {"parses_tools": not (status == 400 and "--tool-call-parser" in str(said))}


def _budget(field: str, **extra: Any) -> Question:
    """Whether a thinking budget is accepted and kept: an answer must follow the thought."""

    async def ask(asker: _Asker) -> Found:
        limits = {field: BUDGET, "max_tokens": BUDGET + ANSWER_ROOM, "chat_template_kwargs": _ON}
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


async def _off(asker: _Asker) -> Found:
    """Whether thinking can be switched off (vLLM #19839), tried with a greeting and a sum.

    Only a complete answer shows it, because the closing tag of a thought in plain text may
    come at any point. Without a complete answer nothing is known.
    """
    replies = [await asker.chat(q, max_tokens=OFF_ROOM, chat_template_kwargs=_OFF) for q in OFF_QUESTIONS]
    choices = [said["choices"][0] for _, said in replies]
    if any(_thinks(choice["message"]) for choice in choices):
        return {"off_works": False}
    ended = all(c.get("finish_reason") == "stop" and c["message"].get("content") for c in choices)
    return {"off_works": True} if ended else {}


def _thinks(message: Mapping[str, Any]) -> bool:
    if message.get("reasoning") or message.get("reasoning_content"):
        return True
    return any(tags(message.get("content") or ""))


def _prefill(**fields: Any) -> Question:
    """Whether an assistant message at the end is continued; some builds answer 400 (llama.cpp #20861)."""

    async def ask(asker: _Asker) -> Found:
        turns = [{"role": "user", "content": "Say hello."}, {"role": "assistant", "content": "Hello"}]
        body = {"model": asker.model, "messages": turns, "max_tokens": 1, "temperature": 0}
        sent = {**body, "chat_template_kwargs": _OFF, **fields}
        status, said = await asker.post("/v1/chat/completions", sent)
        if status == 400:
            return {"continues": False}
        return {"continues": bool(said["choices"])}

    return ask


def _template(prompt: str) -> Found:
    """What a prompt rendered with a tool and with thinking on shows of the chat template."""
    if "<function=" in prompt:
        return {"calls": "xml", "opens_thought": prompt.rstrip().endswith("<think>")}
    form = {"calls": "hermes"} if "<tool_call>" in prompt else {}
    return {**form, "opens_thought": prompt.rstrip().endswith("<think>")}


async def _llama_template(asker: _Asker) -> Found:
    _, said = await asker.post("/apply-template", _render_body(asker.model))
    return _template(said["prompt"])


async def _vllm_template(asker: _Asker) -> Found:
    _, tokens = await asker.post("/tokenize", _render_body(asker.model))
    _, said = await asker.post("/detokenize", {"model": asker.model, "tokens": tokens["tokens"]})
    return _template(said["prompt"])


def _render_body(model: str) -> dict[str, Any]:
    message = {"role": "user", "content": "Say hello."}
    return {"model": model, "messages": [message], "tools": [_PROBE_TOOL], "chat_template_kwargs": _ON}


async def _vllm_closing(asker: _Asker) -> Found:
    ids = [await _ids(asker, text) for text in (CLOSING, CLOSER)]
    if max(len(one) for one in ids) > CLOSING_TOKENS:
        return {}
    return {"closing": ids[0], "closer": ids[1][0] if len(ids[1]) == 1 else None}


async def _ids(asker: _Asker, text: str) -> tuple[int, ...]:
    body = {"model": asker.model, "prompt": text, "add_special_tokens": False}
    _, said = await asker.post("/tokenize", body)
    return tuple(_count(token) for token in said["tokens"])


def _count(value: Any) -> int:
    """A number of tokens, or a token's id. Raises ValueError."""
    if type(value) is not int or not 0 <= value < MAX_COUNT:
        raise ValueError("not a count")
    return value


def _build(name: str, version: Any) -> Found:
    cut = version[:BUILD_CHARACTERS] if isinstance(version, str) else None
    return {"build": f"{name} {cut}" if plain_word(cut, BUILD_CHARACTERS) else None}


async def _vllm_context(asker: _Asker) -> Found:
    models = (await asker.get("/v1/models"))["data"]
    return {"context": _count(next((m["max_model_len"] for m in models if m["id"] == asker.model), None))}


async def _sglang_thoughts(asker: _Asker) -> Found:
    """Where it puts a thought. It takes no budget, and does not say which tokens it made: nothing to go on from."""
    _, said = await asker.chat(BUDGET_QUESTION, max_tokens=BUDGET + ANSWER_ROOM, chat_template_kwargs=_ON)
    thought = said["choices"][0]["message"].get("reasoning_content")
    return {"budgets": False, "reasoning_field": "reasoning_content" if thought else None}


async def _sglang_template(asker: _Asker) -> Found:
    _, tokens = await asker.post("/tokenize", _render_body(asker.model))
    _, said = await asker.post("/detokenize", {"model": asker.model, "tokens": tokens["tokens"]})
    return _template(said["text"])


async def _sglang_build(asker: _Asker) -> Found:
    return _build("sglang", (await asker.get("/server_info"))["version"])


async def _vllm_build(asker: _Asker) -> Found:
    return _build("vllm", (await asker.get("/version"))["version"])


async def _llama_props(asker: _Asker) -> Found:
    props = await asker.get("/props")
    context = _count(props["default_generation_settings"]["n_ctx"])
    senses = props.get("modalities") or {}
    media = tuple(medium for medium, sense in _SENSES.items() if senses.get(sense) is True)
    template = props.get("chat_template")
    told = {"taught": format_of(template)} if isinstance(template, str) else {}
    return {"context": context, "media": media, **told, **_build("llama.cpp", props.get("build_info"))}


_SENSES: Mapping[Medium, str] = {"image": "vision", "audio": "audio"}
"""llama-server's words."""


async def _vllm_media(asker: _Asker) -> Found:
    """Which media it takes, tried with a grey square and a moment of silence: vLLM tells it nowhere, and refuses with 400."""
    said = await asyncio.gather(*(_takes(asker, part) for part in SAMPLES.values()))
    return {"media": tuple(medium for medium, takes in zip(SAMPLES, said, strict=True) if takes)}


def shown(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conversation that tries one of `SAMPLES`."""
    return [{"role": "user", "content": [part, {"type": "text", "text": MEDIA_QUESTION}]}]


async def _takes(asker: _Asker, part: Mapping[str, Any]) -> bool:
    body = {"model": asker.model, "messages": shown(part), "max_tokens": 1, "chat_template_kwargs": _OFF}
    try:
        status, said = await asker.post("/v1/chat/completions", body)
        return status == 200 and bool(said["choices"])
    except (ValueError, LookupError, TypeError):
        return False


async def _llama_control(asker: _Asker) -> Found:
    """Whether a running thought can be ended: with the endpoint, the error is about the unknown id, not the path."""
    body = {"id": NO_SUCH_REPLY, "action": "reasoning_end"}
    status, said = await asker.post("/v1/chat/completions/control", body)
    return {"ends_thoughts": status != 404 and "success" in said}


QUESTIONS: Mapping[Dialect, tuple[Question, ...]] = {
    "vllm": (
        _tools, _budget("thinking_token_budget"), _off,
        _prefill(continue_final_message=True, add_generation_prompt=False),
        _vllm_template, _vllm_closing, _vllm_context, _vllm_build, _vllm_media,
    ),
    "llama-server": (
        _budget("reasoning_budget_tokens", reasoning_format="deepseek"), _off,
        _prefill(), _llama_template, _llama_props, _llama_control,
    ),
    "sglang": (
        _sglang_thoughts, _off, _prefill(continue_final_message=True), _sglang_template, _vllm_context, _sglang_build,
    ),
    "openai": (),
}  # fmt: skip
"""The questions for each dialect. None for `openai`: strict servers reject unknown fields."""
