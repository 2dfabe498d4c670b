"""Envelopes, statements and manifests with any part exchanged for anything: one error of ours, never another."""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gates.artefact.artefact import parse as parse_manifest
from gates.contracts import sample
from gates.contracts.errors import ManifestError, SamplesError
from gates.decode.decoder import DecodeError
from gates.report import dsse, statement
from tests.gates.report import examples
from tests.gates.report.examples import KEY

MODELS = Path(__file__).parents[3] / "models"
ANYTHING: list[Any] = [None, True, -1, 1.5, 10**400, 1e308, "x", "\ud800", [], {}, [[]], {"a": 1}]
WHOLE = examples.passing()
STATEMENT = replace(
    WHOLE,
    samples=replace(WHOLE.samples, lines=WHOLE.samples.lines[:1]),
    decision=replace(WHOLE.decision, gates=WHOLE.decision.gates[-4:-3]),
    tallies=WHOLE.tallies[:1],
)
"""One of everything."""
PAYLOAD = statement.render(STATEMENT)
ENVELOPE = dsse.render(dsse.sign(PAYLOAD, KEY))
SAMPLE = examples.sample_lines({"candidate": examples.cases("leak")[:1]})[0]
MANIFEST = (MODELS / "annie-nano-f16" / "artefact.json").read_bytes()

READERS: list[tuple[str, Callable[[bytes], object], bytes, type[Exception]]] = [
    ("envelope", dsse.parse, ENVELOPE, DecodeError),
    ("statement", statement.parse, PAYLOAD, DecodeError),
    ("sample", lambda text: sample.parse(text.decode("utf-8", "replace"), "line 1"), SAMPLE, SamplesError),
    ("manifest", lambda text: parse_manifest(text.decode("utf-8", "replace")), MANIFEST, ManifestError),
]


def paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of every part; of a list its first item stands for all."""
    yield above
    items = (
        value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    )
    for key, item in items:
        yield from paths(item, (*above, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {**value, path[0]: put(value[path[0]], path[1:], new)}
    return [put(item, path[1:], new) if i == path[0] else item for i, item in enumerate(value)]


@pytest.mark.parametrize(
    ("read", "sound", "error"), [reader[1:] for reader in READERS], ids=[name for name, *_ in READERS]
)
def test_any_part_may_be_anything(
    read: Callable[[bytes], object], sound: bytes, error: type[Exception]
) -> None:
    read(sound)
    value = json.loads(sound)
    for number, path in enumerate(paths(value)):
        for new in ANYTHING[number % 3 :: 3]:  # the kinds take turns
            text = json.dumps(put(value, path, new), sort_keys=True, separators=(",", ":"))
            with contextlib.suppress(error):
                read(text.encode())
