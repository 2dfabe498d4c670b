"""The log for Inspect's viewer: its version, its field names, and our outcomes in them.

Inspect's own reader (inspect_ai 0.3.285) brings 80 packages and 324 MB, so it is not installed here;
what it refuses is pinned by the field names below, which are those of its models.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.sample import Fault, Key, Read, Sample
from gates.contracts.verdict import CaseResult
from gates.report import gather
from gates.report.inspect_log import file_name, inspect_log, render_log
from gates.report.statement import Statement
from tests.gates.report import examples
from tests.gates.report.examples import sha

SYSTEM = {"role": "system", "content": "You are Annie."}
TOOL = {"type": "function", "function": {"name": "search_memory", "parameters": {"type": "object"}}}
HISTORY = (
    {"role": "user", "content": "What's on the list?"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search_memory", "arguments": '{"query":"list"}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "milk"},
)  # fmt: skip
SUITE = Suite(
    "annie", 3, "", Sampling(),
    (
        Case("hello", ("leak", "empty"), (SYSTEM, {"role": "user", "content": "Hello!"}), turn="greeting"),
        Case("list", ("leak", "tools"), (SYSTEM, *HISTORY), (TOOL,), expect={"calls": []}),
    ),
    sha("suite"),
)  # fmt: skip


def stream(*deltas: dict[str, Any], finish: str = "stop") -> tuple[Read, ...]:
    """A stream of these deltas, a hundred milliseconds apart, with its usage and its end."""
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 12}}
    chunks.append({"choices": [], "usage": usage})
    lines = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks] + [b"data: [DONE]\n\n"]
    return tuple(Read((i + 1) * 100_000_000, line) for i, line in enumerate(lines))


def sample(case: str, arm: str, reads: tuple[Read, ...], repeat: int = 0, **more: Any) -> Sample:
    found = next(c for c in SUITE.cases if c.id == case)
    key = Key(SUITE.digest, sha("a"), sha("e"), sha(case), arm, case, repeat, "stream")
    request = {"model": "annie", "messages": list(found.messages), "tools": list(found.tools)}
    return Sample(key, request, "2026-11-21T09:30:15Z", 200, reads=reads, ended_ns=700_000_000, **more)


CALL = {
    "tool_calls": [{"index": 0, "id": "x", "function": {"name": "search_memory", "arguments": '{"query":'}}]
}
SAMPLES = (
    sample("hello", "candidate", stream({"reasoning_content": "The user greets."}, {"content": "Hello "}, {"content": "there."})),
    sample("hello", "candidate", stream({"content": "Hi."}), repeat=1),
    sample("list", "candidate", stream(CALL, finish="tool_calls"), retries=(Fault("connect", "refused"),)),
    sample("hello", "baseline", stream({"content": "Hello."})),
    sample("list", "baseline", (), fault=Fault("timeout", "no byte within 30 s")),
    replace(sample("hello", "latency:candidate", ()), status=None),
)  # fmt: skip
RESULTS = {
    "candidate": [
        CaseResult("hello", "leak", "bad", 1, True, 2, "reasoning: 'The user greets.'"),
        CaseResult("hello", "empty", "ok", 1, True),
        CaseResult("list", "leak", "ok", 1, False),
        CaseResult("list", "tools", "bad", 1, True, 1, "arguments are no JSON"),
    ],
    "baseline": [
        CaseResult("hello", "leak", "ok", 1, True),
        CaseResult("list", "tools", "lost", 1, True),
    ],
}


def statement() -> Statement:
    return replace(examples.failing(), tallies=gather.tallies(RESULTS), failures=gather.failures(RESULTS))


def log(arm: str = "candidate") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render_log(inspect_log(statement(), SUITE, SAMPLES, arm)))
    return found


def test_a_log_has_inspects_version_and_fields() -> None:
    """Version 2 of EvalLog; no field that its models do not have."""
    found = log()

    assert found["version"] == 2 and found["status"] == "success"
    assert found.keys() <= {
        "version",
        "status",
        "eval",
        "plan",
        "results",
        "stats",
        "error",
        "samples",
        "reductions",
    }
    assert found["eval"].keys() <= {
        "eval_id", "run_id", "task_id", "created", "task", "task_version", "dataset", "model", "model_args", "config",
        "revision", "packages", "metadata",
    }  # fmt: skip
    assert found["samples"][0].keys() <= {
        "id", "epoch", "uuid", "input", "target", "messages", "output", "scores", "metadata", "started_at",
        "completed_at", "total_time", "error", "error_retries",
    }  # fmt: skip
    assert {"created", "task", "dataset", "model", "config"} <= found["eval"].keys()


def test_the_header_comes_before_the_samples() -> None:
    """Inspect lists logs by reading their first keys as a stream: without this order it refuses them."""
    assert list(log()) == ["version", "status", "eval", "plan", "results", "stats", "samples"]


def test_an_arm_is_a_log_and_a_repeat_an_epoch() -> None:
    """Cases are samples; latency probes and other arms are not in it."""
    assert [(s["id"], s["epoch"]) for s in log()["samples"]] == [("hello", 1), ("hello", 2), ("list", 1)]
    assert [(s["id"], s["epoch"]) for s in log("baseline")["samples"]] == [("hello", 1), ("list", 1)]
    assert log()["eval"]["config"] == {"epochs": 2}
    assert log()["eval"]["dataset"]["sample_ids"] == ["hello", "list"]


def test_every_gate_of_a_case_is_a_score_with_its_evidence() -> None:
    """C for ok, I for bad, N for what was lost on the way."""
    first = log()["samples"][0]

    assert first["scores"]["leak"] == {"value": "I", "explanation": "reasoning: 'The user greets.'"}
    assert first["scores"]["empty"]["value"] == "C"
    assert log("baseline")["samples"][1]["scores"]["tools"]["value"] == "N"


def test_a_thought_stands_apart_from_speech() -> None:
    """As the engine gave it: reasoning and text are two contents of one message."""
    message = log()["samples"][0]["output"]["choices"][0]["message"]

    assert message["content"] == [
        {"type": "reasoning", "reasoning": "The user greets."},
        {"type": "text", "text": "Hello there."},
    ]
    assert log()["samples"][1]["output"]["choices"][0]["message"]["content"] == "Hi."


def test_arguments_that_are_no_json_are_not_repaired() -> None:
    """Inspect would have; here the raw text stands beside an empty object."""
    (call,) = log()["samples"][2]["messages"][-1]["tool_calls"]

    assert call == {
        "id": "x", "function": "search_memory", "type": "function", "arguments": {},
        "parse_error": 'no JSON object: {"query":',
    }  # fmt: skip
    assert log()["samples"][2]["input"][2]["tool_calls"][0]["arguments"] == {"query": "list"}


def test_faults_and_retries_are_there() -> None:
    """What was tried again, and what was given up."""
    assert log()["samples"][2]["error_retries"][0]["message"] == "connect: refused"
    assert log("baseline")["samples"][1]["error"]["message"] == "timeout: no byte within 30 s"


def test_tokens_and_clocks_are_there() -> None:
    """Cached tokens are counted apart, as Inspect counts; the first token's time is ours to keep."""
    first = log()["samples"][0]

    assert first["output"]["usage"]["input_tokens"] == 8
    assert first["output"]["usage"]["input_tokens_cache_read"] == 12
    assert first["metadata"]["ms"] == {
        "first_token": 100.0,
        "visible": 200.0,
        "sentence": first["metadata"]["ms"]["sentence"],
    }
    assert first["completed_at"] == "2026-11-21T09:30:15.700000+00:00"


def test_the_results_are_the_tallies() -> None:
    """Per gate the share that was ok, and what its rules said."""
    scores = {score["name"]: score for score in log()["results"]["scores"]}

    assert scores["leak"]["metrics"]["ok"]["value"] == 0.5
    assert scores["leak"]["scored_samples"] == 2
    assert any("zero: fail" in key for key in scores["leak"]["metadata"])
    assert log("baseline")["results"]["scores"][1]["unscored_samples"] == 1


def test_a_log_is_named_as_inspect_looks_for_it() -> None:
    """Its listing takes files that begin with a time."""
    assert file_name(statement(), "candidate") == "2026-11-21T09-30-15+00-00_annie_candidate.json"
