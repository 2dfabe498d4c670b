"""A statement's text: an in-toto Statement whose every part follows from the value."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gates.contracts.numerics import Numerics
from gates.decode.decoder import DecodeError, canonical
from gates.report.statement import PREDICATE_TYPE, Attachment, Statement, parse, render
from tests.gates.report import examples


def edited(statement: Statement, edit: Callable[[dict[str, Any]], object]) -> bytes:
    """The canonical text of the statement's document after an edit in place."""
    found = json.loads(render(statement))
    edit(found)
    return canonical(found)


def test_what_may_be_left_out_comes_back_and_is_left_out_where_it_was_not_recorded() -> None:
    plain = examples.passing()
    attached, gateway = (
        (Attachment("ifeval.json", examples.sha("a")),),
        {"judged": "through", "reasoning": "strip"},
    )
    whole = replace(
        plain,
        candidate=replace(plain.candidate, numerics=Numerics(scheme="W4A16", gpu="NVIDIA H200")),
        baseline=replace(plain.baseline, numerics=Numerics(), reply_format="qwen"),
        attachments=attached,
        gateway=gateway,
        sequential="5eed",
    )

    assert parse(render(whole)) == whole
    assert whole.candidate.engine.digest == plain.candidate.engine.digest
    keys = (b'"attachments"', b'"gateway"', b'"sequential"', b"numerics", b"reply-format")
    assert not [name for name in keys if name in render(plain)]
    with pytest.raises(DecodeError, match="must be a plain file name"):
        parse(edited(whole, lambda d: d["predicate"]["attachments"][0].update(name="../x")))


EDITS: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("another type", lambda d: d.update(_type="https://in-toto.io/Statement/v0.1"), "not https://in-toto.io/Statement/v1"),
    ("another predicate", lambda d: d.update(predicateType="urn:other"), f"not {PREDICATE_TYPE}"),
    ("a lost part", lambda d: d["predicate"].pop("gates"), "lacks a part"),
    ("a lost descriptor", lambda d: d["predicate"]["configuration"].pop(), "lacks a part"),
    ("a verdict of none", lambda d: d["predicate"].update(verdict="maybe"), "verdict"),
    ("a time of no form", lambda d: d["predicate"].update(timeCreated="2026-1-21T09:30:15Z"), "no time of the form"),
    ("a predicate of a list", lambda d: d.update(predicate=[]), "lacks a part"),
]  # fmt: skip


@pytest.mark.parametrize("edit, message", [e[1:] for e in EDITS], ids=[e[0] for e in EDITS])
def test_an_edited_statement_is_refused_by_its_place(
    edit: Callable[[dict[str, Any]], object], message: str
) -> None:
    with pytest.raises(DecodeError, match=message) as caught:
        parse(edited(examples.failing(), edit))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [{"a": object()}, {"a": "\ud800"}, [math.nan]])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(DecodeError):
        canonical(value)


TWO_THREADS = """
import threading
from dataclasses import dataclass
from gates.decode import decoder

begun, go = threading.Event(), threading.Event()

def slow():
    if threading.current_thread() is first:
        begun.set()
        go.wait()
    return int

@dataclass
class Inner:
    number: "slow()"

@dataclass
class Outer:
    inner: Inner

first, second = (threading.Thread(target=decoder.convert, args=({"inner": {"number": 1}}, Outer)) for _ in range(2))
first.start()
begun.wait()
second.start()
threading.Timer(0.2, go.set).start()
first.join()
second.join()
"""


def test_two_threads_may_decode_a_class_for_the_first_time() -> None:
    assert subprocess.run([sys.executable, "-c", TWO_THREADS]).returncode == 0
