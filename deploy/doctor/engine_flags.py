"""Checks of each engine's flags: parsers, kernels, and unsafe switches. Pure."""

from collections.abc import Mapping
from typing import Final, cast

from deploy.core.flags import flag_value
from deploy.doctor.evidence import EngineFacts, Evidence, ModelFacts
from deploy.doctor.host import is_spark
from deploy.doctor.result import CheckResult, engine_check, fail, ok, unknown, warn
from deploy.engine.dialect import no_odd_flag
from deploy.engine.dialects import DIALECTS
from gates.contracts.dialect import Dialect

PARSERS: Final[Mapping[str, tuple[str, ...]]] = {
    "hermes": ("hermes",),
    "xml": ("qwen3_coder", "qwen3_xml"),
}
"""vLLM's parsers for each form of calls that a Qwen template asks for."""
STARTED: Final = ("docker", "process")
"""The drivers that start a server with the flags of its own command line."""


Flags = tuple[str, ...]


def _ours(evidence: Evidence, engine: str) -> EngineFacts | None:
    """An engine that the gateway starts."""
    spec = evidence.engines[engine]
    return None if spec.driver == "url" else spec


def _vllm(evidence: Evidence, engine: str) -> Flags | None:
    """The flags of a vLLM engine that the gateway starts; None for any other."""
    spec = evidence.engines[engine]
    return spec.args if spec.dialect == "vllm" and spec.driver in STARTED else None


@engine_check("engine.flags", _ours)
def _known(evidence: Evidence, engine: str, spec: EngineFacts) -> CheckResult | None:
    """Flags that the driver sets itself, and flags that the server does not know."""
    dialect = DIALECTS.get(cast("Dialect", spec.dialect))  # the spec says whether it is one
    if dialect is None or dialect.odd_flag is no_odd_flag:
        return unknown("a server that is not known here", "its own --help")
    taken = next((word for word in spec.args if word.partition("=")[0] in dialect.reserved), None)
    if taken and spec.driver in STARTED:
        return fail(f"{taken} is set by the driver and cannot be given", "take it out of args")
    odd = dialect.odd_flag(spec.args)
    if odd and spec.driver == "embedded":
        return fail(odd, "correct args in the configuration")
    if odd:
        return warn(f"{odd}; the server that is started may know it", "its own --help")
    return ok(" ".join(spec.args) or "none")


@engine_check("engine.tool_parser", _vllm)
def _tool_parser(evidence: Evidence, engine: str, args: Flags) -> CheckResult | None:
    parser, calls = (
        flag_value(args, "--tool-call-parser"),
        evidence.models.get(engine, ModelFacts(path="")).calls,
    )
    right = PARSERS.get(calls or "", ())
    wanted = f"args: --enable-auto-tool-choice --tool-call-parser {right[0] if right else 'qwen3_coder'}"
    if not parser:
        return warn("no parser: calls come as text, and the gateway has to find them there", wanted)
    if flag_value(args, "--enable-auto-tool-choice") is None:
        return fail(
            f"{parser} without --enable-auto-tool-choice: vLLM refuses every request with tools", wanted
        )
    if right and parser not in right:
        # A model trained on hermes calls writes them even under a template that asks for XML (docs/spark.md).
        said, state = (
            f"{parser}, and the chat template asks for {calls} calls",
            warn if parser == "hermes" else fail,
        )
        return state(
            f"{said}: if the model follows it, they come as text",
            f"{wanted}; `manners engine check URL` shows which form it writes",
        )
    return ok(f"{parser}{f' for {calls} calls' if calls else ''}")


@engine_check("engine.reasoning_parser", _vllm)
def _reasoning_parser(evidence: Evidence, engine: str, args: Flags) -> CheckResult | None:
    parser = flag_value(args, "--reasoning-parser")
    if not parser:
        return warn(
            "none: thoughts come as text, and a fast first token may be a thought",
            "args: --reasoning-parser qwen3",
        )
    return ok(parser)


@engine_check("engine.graphs", _vllm)
def _eager(evidence: Evidence, engine: str, args: Flags) -> CheckResult | None:
    if flag_value(args, "--enforce-eager") is not None:
        return warn(
            "--enforce-eager: decoding fell from 59 to 26 tok/s with it on a Spark (another model)",
            "leave it out: CUDA graphs work on SM 12.1 with vLLM 0.24",
        )
    return ok("CUDA graphs")


@engine_check("engine.quantization", _vllm)
def _method(evidence: Evidence, engine: str, args: Flags) -> CheckResult | None:
    model, method = evidence.models.get(engine, ModelFacts(path="")), flag_value(args, "--quantization")
    if method is None or not (model.quant_algo or model.config_quant_algo or "").endswith("NVFP4"):
        return None
    if method != "modelopt_fp4":
        return warn(
            f"--quantization {method}: vLLM 0.24 goes by what the folder says, older ones by this",
            "args: --quantization modelopt_fp4, or leave it out",
        )
    return ok(method)


@engine_check("engine.language_only", _vllm)
def _language_only(evidence: Evidence, engine: str, args: Flags) -> CheckResult | None:
    model = evidence.models.get(engine, ModelFacts(path=""))
    if not any("ConditionalGeneration" in name for name in model.architectures):
        return None
    if flag_value(args, "--language-model-only") is None:
        return warn(
            f"{model.architectures[0]} starts its vision encoder, for which a text model has no weights",
            "args: --language-model-only",
        )
    return ok("--language-model-only")


@engine_check("engine.unsafe", _vllm)
def _unsafe(evidence: Evidence, engine: str, args: Flags) -> CheckResult | None:
    if flag_value(args, "--trust-remote-code") is not None:
        return fail(
            "--trust-remote-code runs whatever the model's folder brings",
            "leave it out; the tokenizer's class is the usual reason for it, and it does not help there",
        )
    if flag_value(args, "--enable-sleep-mode") is not None and is_spark(evidence):
        return fail(
            "--enable-sleep-mode: waking up kills the engine, or the host (vllm#50011)",
            "leave it out on a GB10",
        )
    return ok("nothing unsafe is switched on")
