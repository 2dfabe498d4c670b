"""Our samples as a log that Inspect's viewer reads. Pure; `inspect_ai` is not needed to write it.

One log is one arm: its cases as samples, its repeats as epochs, the gates as scorers. The gates do
not run in Inspect, which keeps no time of the first token and repairs the arguments of tool calls;
this is for people who want to page through replies in a viewer that they know.

A score is of a case, not of a repeat: every epoch of a case carries what the case's gates made of
it. What is not known to be bad or lost was ok, as in the report.

The format is version 2 of EvalLog, the `.json` form: inspect_ai 0.3.285, `src/inspect_ai/log/_log.py`,
`model/_model_output.py` and `scorer/_metric.py`. Fields that are left out have defaults there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from gates.contracts.case import Case, Suite
from gates.contracts.sample import Sample
from gates.contracts.verdict import Outcome
from gates.reply.reply import Call, Reply, read_reply
from gates.report.statement import Arm, Failure, Statement

VERSION: Final = 2

_VALUES: Final[dict[Outcome, str]] = {"ok": "C", "bad": "I", "lost": "N"}  # correct, incorrect, no answer
_STOPS: Final = {
    "stop": "stop",
    "length": "max_tokens",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}
_SECOND: Final = 1e9  # nanoseconds


def file_name(statement: Statement, arm: str) -> str:
    """A name that Inspect takes for a log: its time, its task, and the arm."""
    time = statement.created.replace(":", "-").replace("Z", "+00-00")
    return f"{time}_{statement.suite.name}_{arm}.json"


def inspect_log(statement: Statement, suite: Suite, samples: Iterable[Sample], arm: str) -> dict[str, Any]:
    """The log of one arm ("candidate" or "baseline") as a JSON value.

    `samples` are those of the report, of any arms, in order; those of cases that the suite does not
    have (latency probes) are left out.
    """
    cases = {case.id: case for case in suite.cases}
    taken = [s for s in samples if s.key.arm == arm and s.key.case in cases]
    gates = tuple(dict.fromkeys(t.gate for t in statement.tallies if t.arm == arm))
    failed = {(f.gate, f.case): f for f in statement.failures if f.arm == arm}
    epochs: dict[str, int] = {}
    shown = []
    for sample in taken:
        case = cases[sample.key.case]
        epochs[case.id] = epochs.get(case.id, 0) + 1
        shown.append(_sample(sample, case, epochs[case.id], _scores(case, gates, failed)))
    return {
        "version": VERSION,
        "status": "success",
        "eval": _spec(statement, suite, taken, arm, max(epochs.values(), default=1)),
        "plan": {"name": "manners gate", "steps": []},
        "results": _results(statement, gates, arm, len(shown)),
        "stats": _stats(taken, statement),
        "samples": shown,
    }


def render_log(log: Mapping[str, Any]) -> bytes:
    """The log's file. Keys keep their order: Inspect reads a header as a stream, the version first."""
    return json.dumps(log, ensure_ascii=False, indent=1, allow_nan=False).encode()


def _spec(statement: Statement, suite: Suite, taken: list[Sample], arm: str, epochs: int) -> dict[str, Any]:
    side = _side(statement, arm)
    ids = list(dict.fromkeys(sample.key.case for sample in taken))
    harness = statement.harness
    spec: dict[str, Any] = {
        "eval_id": statement.samples.digest[7:29],
        "run_id": statement.samples.digest[7:29],
        "task_id": side.model.root[7:29],
        "created": statement.created,
        "task": f"{suite.name}_{arm}",
        "task_version": suite.version,
        "dataset": {"name": suite.name, "samples": len(ids), "sample_ids": ids, "shuffled": False},
        "model": f"{side.engine.dialect}/{side.model.name}",
        "model_args": {
            "argv": list(side.engine.argv),
            "image": side.engine.image,
            "build": side.engine.build,
        },
        "config": {"epochs": epochs},
        "packages": {"manners": harness.version, **harness.tools},
        "metadata": {
            "verdict": statement.verdict.value,
            "artefact": side.model.root,
            "engine": side.engine.digest,
            "suite": suite.digest,
            "policy": statement.policy.digest,
            "reasons": list(statement.decision.reasons),
        },
    }
    if harness.commit:
        spec["revision"] = {"type": "git", "origin": "", "commit": harness.commit, "dirty": harness.dirty}
    return spec


def _side(statement: Statement, arm: str) -> Arm:
    return statement.baseline if arm == "baseline" else statement.candidate


def _results(statement: Statement, gates: Iterable[str], arm: str, count: int) -> dict[str, Any]:
    return {
        "total_samples": count,
        "completed_samples": count,
        "scores": [_score_of(statement, gate, arm) for gate in gates],
    }


