"""What real engines sent is heard the same on every split, by every kind of caller."""

import json
from itertools import repeat

import pytest

from gates.contracts import markers
from tests.conformance.engines import COLUMNS
from tests.conformance.golden import Golden, expectation, load, shots_for
from tests.looped import looped

GOLDENS = load()
golden_each = looped("golden", GOLDENS, in_groups_of=50)


def test_every_engine_has_said_everything_that_is_recorded() -> None:
    wanted = {f"{kind}-{shot.name}" for kind in (*COLUMNS, "llama-stranger") for shot in shots_for(kind)}
    assert {golden.name for golden in GOLDENS} == wanted


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_a_recorded_reply_is_heard_as_written(golden: Golden) -> None:
    assert golden.whole == json.loads(expectation(golden.name).read_text("utf-8"))


@golden_each
def test_a_recorded_reply_is_heard_the_same_byte_by_byte(golden: Golden) -> None:
    assert golden.heard(repeat(1, len(golden.raw))) == golden.whole


@golden_each
def test_of_no_recorded_reply_is_a_tag_heard_and_none_ends_well_unless_its_engine_said_so(
    golden: Golden,
) -> None:
    for heard in golden.whole.values():
        assert not any(markers.find(heard.get("content", "") + heard.get("thought", "")))
        assert ("finish" in heard) == (b'"finish_reason":"' in golden.raw)
        assert ("error" in heard) != heard.get("done", False)
