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
_ENDS = {"length": "max_tokens", None: "unknown"}


def write_logs(folder: Path, statement: Statement, samples: Iterable[Sample]) -> list[Path]:
    """The paths of the logs. Raises RunError: they cannot be written."""
    arms, paths = defaultdict[str, list[Sample]](list), list[Path]()
    for sample in samples:
        if not sample.key.arm.startswith(LATENCY_PREFIX):
            arms[sample.key.arm].append(sample)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for arm, found in arms.items():
            name = f"{statement.created}_{statement.suite.name}_{arm}.json".replace(":", "-")
            paths.append(folder / name)
            paths[-1].write_text(json.dumps(_log(statement, arm, found)), "ascii")
    except OSError as error:
        raise RunError(f"{folder}: cannot be written there ({error.strerror})") from None
    return paths


def _log(statement: Statement, arm: str, samples: list[Sample]) -> dict[str, Any]:
    outcomes = {line.key: line.outcome for line in statement.samples.lines}
    why, epochs, shown = defaultdict[str, list[str]](list), Counter[str](), []
    for failure in statement.failures:
        if failure.arm == arm:
            why[failure.case].append(f"{failure.gate}: {failure.why}")
    for sample in samples:
        epochs[case := sample.key.case] += 1
        outcome = outcomes.get(sample.key.digest, "ok")
        shown.append(_sample(sample, epochs[case], outcome, why[case] if outcome != "ok" else ()))
    name, digest, n = statement.suite.name, statement.suite.digest.removeprefix("sha256:")[:16], len(samples)
    about = {"verdict": statement.verdict, "reasons": statement.decision.reasons}
    shares = {t.gate: t.ok / t.n for t in statement.tallies if t.arm == arm and not t.named and t.n}
    scores = [
        {"name": gate, "scorer": gate, "metrics": {"good": {"name": "good", "value": share}}}
        for gate, share in shares.items()
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
            "metadata": about,
        },
        "plan": {"name": "plan", "steps": []},
        "results": {"total_samples": n, "completed_samples": n, "scores": scores},
        "stats": {"started_at": samples[0].started, "completed_at": statement.created},
        "samples": shown,
    }


def _sample(sample: Sample, epoch: int, outcome: str, why: Iterable[str]) -> dict[str, Any]:
    reply = read_heard(sample)
    calls = [(call.id or f"call-{call.index}", call.name, call.arguments) for call in reply.calls]
    said = _message({"role": "assistant", "content": reply.content}, calls)
    asked = [_asked(message) for message in sample.request["messages"]]
    end = _ENDS.get(reply.finish_reason, reply.finish_reason)
    output = {"model": sample.request["model"], "choices": [{"message": said, "stop_reason": end}]}
    score = {"value": _VALUES[outcome], "answer": reply.content, "explanation": "; ".join(why)}
    about = {"id": sample.key.case, "epoch": epoch, "input": asked, "target": "", "messages": [*asked, said]}
    return {**about, "output": output, "scores": {"manners": score}, "total_time": sample.ended_ns / 1e9}


def _asked(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", ())]  # fmt: skip
    return _message(message, calls)


def _message(message: Mapping[str, Any], calls: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """A chat message as inspect_ai has it: a call's arguments are a table."""
    made = [{"id": name, "function": function, "arguments": _table(text)} for name, function, text in calls]
    return {**message, "tool_calls": made or None}


def _table(arguments: str) -> dict[str, Any]:
    try:
        table = json.loads(arguments)
    except ValueError:
        table = None
    return table if isinstance(table, dict) else {"": arguments}
