"""A fixed part of the suite annie-nano as a promptfoo configuration: static assertions, no model as judge. Pure.

The requests are the gate's own, to the field. The assertions are not: they are promptfoo's words and
`judge.js`, so that two judges who share no code look at the same replies.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from gates.contracts.case import Case, Suite
from gates.run.request import build_body
from gates.run.target import Target, Variant

JUDGE: Final = Path(__file__).with_name("judge.js")
MODEL: Final = "annie"
SIZES: Final = {"leak": 20, "no_markdown": 15, "factual": 15, "reasoning": 15, "tools": 26}
"""Cases of each gate beside its named ones; some count for two gates."""

_LEAK: Final = (
    ("not-contains", "Thinking: "),  # how promptfoo shows a reasoning field
    ("not-regex", r"<\|?/?(think|thought|reasoning|analysis|channel)"),
    (
        "not-regex",
        r"\b([Tt]he user|[Ll]et me think|[Ll]et me see|[Oo]kay, so|[Hh]mm|[Ww]ait,|I (should|need to) )",
    ),
)
_MARKDOWN: Final = (
    ("not-regex", r"(^|\n) {0,3}([-*+]|\d{1,9}[.)])[ \t]+\S"),  # a list
    ("not-regex", r"(^|\n) {0,3}(#{1,6}[ \t]|>)"),  # a heading, a quotation
    ("not-regex", r"\*\*|__|`|~~"),
    ("not-regex", r"(^|[^\w*])\*[^\s*][^*\n]*\*"),
    ("not-regex", r"\]\("),
    ("not-regex", r"\|[ \t]*:?-+:?[ \t]*\|"),  # a table
)


def chosen(suite: Suite) -> tuple[Case, ...]:
    """The cases, in the suite's order: the named ones, and of each gate as many of one kind as of another."""
    kept = {case.id for gate, size in SIZES.items() for case in _spread(suite.of(gate, 1))[:size]}
    return tuple(case for case in suite.cases if case.id in kept or SIZES.keys() & set(case.named))


def _spread(cases: Sequence[Case]) -> list[Case]:
    """One of each kind, then a second of each, and so on."""
    kinds = defaultdict(list)
    for case in cases:
        kinds[case.turn].append(case)
    return [case for row in zip_longest(*kinds.values()) for case in row if case is not None]


def config(suite: Suite, cases: Sequence[Case], url: str) -> dict[str, Any]:
    """What `promptfoo eval -c` takes, as JSON, for a gateway at this address."""
    target = Target(url=url, served_model=MODEL, dialect="openai", artefact="", engine="")
    return {
        "description": f"{suite.name}, {len(cases)} of {len(suite.cases)} cases",
        "providers": [
            {"id": f"openai:chat:{MODEL}", "config": {"apiBaseUrl": f"{url}/v1", "apiKey": "none"}},
        ],
        "prompts": ["{{messages}}"],
        "tests": [
            _test(case, build_body(case, suite.sampling, target, Variant(), "whole")) for case in cases
        ],
    }


def _test(case: Case, body: dict[str, Any]) -> dict[str, Any]:
    messages = json.dumps(body["messages"], ensure_ascii=False)
    assert not any(mark in messages for mark in ("{{", "{%", "{#")), (
        f"{case.id}: promptfoo takes it for a template"
    )
    sent = {key: value for key, value in body.items() if key not in ("model", "messages")}
    return {
        "description": case.id,
        "vars": {"messages": messages},
        "options": {"passthrough": sent},
        "assert": [
            {**a, "metric": gate} for gate in case.gates if gate in SIZES for a in _asserts(gate, case)
        ],
    }


def _asserts(gate: str, case: Case) -> list[dict[str, Any]]:
    if gate in ("leak", "no_markdown"):
        return [{"type": t, "value": v} for t, v in (_LEAK if gate == "leak" else _MARKDOWN)]
    if gate == "tools":
        name, wanted = "calls", {"calls": case.expect["calls"]}
    else:
        name, wanted = "answer", case.expect["answer"]
    return [{"type": "javascript", "value": f"file://{JUDGE}:{name}", "config": wanted}]
