"""Values to JSON and back: what was written comes back, and nothing else is taken."""

import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import pytest

from gates.report.codec import CodecError, canonical, decode, encode


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Row(NamedTuple):
    name: str
    size: float


@dataclass(frozen=True)
class Inner:
    share: float | None
    kind: Literal["a", "b"]


@dataclass(frozen=True)
class Outer:
    name: str
    count: int
    done: bool
    colour: Colour
    inner: Inner
    rows: tuple[Row, ...]
    points: tuple[float, ...]
    notes: Mapping[str, str]


SOUND: dict[str, Any] = encode(
    Outer("n", 1, True, Colour.RED, Inner(None, "a"), (Row("r", 1.5),), (1.0,), {"k": "v"})
)


def test_a_whole_number_where_a_float_is_due_has_the_text_of_the_float() -> None:
    whole, real = Inner(1, "a"), Inner(1.0, "a")

    assert canonical(encode(whole, Inner)) == canonical(encode(real, Inner))


FAULTS = [
    ({"extra": 1}, "value.extra: unknown key"),
    ({"name": ...}, "value.name: is missing"),
    ({"name": 3}, "value.name: must be a text"),
    ({"count": True}, "value.count: must be a whole number"),
    ({"count": 1.0}, "value.count: must be a whole number"),
    ({"done": 1}, "value.done: must be true or false"),
    ({"colour": "green"}, "value.colour: must be one of red, blue"),
    ({"colour": ["red"]}, "value.colour: must be one of red, blue"),
    ({"inner": {"share": "much", "kind": "a"}}, "value.inner.share: must be a number"),
    ({"inner": {"share": True, "kind": "a"}}, "value.inner.share: must be a number"),
    ({"inner": {"share": None, "kind": "c"}}, "value.inner.kind: must be one of a, b"),
    ({"inner": []}, "value.inner: must be an object"),
    ({"rows": [["r"]]}, r"value.rows\[0\]: must be a list of 2 values"),
    ({"rows": [["r", 1.0], ["r", "x"]]}, r"value.rows\[1\].size: must be a number"),
    ({"rows": "rr"}, "value.rows: must be a list"),
    ({"notes": {"k": 1}}, "value.notes.k: must be a text"),
]


@pytest.mark.parametrize("change, message", FAULTS)
def test_another_shape_is_refused_by_its_place(change: dict[str, Any], message: str) -> None:
    value = {k: v for k, v in (SOUND | change).items() if v is not ...}
    with pytest.raises(CodecError, match=message) as caught:
        decode(Outer, value, "value")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [{"a": object()}, {"a": "\ud800"}, [math.nan]])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(CodecError):
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

first = None
for kind in (Inner, Outer):
    decoder.field_hints(kind)
first, second = (threading.Thread(target=decoder.read, args=(Outer, {"inner": {"number": 1}})) for _ in range(2))
first.start()
begun.wait()
second.start()
threading.Timer(0.2, go.set).start()
first.join()
second.join()
"""


def test_two_threads_may_decode_a_class_for_the_first_time() -> None:
    assert subprocess.run([sys.executable, "-c", TWO_THREADS]).returncode == 0
