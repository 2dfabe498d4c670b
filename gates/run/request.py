"""Builds request bodies from a case, its sampling parameters and the arm's variant. Pure.

Every sampling parameter is set: for missing ones engines use the model's `generation_config.json` (vLLM #43009) or their own.
"""

import hashlib
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.dialect import GATE_DIALECTS
from gates.contracts.sample import Mode, SampleKey
from gates.policy.policy import Policy
from gates.run.target import Arm, Target, Variant


def build_body(
    case: Case, sampling: Sampling, target: Target, variant: Variant, mode: Mode
) -> dict[str, Any]:
    """The body for `POST /v1/chat/completions`. Raises RunError: the dialect has no field for a parameter."""
    dialect = GATE_DIALECTS[target.dialect]
    body: dict[str, Any] = {
        "model": target.served_model,
        "messages": list(with_system(case.messages, variant.system_suffix)),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": sampling.seed,
        "max_tokens": sampling.max_tokens,
        **dialect.sampling(sampling),
        **dialect.thinking(variant.thinking),
        "stream": mode == "stream",
    }
    if mode == "stream":
        body["stream_options"] = {"include_usage": True}
    if case.tools and variant.tools:
        body["tools"] = list(case.tools)
        if case.tool_choice is not None:
            body["tool_choice"] = case.tool_choice
    return body


def with_system(messages: Iterable[Mapping[str, Any]], text: str) -> tuple[Mapping[str, Any], ...]:
    """The messages with `text` appended to their system prompt, or with `text` as the system prompt if there is none."""
    first, *rest = messages = tuple(messages)
    if not text:
        return messages
    if first["role"] != "system":
        return ({"role": "system", "content": text}, *messages)
    return ({**first, "content": f"{first['content']}\n\n{text}"}, *rest)


def encode_body(body: Mapping[str, Any]) -> bytes:
    """The bytes that are sent. Keys keep their order, because chat templates print tools in it."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def body_digest(body: Mapping[str, Any]) -> str:
    """`sha256:` and 64 hex digits over the bytes that are sent."""
    return f"sha256:{hashlib.sha256(encode_body(body)).hexdigest()}"


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request to the arm that its key names, after the body `before` (whose reply is discarded) and `wait_s` seconds of silence.
    What is not `recorded` warms an engine up and is repeated when a run is resumed.
    """

    key: SampleKey
    request: Mapping[str, Any]
    before: Mapping[str, Any] | None = None
    wait_s: float = 0.0
    recorded: bool = True


def planned_request(
    suite: str, arm: Arm, case: Case, sampling: Sampling, repeat: int, mode: Mode = "stream", **more: Any
) -> PlannedRequest:
    """One request for a case; `suite` is the suite's digest, `more` goes to `PlannedRequest`. Raises RunError."""
    target = arm.target
    body = build_body(case, sampling, target, arm.variant, mode)
    key = SampleKey(suite, target.artefact, target.engine, body_digest(body), arm.name, case.id, repeat, mode)
    return PlannedRequest(key, body, **more)


def pending_requests(
    requests: Iterable[PlannedRequest], present: Container[SampleKey]
) -> tuple[PlannedRequest, ...]:
    """The requests that are still to be made: no sample twice, and warm-ups only of arms with samples left."""
    left = [a for a in requests if not a.recorded or a.key not in present]
    arms = {a.key.arm for a in left if a.recorded}
    return tuple(a for a in left if a.key.arm in arms)


def plan_requests(
    suite: Suite,
    arms: Sequence[Arm],
    *,
    policy: Policy | None = None,
    stage: int = 1,
    gates: Container[str] | None = None,
    greedy: bool = False,
) -> tuple[PlannedRequest, ...]:
    """Every request of a stage, named cases first, one case to all arms before the next. `gates` keeps the cases of one of them. Raises RunError.

    A case is asked with the repeats that its gates count in the policy (without one, once as the suite has it), each with a seed of
    its own; `greedy`: only at temperature 0. Otherwise each case of the gate `tools` is asked once more without streaming, as engines have
    a second tool parser for that (vLLM #28297, #18108).
    """
    base, made = suite.sampling, list[PlannedRequest]()
    temperatures = policy.run.temperatures if policy else (base.temperature,)
    samplings = [replace(base, temperature=t, seed=base.seed + i) for i, t in enumerate(temperatures)]
    for case in sorted(suite.cases, key=lambda case: not case.named):
        wanted = [gate for gate in case.gates if gates is None or gate in gates]
        if case.stage != stage or not wanted:
            continue
        asked = policy.asked(wanted) if policy else (0,)
        if greedy:
            asked = tuple(i for i in asked if i == temperatures.index(0.0))
        for arm in arms:
            made += [planned_request(suite.digest, arm, case, samplings[i], i) for i in asked]
            if not greedy and asked and case.tools and "tools" in case.gates and arm.variant.tools:
                coolest = min(asked, key=lambda i: samplings[i].temperature)
                made.append(planned_request(suite.digest, arm, case, samplings[coolest], coolest, "whole"))
    return tuple(made)
