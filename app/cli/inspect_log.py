"""Writes a run as logs of inspect_ai (its JSON format, version 2), one for each arm, which `inspect view` opens."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gates.contracts.sample import LATENCY_PREFIX, Sample
from gates.reply.reply import read_heard
from gates.report.statement import Statement

_VALUES = {"ok": "C", "bad": "I", "lost": "N"}  # correct, incorrect, no answer
_ENDS = {"length": "max_tokens", None: "unknown"}


def write_logs(folder: Path, statement: Statement, samples: Iterable[Sample]) -> Iterator[Path]:
    """The paths of the logs. Raises OSError: they cannot be written."""
    arms = defaultdict[str, list[Sample]](list)
    for sample in samples:
        if not sample.key.arm.startswith(LATENCY_PREFIX):
            arms[sample.key.arm].append(sample)
    folder.mkdir(parents=True, exist_ok=True)
    for arm, found in arms.items():
        name = f"{statement.created}_{statement.suite.name}_{arm}.json".replace(":", "-")
        (folder / name).write_text(json.dumps(_log(statement, arm, found)), "ascii")
        yield folder / name


def _log(statement: Statement, arm: str, samples: list[Sample]) -> dict[str, Any]:
    why, epochs, shown = defaultdict[str, list[str]](list), Counter[str](), []
    for failure in statement.failures:
        if failure.arm == arm:
            why[failure.case].append(f"{failure.gate}: {failure.why}")
    outcomes = {line.key: line.outcome for line in statement.samples.lines}
    for sample in samples:
        epochs[case := sample.key.case] += 1
        outcome = outcomes.get(sample.key.digest, "ok")
        shown.append(_sample(sample, epochs[case], outcome, why[case] if outcome != "ok" else ()))
    name, digest, n = statement.suite.name, statement.suite.digest.removeprefix("sha256:")[:16], len(samples)
    scores = [
        {"name": one.gate, "scorer": one.gate, "metrics": {"good": {"name": "good", "value": one.ok / one.n}}}
        for one in statement.tallies
        if one.arm == arm and not one.named and one.n
    ]
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "created": statement.created,
            "eval_id": f"{digest}-{arm}",
            "run_id": digest,
            "task_id": digest,
            "task": f"{name} ({arm})",
            "dataset": {"name": name, "samples": len(epochs), "sample_ids": list(epochs)},
            "model": samples[0].request["model"],
            "config": {},
            "metadata": {"verdict": statement.verdict, "reasons": statement.decision.reasons},
        },
        "plan": {"name": "plan", "steps": []},
        "results": {"total_samples": n, "completed_samples": n, "scores": scores},
        "stats": {"started_at": samples[0].started, "completed_at": statement.created},
        "samples": shown,
    }


def _sample(sample: Sample, epoch: int, outcome: str, why: Iterable[str]) -> dict[str, Any]:
    reply, asked = read_heard(sample), [_message(message) for message in sample.request["messages"]]
    calls = [
        {"id": call.id or f"call-{call.index}", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.calls
    ]
    said = _message({"role": "assistant", "content": reply.content, "tool_calls": calls})
    end = _ENDS.get(reply.finish_reason, reply.finish_reason)
    return {
        "id": sample.key.case,
        "epoch": epoch,
        "input": asked,
        "target": "",
        "messages": [*asked, said],
        "output": {"model": sample.request["model"], "choices": [{"message": said, "stop_reason": end}]},
        "scores": {
            "manners": {"value": _VALUES[outcome], "answer": reply.content, "explanation": "; ".join(why)}
        },
        "total_time": sample.ended_ns / 1e9,
    }


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A chat message as inspect_ai has it: a call's arguments are a table."""
    named = [(call["id"], call["function"]) for call in message.get("tool_calls", ())]
    calls = [{"id": id, "function": of["name"], "arguments": _table(of["arguments"])} for id, of in named]
    return {**message, "tool_calls": calls or None}


def _table(arguments: str) -> dict[str, Any]:
    with suppress(ValueError):
        if isinstance(table := json.loads(arguments), dict):
            return table
    return {"": arguments}