def _score_of(statement: Statement, gate: str, arm: str) -> dict[str, Any]:
    """A gate's share of cases that were ok, with what its rules made of it."""
    tally = statement.tally(gate, arm, named=False)
    known = tally.ok + tally.bad if tally else 0
    metrics = {"ok": {"name": "ok", "value": tally.ok / known}} if tally and known else {}
    rules = [rule for rule in statement.decision.gates if rule.gate == gate]
    return {
        "name": gate,
        "scorer": gate,
        "scored_samples": known,
        "unscored_samples": tally.lost if tally else 0,
        "metrics": metrics,
        "metadata": {f"{rule.rule}: {rule.verdict.value}": rule.sentence for rule in rules},
    }


def _stats(taken: list[Sample], statement: Statement) -> dict[str, Any]:
    times = [sample.started for sample in taken]
    return {"started_at": min(times, default=""), "completed_at": statement.created}


# ---------------------------------------------------------------------------------------- samples


def _scores(case: Case, gates: Iterable[str], failed: Mapping[tuple[str, str], Failure]) -> dict[str, Any]:
    scores = {}
    for gate in gates:
        if gate in case.gates:
            failure = failed.get((gate, case.id))
            scores[gate] = {
                "value": _VALUES[failure.outcome if failure else "ok"],
                "explanation": failure.why if failure else "",
            }
    return scores


def _sample(sample: Sample, case: Case, epoch: int, scores: Mapping[str, Any]) -> dict[str, Any]:
    reply = read_reply(sample)
    asked = [_asked(message) for message in sample.request.get("messages", ())]
    answer = _answer(reply)
    took = sample.ended_ns / _SECOND
    shown: dict[str, Any] = {
        "id": case.id,
        "epoch": epoch,
        "uuid": sample.key.digest[:22],
        "input": asked,
        "target": json.dumps(dict(case.expect), ensure_ascii=False, sort_keys=True) if case.expect else "",
        "messages": [*asked, answer],
        "output": {
            "model": str(sample.request.get("model", "")),
            "choices": [{"message": answer, "stop_reason": _STOPS.get(reply.finish_reason or "", "unknown")}],
            "time": took,
        },
        "scores": dict(scores),
        "metadata": {"key": sample.key.digest, "mode": sample.key.mode, "repeat": sample.key.repeat, "turn": case.turn,
                     "ms": _milliseconds(reply)},
        "started_at": sample.started,
        "completed_at": (datetime.fromisoformat(sample.started) + timedelta(seconds=took)).isoformat(),
        "total_time": took,
    }  # fmt: skip
    if reply.completion_tokens is not None:
        shown["output"]["usage"] = _usage(reply)
    if sample.fault:
        shown["error"] = _error(sample.fault.kind, sample.fault.detail)
    if sample.retries:
        shown["error_retries"] = [_error(fault.kind, fault.detail) for fault in sample.retries]
    return shown


def _asked(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of the request; Inspect's roles and fields are nearly OpenAI's."""
    content = message.get("content") or ""
    shown: dict[str, Any] = {"role": message.get("role", "user"), "content": content, "source": "input"}
    if message.get("tool_call_id"):
        shown["tool_call_id"] = message["tool_call_id"]
    if message.get("tool_calls"):
        functions = [(call.get("id"), call["function"]) for call in message["tool_calls"]]
        shown["tool_calls"] = [_call(str(i), f["name"], f["arguments"]) for i, f in functions]
    return shown


def _answer(reply: Reply) -> dict[str, Any]:
    """What came back, thoughts apart from speech as the engine gave them."""
    content: Any = reply.content
    if reply.reasoning:
        content = [
            {"type": "reasoning", "reasoning": reply.reasoning},
            {"type": "text", "text": reply.content},
        ]
    shown: dict[str, Any] = {"role": "assistant", "content": content, "source": "generate"}
    if reply.calls:
        shown["tool_calls"] = [_called(call) for call in reply.calls]
    return shown


def _called(call: Call) -> dict[str, Any]:
    return _call(call.id or str(call.index), call.name, call.arguments)


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A call; arguments that are no JSON object stand beside it as what could not be parsed."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        parsed = None
    shown = {"id": call_id, "function": name, "type": "function"}
    if isinstance(parsed, dict):
        return {**shown, "arguments": parsed}
    return {**shown, "arguments": {}, "parse_error": f"no JSON object: {arguments}"}


def _usage(reply: Reply) -> dict[str, Any]:
    asked, said = reply.prompt_tokens or 0, reply.completion_tokens or 0
    cached = reply.cached_tokens or 0
    return {
        "input_tokens": asked - min(cached, asked),  # Inspect counts the cached ones apart
        "output_tokens": said,
        "total_tokens": asked + said,
        "input_tokens_cache_read": reply.cached_tokens,
        "reasoning_tokens": reply.reasoning_tokens,
    }


def _milliseconds(reply: Reply) -> dict[str, float | None]:
    clocks = {
        "first_token": reply.clocks.token,
        "visible": reply.clocks.visible,
        "sentence": reply.clocks.sentence,
    }
    return {name: None if at is None else at / 1e6 for name, at in clocks.items()}


def _error(kind: str, detail: str) -> dict[str, str]:
    return {"message": f"{kind}: {detail}", "traceback": "", "traceback_ansi": ""}
