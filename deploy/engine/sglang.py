"""SGLang's dialect. Thoughts come as `delta.reasoning_content` with a reasoning parser, else in the text."""

from typing import Final

from deploy.engine import questions
from deploy.engine.dialect import DialectSpec, Launch
from deploy.engine.questions import ANSWER_ROOM, BUDGET, BUDGET_QUESTION, ON, Asker, Found
from deploy.engine.spec import EngineSpec
from deploy.engine.vllm import SAMPLING, stated_kv_cache, tokenize
from gates.contracts.numerics import Numerics

_PREFILL: Final = {"continue_final_message": True}


def _arguments(spec: EngineSpec, launch: Launch) -> tuple[str, ...]:
    named = ("--model-path", launch.model, "--served-model-name", spec.name)
    return (*named, *launch.address, *spec.args)


async def _thoughts(asker: Asker) -> Found:
    """Where it puts a thought. It takes no budget: one needs a logits processor, pickled into the request."""
    _, said = await asker.chat(BUDGET_QUESTION, max_tokens=BUDGET + ANSWER_ROOM, chat_template_kwargs=ON)
    thought = said["choices"][0]["message"].get("reasoning_content")
    return {"budgets": False, "reasoning_field": "reasoning_content" if thought else None}


def _numerics(spec: EngineSpec, log: str, host_gpu: str) -> Numerics:
    """Its log does not name the kernel of a quantized layer."""
    return Numerics(kv_cache=stated_kv_cache(spec))


SGLANG: Final = DialectSpec(
    fields=SAMPLING | {"cache_salt", "priority"},
    prefill=_PREFILL,
    questions=(
        _thoughts,
        questions.thinking_off,
        questions.continues(**_PREFILL),
        questions.tokenized_template("text"),
        questions.listed_context,
        questions.stated_build("sglang", "/server_info"),
    ),
    tokenize=tokenize,
    version=("/server_info", "version"),
    metrics="/metrics",  # only with --enable-metrics
    load=("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    work=("sglang:prompt_tokens_total", "sglang:generation_tokens_total"),
    gaps=dict.fromkeys(
        ("thinking budget 1", "thinking budget 8"),
        "SGLang's API takes no budget of thought, and does not name the tokens that an answer could go on from",
    ),
    reserved=("--host", "--port", "--served-model-name", "--api-key", "--model-path", "--model"),
    arguments=_arguments,
    numerics=_numerics,
)
