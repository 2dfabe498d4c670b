"""Writes a run as logs of inspect_ai (its JSON format, version 2), one for each arm, which `inspect view` opens."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gates.contracts.errors import RunError
from gates.contracts.sample import LATENCY_PREFIX, Sample
from gates.reply.reply import read_heard
from gates.report.statement import Statement

_VALUES = {"ok": "C", "bad": "I", "lost": "N"}  # correct, incorrect, no answer
_ENDS = {"length": "max_tokens"}


def write_logs(folder: Path, statement: Statement, samples: Iterable[Sample]) -> list[Path]:
    """The paths of the logs. Raises RunError: they cannot be written."""
    arms = defaultdict[str, list[Sample]](list)
    for sample in samples:
        if not sample.key.arm.startswith(LATENCY_PREFIX):
            arms[sample.key.arm].append(sample)
    paths = {arm: f"{statement.created}_{statement.suite.name}_{arm}.json".replace(":", "-") for arm in arms}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for arm, name in paths.items():
            log = json.dumps(_log(statement, arm, arms[arm]), ensure_ascii=False)
            (folder / name).write_text(log, "utf-8", "replace")
    except OSError as error:
        raise RunError(f"{folder}: cannot be written there ({error.strerror})") from None
    return [folder / name for name in paths.values()]


def _log(statement: Statement, arm: str, samples: list[Sample]) -> dict[str, Any]:
    outcomes = {line.key: line.outcome for line in statement.samples.lines}
    why, epochs = defaultdict[str, list[str]](list), Counter[str]()
    for failure in statement.failures:
        if failure.arm == arm:
            why[failure.case].append(f"{failure.gate}: {failure.why}")
    shown = []
    for sample in samples:
        epochs[case := sample.key.case] += 1
        shown.append(_sample(sample, epochs[case], outcomes.get(sample.key.digest, "ok"), why[case]))
    digest = statement.suite.digest.removeprefix("sha256:")[:16]
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "created": statement.created,
            "eval_id": f"{digest}-{arm}",
            "run_id": digest,
            "task_id": digest,
            "task": f"{statement.suite.name} ({arm})",
            "dataset": {"name": statement.suite.name, "samples": len(epochs), "sample_ids": list(epochs)},
            "model": samples[0].request["model"],
            "config": {},
            "packages": {"manners": statement.harness.version},
            "metadata": {"verdict": statement.verdict, "reasons": statement.decision.reasons},
        },
        "plan": {"name": "plan", "steps": []},
        "results": {
            "total_samples": len(samples),
            "completed_samples": len(samples),
            "scores": [
                _score(tally.gate, tally.ok / tally.n)
                for tally in statement.tallies
                if tally.arm == arm and not tally.named and tally.n
            ],
        },
        "stats": {"started_at": samples[0].started, "completed_at": statement.created},
        "samples": shown,
    }


def _score(gate: str, share: float) -> dict[str, Any]:
    return {"name": gate, "scorer": gate, "metrics": {"good": {"name": "good", "value": share}}}


def _sample(sample: Sample, epoch: int, outcome: str, why: list[str]) -> dict[str, Any]:
    reply, model = read_heard(sample), sample.request["model"]
    calls = [{"id": call.id or f"call-{call.index}", "function": {"name": call.name, "arguments": call.arguments}} for call in reply.calls]  # fmt: skip
    said = {"role": "assistant", "content": reply.content, "tool_calls": calls}
    asked = [_message(message) for message in sample.request["messages"]]
    end = reply.finish_reason or "unknown"
    score = {
        "value": _VALUES[outcome],
        "answer": reply.content,
        "explanation": "; ".join(why) if outcome != "ok" else "",
    }
    return {
        "id": sample.key.case,
        "epoch": epoch,
        "input": asked,
        "target": "",
        "messages": [*asked, _message(said)],
        "output": {
            "model": model,
            "choices": [{"message": _message(said), "stop_reason": _ENDS.get(end, end)}],
        },
        "scores": {"manners": score},
        "started_at": sample.started,
        "total_time": sample.ended_ns / 1e9,
    }


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A chat message as inspect_ai has it: a call's arguments are a table."""
    calls = [
        {
            "id": call["id"],
            "function": call["function"]["name"],
            "arguments": _table(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": calls or None}


def _table(arguments: str) -> dict[str, Any]:
    try:
        table = json.loads(arguments)
    except ValueError:
        table = None
    return table if isinstance(table, dict) else {"": arguments}
