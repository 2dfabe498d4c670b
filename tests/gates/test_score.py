"""From samples to case results: the worst repeat counts, and what was not asked is no result."""

import json
from dataclasses import replace
from typing import Any, Literal

import pytest

from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.sample import Mode, Sample, SampleKey, TimedRead, TransportFault
from gates.contracts.verdict import CaseResult
from gates.judge.score import failure_reason, score
from gates.policy.load import load_policy
from gates.reply.reply import read_heard, read_reply

POLICY = load_policy("annie-nano")
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}
HELLO = Case(
    "hello", ("leak", "empty", "no_markdown"), ({"role": "user", "content": "Hello"},), named=("leak",)
)
FIND = Case(
    "find", ("tools", "raw_call"), ({"role": "user", "content": "Find it"},), (TOOL,),
    expect={"calls": [{"name": "find", "arguments": {}}]},
)  # fmt: skip
SUITE = Suite("s", 1, "", Sampling(), (HELLO, FIND), "sha256:" + "0" * 64)
REPEATS = len(POLICY.run.temperatures)


def sample(
    case: Case = HELLO, said: str = "Hello.", repeat: int = 0, arm: str = "candidate", mode: Mode = "stream",
    reason: str | None = "stop", fault: TransportFault | None = None, **message: Any,
) -> Sample:  # fmt: skip
    """One reply, in one piece: how it came is another file's business."""
    key = SampleKey(SUITE.digest, "a", "e", "r", arm, case.id, repeat, mode)
    body = {"choices": [{"message": {"content": said, **message}, "finish_reason": reason}]}
    reads = () if fault else (TimedRead(5, json.dumps(body).encode()),)
    return Sample(key, {}, "2026-11-21T00:00:00Z", 200, 1, reads, 9, fault)


def every(case: Case = HELLO, **more: Any) -> list[Sample]:
    """All repeats of a case."""
    return [sample(case, repeat=number, **more) for number in range(REPEATS)]


def result(samples: list[Sample], gate: str, arm: str = "candidate") -> CaseResult | None:
    """The one result of a gate."""
    found = [r for r in score(POLICY, SUITE, samples).results.get(arm, ()) if r.gate == gate]
    assert len(found) <= 1
    return found[0] if found else None


def call(arguments: str = "{}") -> dict[str, Any]:
    """A message with one call."""
    return {
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "find", "arguments": arguments}}]
    }


def heard(said: str, **more: Any) -> str:
    """The stream that a caller of the gateway gets."""
    return f"data: {json.dumps({'choices': [{'delta': {'content': said, **more}, 'finish_reason': 'stop'}]})}\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize(
    "judged, arm, bad, beside",
    [
        ("through", "candidate", False, {"engine:candidate": "bad"}),
        ("engine", "candidate", True, {"through:candidate": "ok"}),
        ("through", "again", False, {}),
        ("through", "control:thinking-on", True, {}),
    ],
)
def test_the_policy_says_which_replies_decide_and_the_others_stand_beside(
    judged: Literal["through", "engine"], arm: str, bad: bool, beside: dict[str, str]
) -> None:
    """A control shows that the gate can fail an engine, whatever a gateway mends."""
    leaks = every(said="<think>hm</think>Hello.", arm=arm)
    given = leaks if arm.startswith("control") else [replace(one, heard=heard("Hello.")) for one in leaks]
    found = {
        place: [r.outcome for r in results if r.gate == "leak"]
        for place, results in score(replace(POLICY, judged=judged), SUITE, given).results.items()
    }
    assert found == {arm: ["bad" if bad else "ok"], **{place: [outcome] for place, outcome in beside.items()}}


def test_one_bad_repeat_makes_a_prompt_bad_and_says_which() -> None:
    found = result([*every()[:-1], sample(said="<think>hm</think>Hi", repeat=REPEATS - 1)], "leak")
    assert (
        found is not None
        and found.outcome == "bad"
        and found.why.startswith(f"repeat {REPEATS - 1}: leak: tag")
    )


def test_a_lost_answer_is_no_judgement_and_no_pass() -> None:
    lost = sample(repeat=1, fault=TransportFault("timeout", "no answer in 30 s"))
    found = result([sample(), lost, *every()[2:]], "leak")
    assert found is not None and found.outcome == "lost" and "timeout" in found.why


def test_a_call_that_is_right_streamed_and_wrong_whole_is_wrong() -> None:
    streamed = sample(FIND, "", reason="tool_calls", **call())
    whole = sample(FIND, "", mode="whole", reason="tool_calls", **call("{"))
    found = result([streamed, whole], "tools")
    assert (
        found is not None
        and found.outcome == "bad"
        and found.why.startswith("not streamed: toolcall: invalid_json")
    )


@pytest.mark.parametrize(
    "reply, why",
    [
        (sample(reason=None), "cut off"),
        (
            replace(sample(), status=400, reads=(TimedRead(5, b'{"error":{"message":"too long"}}'),)),
            "error: too long",
        ),
    ],
)
def test_a_reply_that_broke_has_failed_its_prompt(reply: Sample, why: str) -> None:
    assert failure_reason("leak", HELLO, read_reply(reply)).startswith(why)


@pytest.mark.parametrize("said, bad", [("", "empty tools"), ("<think>Well.", "leak empty tools")])
def test_a_reply_that_the_gateway_kept_back_leaks_what_was_heard_of_it(said: str, bad: str) -> None:
    error = 'data: {"error":{"message":"nothing is left","code":"reply_fully_filtered"}}'
    heard = f'data: {{"choices":[{{"delta":{{"content":"{said}"}}}}]}}\n\n{error}\n\n'
    reply, gates = read_heard(replace(sample(), heard=heard)), ("leak", "raw_call", "empty", "tools")
    assert [gate for gate in gates if failure_reason(gate, HELLO, reply)] == bad.split()


def test_a_detector_that_stumbles_passes_nothing() -> None:
    broken = replace(
        FIND, tools=({"type": "function", "function": {"name": "find", "parameters": {"type": 7}}},)
    )
    reply = read_reply(sample(broken, "", reason="tool_calls", **call()))
    assert "the detector failed on it" in failure_reason("tools", broken, reply)


def test_special_tokens_of_one_arm_are_not_looked_for_in_another() -> None:
    samples = [*every(said="I say so.[EOT]"), *every(said="I say so.[EOT]", arm="baseline")]
    scored = score(POLICY, SUITE, samples, {"candidate": {"[EOT]"}})
    by_arm = {
        arm: next(r.outcome for r in found if r.gate == "leak") for arm, found in scored.results.items()
    }
    assert by_arm == {"candidate": "bad", "baseline": "ok"}
