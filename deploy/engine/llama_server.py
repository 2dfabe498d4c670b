"""llama-server's dialect. Thoughts come as `delta.reasoning_content`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from deploy.core.errors import FlagError
from deploy.core.flags import kv_types
from deploy.engine import questions
from deploy.engine.dialect import DialectSpec, Launch, Thinking, thinking_switch
from deploy.engine.flags import parse_flags
from deploy.engine.formats import format_of
from deploy.engine.questions import Asker, Found, build, count, read_template, render_body
from deploy.engine.spec import EngineSpec, Medium
from deploy.engine.vllm import SAMPLING
from gates.contracts.numerics import Numerics

_SENSES: Final[Mapping[Medium, str]] = {"image": "vision", "audio": "audio"}
_KV_VARIABLES: Final = {"LLAMA_ARG_CACHE_TYPE_K": "K", "LLAMA_ARG_CACHE_TYPE_V": "V"}


def _thinking(thinking: Thinking) -> dict[str, Any]:
    """`reasoning_format` per request pins where thoughts go, whatever the server's flags say.

    With thinking off, no budget of 0 is sent: it forces a model that thinks nevertheless to close the thought at once,
    and the model goes on thinking in plain text. Without a budget the model closes its own tag, which the stream core removes.
    """
    fields = thinking_switch(thinking) | {"reasoning_format": "deepseek"}
    return fields | ({"reasoning_budget_tokens": thinking} if thinking else {})


def _arguments(spec: EngineSpec, launch: Launch) -> tuple[str, ...]:
    named = ("--model", launch.model, "--alias", spec.name)
    # Errors only: llama.cpp's warnings quote the request that they complain about.
    return (*named, *launch.address, "--metrics", "--log-verbosity", "1", *spec.args)


def _odd_flag(args: Sequence[str]) -> str | None:
    try:
        parse_flags("", tuple(args), cores=1)
    except FlagError as error:
        return error.why
    return None


async def _template(asker: Asker) -> Found:
    _, said = await asker.post("/apply-template", render_body(asker.model))
    return read_template(said["prompt"])


async def props(asker: Asker) -> Found:
    """What `/props` shows: context, media, build, and the format that the template teaches."""
    said = await asker.get("/props")
    senses = said.get("modalities") or {}
    media = tuple(medium for medium, sense in _SENSES.items() if senses.get(sense) is True)
    template = said.get("chat_template")
    told = {"taught": format_of(template)} if isinstance(template, str) else {}
    context = count(said["default_generation_settings"]["n_ctx"])
    return {"context": context, "media": media, **told, **build("llama.cpp", said.get("build_info"))}


def _numerics(spec: EngineSpec, log: str, host_gpu: str) -> Numerics:
    """It computes with the types of the file; its arguments and environment set those of the KV cache."""
    named = {_KV_VARIABLES[key]: value for key, value in spec.env or () if key in _KV_VARIABLES}
    types = {"K": "f16", "V": "f16", **named, **kv_types(spec.args)}
    return Numerics(kv_cache=f"K {types['K']}, V {types['V']}")


LLAMA_SERVER: Final = DialectSpec(
    fields=SAMPLING | {"repeat_penalty", "cache_prompt"},
    thinking=_thinking,
    separates=True,
    reasoning_is_answer=False,
    metered={"timings_per_token": True},
    counted={"timings_per_token": True},
    logprobs_beside_tools=False,
    forces_calls=False,
    questions=(
        questions.budget("reasoning_budget_tokens", reasoning_format="deepseek"),
        questions.thinking_off,
        questions.continues(),
        _template,
        props,
    ),
    tokenize=lambda model, text: {"content": text},
    version=("/props", "build_info"),
    metrics="/metrics",  # only with --metrics
    load=("llamacpp:requests_processing", "llamacpp:requests_deferred"),
    work=("llamacpp:n_decode_total",),
    reserved=("--host", "--port", "--alias", "-a", "--api-key", "--api-key-file", "--model", "-m"),
    odd_flag=_odd_flag,
    arguments=_arguments,
    entrypoint=(),  # the images have the server as their entrypoint, under different paths
    gguf=True,
    numerics=_numerics,
)
