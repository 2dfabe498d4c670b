"""The soak's verdict can fail: each kind of leak is seen, and noise is none."""

import random

import pytest

from tests.reliability.soak import is_passed
from tests.reliability.verdict import judge

pytestmark = pytest.mark.reliability

REST = {"rss_mib": 90.0, "tasks": 8.0, "descriptors": 23.0, "threads": 4.0}


def samples(seconds: int, **leaks: float) -> list[dict[str, float]]:
    """One a second: noise, a warm-up, and so much more a second of what leaks."""
    chance = random.Random(1)
    return [
        {
            "t": float(t),
            "rss_mib": 115 - 20 * 0.9**t + chance.uniform(0, 1) + leaks.get("rss_mib", 0) * t,
            "tasks": chance.randrange(15, 35) + leaks.get("tasks", 0) * t,
            "descriptors": chance.randrange(30, 45) + leaks.get("descriptors", 0) * t,
            "threads": 4 + leaks.get("threads", 0) * t,
        }
        for t in range(seconds)
    ]


def test_noise_and_a_warm_up_are_flat() -> None:
    assert is_passed(0, [], judge(samples(300), REST, REST))


@pytest.mark.parametrize("what", REST)
def test_a_slow_leak_is_not_flat(what: str) -> None:
    held = judge(samples(300, **{what: 0.1}), REST, REST)
    assert {one.what for one in held if not one.flat} == {what}


@pytest.mark.parametrize("what", ["tasks", "descriptors"])
def test_what_is_still_held_when_everybody_has_gone_is_a_leak(what: str) -> None:
    held = judge(samples(300), REST, {**REST, what: REST[what] + 3})
    assert [one.what for one in held if not one.flat] == [what]


def test_a_lost_reply_or_a_bug_is_no_pass() -> None:
    held = judge(samples(300), REST, REST)
    assert not is_passed(1, [], held)
    assert not is_passed(0, ["Traceback"], held)
