"""What a dialect of OpenAI's API is: one object that holds all the differences between engines.

A new dialect is one file beside this one, a row in `deploy.engine.dialects`, and a name in `gates.contracts.dialect`.
What engines send is parsed in the same way for all dialects (`gates.reply.chunks`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.engine.questions import Question
from deploy.engine.spec import EngineSpec
from gates.contracts.numerics import Numerics

Thinking = int | None
"""0: off. None: on, without a budget. N > 0: on, at most N tokens."""


def thinking_switch(thinking: Thinking) -> dict[str, Any]:
    """The chat template's switch. The template compares with the boolean false, so "false" and 0 leave thinking on."""
    return {"chat_template_kwargs": {"enable_thinking": thinking != 0}}


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a server is started: what it loads, and where it listens. `serve`: by `vllm serve`, which takes the model first."""

    model: str
    host: str
    port: int
    serve: bool = True

    @property
    def address(self) -> tuple[str, ...]:
        """The flags that every server takes."""
        return ("--host", self.host, "--port", str(self.port))


def no_odd_flag(args: Sequence[str]) -> str | None:
    """For a server whose flags are not known here."""
    return None


@dataclass(frozen=True, kw_only=True)
class DialectSpec:
    """One engine family.

    Requests
        fields: request fields beyond COMMON_FIELDS that it takes.
        thinking: the request fields that make it think, or not.
        has_thinking_switch: it takes `chat_template_kwargs`; strict servers refuse unknown fields.
        separates: it puts thoughts in a separate field whenever thinking is on.
        reasoning_is_answer: with thinking off it may put the answer in the reasoning field.
        prefill: the request fields that make it continue an assistant message at the end.
        metered, counted: the request fields that make it report generated tokens, and a running count of them.
        logprobs_beside_tools: it sends log-probabilities in a stream that may hold calls.
        forces_calls: where a call is required, its reply begins with one.
        questions: what it is asked after its start, to find its abilities.

    Paths
        tokenize: the body for `/tokenize` of a model and a text.
        version: states its build, under this key.
        metrics: its Prometheus metrics; `load` names its gauges of running and waiting requests, `work` its counters of what it computed.
        gaps: checks of the conformance suite that it cannot pass, because it has no field for what they need, and why.

    Servers that the gateway starts
        reserved: flags that the driver sets itself.
        odd_flag: what is wrong with its flags, as far as they are known here; None: nothing.
        arguments: what follows the name of the server's program.
        entrypoint: of a container; () for the image's own, None if the docker driver cannot start it.
        workdir: of a container.
        gguf: it loads one .gguf file; others load a folder.
        takes_share: it takes a share of the GPU's memory for its KV cache, by --gpu-memory-utilization.
        numerics: what it computes with, from its configuration and its log before the first request.
    """

    fields: frozenset[str] = frozenset()
    thinking: Callable[[Thinking], dict[str, Any]] = thinking_switch
    has_thinking_switch: bool = True
    separates: bool = False
    reasoning_is_answer: bool = True
    prefill: Mapping[str, Any] = field(default_factory=dict)
    metered: Mapping[str, Any] = field(default_factory=dict)
    counted: Mapping[str, Any] = field(default_factory=dict)
    logprobs_beside_tools: bool = True
    forces_calls: bool = True
    questions: tuple[Question, ...] = ()
    tokenize: Callable[[str, str], dict[str, Any]] | None = None
    version: tuple[str, str] | None = None
    metrics: str | None = None
    load: tuple[str, ...] = ()
    work: tuple[str, ...] = ()
    gaps: Mapping[str, str] = field(default_factory=dict)
    reserved: tuple[str, ...] = ()
    odd_flag: Callable[[Sequence[str]], str | None] = no_odd_flag
    arguments: Callable[[EngineSpec, Launch], tuple[str, ...]]
    entrypoint: tuple[str, ...] | None = None
    workdir: str = ""
    gguf: bool = False
    takes_share: bool = False
    numerics: Callable[[EngineSpec, str, str], Numerics]
