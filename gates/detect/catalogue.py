"""Every gate as one object: its detector, its words, what it expects, and who else asks it. A new gate is a row here."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from gates.contracts.case import Case
from gates.detect.answers import find_wrong_answer
from gates.detect.checks import find_failed_checks
from gates.detect.detection import Detection
from gates.detect.leak import find_leaks
from gates.detect.live import find_everyday_fault, find_refusal
from gates.detect.loop import find_loops
from gates.detect.markdown import find_markdown
from gates.detect.rawcall import find_raw_calls
from gates.detect.script import find_wrong_script
from gates.detect.speakable import find_too_long, find_unspeakable
from gates.detect.tags import find_broken_template, find_empty
from gates.detect.toolcall import find_wrong_calls
from gates.reply.reply import Reply

Detect = Callable[..., list[Detection]]
Fields = Callable[[Case, Reply, Collection[str]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate. `bad`, `good`: the words for answers that were so. `detect` takes the keywords that `fields` makes of a case, its reply and
    the model's special tokens, which are also those of a line of the corpus `gates/corpus/DETECTOR*.jsonl`; without a `detector` it guesses
    nothing, and needs none. `expects`: the field of a case's `expect`. `canary`: asked before a promotion of every reply, or where the
    case has the expectation. `training`: judges every text of training data, or answers only.
    """

    name: str
    title: str
    bad: str
    good: str
    detector: str
    detect: Detect
    fields: Fields = lambda case, reply, tokens: {"text": reply.content}
    expects: str | None = None
    canary: Literal["always", "expected", "never"] = "never"
    training: Literal["text", "answer", "never"] = "never"

    def findings(self, case: Case, reply: Reply, tokens: Collection[str] = ()) -> list[Detection]:
        """What is wrong with a reply to a case."""
        return self.detect(**self.fields(case, reply, tokens))


def _find_leaked(text: str, reasoning: str, tokens: Collection[str]) -> list[Detection]:
    """Thoughts, and whatever else of a chat template is heard: its tokens and the tags of calls."""
    calls = [found for found in find_raw_calls(text) if found.kind.endswith("_tag")]
    return [*find_leaks(text, reasoning=reasoning), *find_broken_template(text, tokens), *calls]


def _calls(case: Case, reply: Reply, _: Collection[str]) -> Mapping[str, Any]:
    return {
        "calls": reply.calls,
        "tools": case.tools,
        "finish_reason": reply.finish_reason,
        "expected": case.expect["calls"],
        "text": reply.content,
        "asked": next((str(m["content"]) for m in reversed(case.messages) if m["role"] == "user"), ""),
    }


def _everyday(case: Case, reply: Reply, _: Collection[str]) -> Mapping[str, Any]:
    return {
        "text": reply.content,
        "expect": case.expect["everyday"],
        "calls": len(reply.calls),
        "tools": _names(case),
        "reasoning": reply.reasoning,
    }


def _expecting(field: str, keyword: str) -> Fields:
    return lambda case, reply, _: {"text": reply.content, keyword: case.expect[field]}


def _names(case: Case) -> list[str]:
    return [tool["function"]["name"] for tool in case.tools]


GATES: Final[Mapping[str, Gate]] = {
    gate.name: gate
    for gate in (
        Gate("leak", "No leaked thoughts", "leaked", "did not leak",
             "leak", _find_leaked, lambda case, reply, tokens: {"text": reply.content, "reasoning": reply.reasoning, "tokens": tokens},
             canary="always", training="text"),
        Gate("raw_call", "No spoken tool calls", "spoke a raw tool call", "spoke no raw tool call",
             "raw_call", find_raw_calls, lambda case, reply, _: {"text": reply.content, "names": _names(case)},
             canary="always", training="text"),
        Gate("empty", "No empty replies", "were empty", "were not empty",
             "empty", find_empty, lambda case, reply, _: {"text": reply.content, "calls": len(reply.calls)},
             canary="always", training="answer"),
        Gate("tools", "Tool calls", "made a wrong call", "made the right call",
             "toolcall", find_wrong_calls, _calls, expects="calls", canary="expected"),
        Gate("no_markdown", "No markdown", "contained markdown", "contained no markdown",
             "markdown", find_markdown, canary="always", training="text"),
        Gate("factual", "Facts", "were wrong", "were right",
             "answer", find_wrong_answer, _expecting("answer", "expect"), expects="answer", canary="expected"),
        Gate("reasoning", "Reasoning", "were wrong", "were right",
             "answer", find_wrong_answer, _expecting("answer", "expect"), expects="answer", canary="expected"),
        Gate("loop", "No loops", "looped", "did not loop",
             "loop", find_loops, canary="always", training="text"),
        Gate("verbosity", "Length", "were too long", "were short enough",
             "verbosity", find_too_long, _expecting("max_seconds", "max_seconds"), expects="max_seconds", training="answer"),
        Gate("speakable", "Speakable text", "could not be spoken", "could be spoken",
             "speakable", find_unspeakable, training="answer"),
        Gate("script", "Writing system", "were in the wrong script", "were in the right script",
             "script", find_wrong_script, _expecting("script", "script"), expects="script"),
        Gate("everyday", "Everyday requests", "were wrong", "were right",
             "everyday", find_everyday_fault, _everyday, expects="everyday"),
        Gate("checks", "Checks of the suite's author", "failed a check", "passed their checks",
             "", find_failed_checks, _expecting("checks", "checks"), expects="checks", canary="expected"),
        Gate("judge", "A judge model's opinion", "were called bad", "were called good",
             "", list, lambda case, reply, _: {}, expects="judge"),
    )
}  # fmt: skip

DETECTORS: Final[Mapping[str, Detect]] = {
    **{gate.detector: gate.detect for gate in GATES.values() if gate.detector},
    "leak": find_leaks,  # its gate asks two more
    "template": find_broken_template,
    "refusal": find_refusal,  # judges training data and everyday requests; no gate of its own
}
"""Every detector by the name of its corpus."""
