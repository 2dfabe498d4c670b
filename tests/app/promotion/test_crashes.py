"""The gateway dies, effects fail, operators and callers interfere: afterwards one engine serves, and no other runs."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from app.promotion.state_machine import OperationEvent, OperationKind, OperationPhase
from app.registry.values import OperationRow
from tests.app.promotion.simulated import SPARE, Gateway, World
from tests.scale import scaled

SHARED = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
KINDS = pytest.mark.parametrize("kind", OperationKind)
ROOM = pytest.mark.parametrize("room", [2, 1], ids=["blue_green", "stop_then_start"])
OUTLIVE = pytest.mark.parametrize("outlive", [True, False], ids=["containers", "children"])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: it is the simulated gateway that dies here, not the disk."""
    where = tempfile.mkdtemp(dir=SHARED or tmp_path)
    yield Path(where)
    shutil.rmtree(where)


def up(path: Path, room: int, outlive: bool, count: int = 1) -> Gateway:
    """A gateway that serves a."""
    gateway = Gateway(path, World(room, outlive, count))
    gateway.boot()
    gateway.run()
    return gateway


def change(gateway: Gateway, kind: OperationKind = OperationKind.PROMOTE) -> tuple[str, str]:
    """Queue an operation between a and b; what is live, and what is to be."""
    old, new = ("a", "b") if gateway.live == "a" else ("b", "a")
    gateway.begin(gateway.plan(kind, new))
    return old, new


def last(gateway: Gateway) -> str:
    """How the last operation stands."""
    return gateway.registry.all(OperationRow)[-1].phase


@KINDS
@ROOM
@OUTLIVE
def test_killed_at_any_commit_or_effect_it_goes_back_or_forward(
    folder: Path, kind: OperationKind, room: int, outlive: bool
) -> None:
    """Where the alias pointed when it died is where it points when it has recovered."""
    gateway, ended, points, ends = up(folder / "0.sqlite", room, outlive), False, 0, set()
    while not ended:
        if points % 8 == 7:  # each start and check goes through the whole history
            gateway.registry.close()
            gateway = up(folder / f"{points}.sqlite", room, outlive)
        points += 1
        old, new = change(gateway, kind)
        ended = gateway.run(points)
        live = gateway.live
        gateway.boot()
        gateway.run()
        gateway.check_all_is_well()
        assert gateway.live == live
        ends.add(("back" if live == old else "forward", last(gateway)))
        assert live in (old, new)
    assert points > 20
    assert ends == {("back", OperationPhase.FAILED), ("forward", OperationPhase.SUCCEEDED)}


def test_what_is_stuck_is_put_right_at_the_next_start(folder: Path) -> None:
    gateway = up(folder / "it.sqlite", 2, True)
    change(gateway)
    gateway.world.trouble = (
        ["ok"] * 3 + ["half"] + ["fail"] * 3
    )  # it starts, is not believed, and cannot be stopped
    assert gateway.run()
    assert last(gateway) == OperationPhase.STUCK
    assert gateway.world.running == {"a", "b", SPARE}
    gateway.boot()
    gateway.run()
    gateway.check_all_is_well()
    assert gateway.live == "a"


class Years(RuleBasedStateMachine):
    """Many operations, many deaths."""

    @initialize(room=st.sampled_from([1, 2]), outlive=st.booleans(), count=st.sampled_from([1, 1, 3]))
    def built(self, room: int, outlive: bool, count: int) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=SHARED))
        self.gateway = Gateway(self.folder / "it.sqlite", World(room, outlive, count))
        self.gateway.boot()
        self.gateway.run()

    @precondition(lambda self: not self.gateway.registry.all(OperationRow, done=False))
    @rule(choice=st.integers(0, 1), rollback=st.booleans())
    def operate(self, choice: int, rollback: bool) -> None:
        gateway = self.gateway
        gateway.run()
        if gateway.registry.all(OperationRow) and last(gateway) == OperationPhase.STUCK:
            gateway.boot()
            gateway.run()
        previous = gateway.registry.alias("annie", "previous")
        if rollback and previous and previous.engine:
            gateway.begin(gateway.plan(OperationKind.ROLLBACK, previous.engine))
        else:
            others = [name for name in "abc" if name != gateway.live]
            gateway.begin(gateway.plan(OperationKind.PROMOTE, others[choice]))

    @rule(points=st.integers(1, 20))
    def time_passes(self, points: int) -> None:
        self.gateway.run(points)

    @rule(trouble=st.lists(st.sampled_from(["ok", "ok", "fail", "half", "refuse"]), max_size=6))
    def effects_will_fail(self, trouble: list[str]) -> None:
        self.gateway.world.trouble = trouble

    @rule(event=st.sampled_from([OperationEvent.BREACHED, OperationEvent.CANCEL]))
    def somebody_interferes(self, event: OperationEvent) -> None:
        self.gateway.inbox.append(event)

    @rule(points=st.integers(0, 20))
    def killed(self, points: int) -> None:
        self.gateway.boot()
        self.gateway.run(points)

    @invariant()
    def nobody_is_lost_and_the_chain_is_whole(self) -> None:
        self.gateway.check_nobody_is_lost()
        self.gateway.registry.verify_chain()

    def teardown(self) -> None:
        if hasattr(self, "gateway"):
            self.gateway.boot()
            self.gateway.run()
            self.gateway.check_all_is_well()
            self.gateway.registry.close()
            shutil.rmtree(self.folder)


TestYears = Years.TestCase
TestYears.settings = settings(
    max_examples=scaled(50, 150),
    stateful_step_count=30,
    deadline=None,
)
