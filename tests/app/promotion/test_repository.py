"""Operations in the registry: the state, the aliases and the event of a step are one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.promotion import repository
from app.promotion.state_machine import (
    OperationEvent,
    OperationKind,
    OperationPhase,
    OperationPlan,
    OperationState,
    step,
)
from app.registry.errors import GenerationMoved
from app.registry.registry import Registry
from app.registry.values import AuditEntry, KnownEngine, OperationRow, RouteChange
from gates.decode.decoder import canonical, encode

NOW = "2026-11-21T06:00:00Z"
PLAN = OperationPlan(
    operation="op", kind=OperationKind.PROMOTE, model="annie", candidate="new", incumbent="old", strategy="blue_green",
    generation=1, report="r",
)  # fmt: skip


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    entry = AuditEntry(at=NOW, actor="test", verb="found", subject="annie")
    with Registry(tmp_path / "registry.sqlite") as it:
        for name in ("old", "new", "third"):
            it.add(KnownEngine(digest=name, name=name, artefact=None, spec="{}"), entry)
        it.note(entry, RouteChange("annie", "old", None, None))
        repository.begin(it, PLAN, at=NOW, actor="ann", key="k", request="q")
        yield it


def stored(registry: Registry) -> OperationState:
    return repository.state_of(row(registry))


def row(registry: Registry) -> OperationRow:
    (found,) = registry.all(OperationRow, id="op")
    return found


AS_1_WROTE_IT = (
    '{"at":0,"fault":null,"outcome":null,"phase":"baking","plan":{"bake_s":600.0,"candidate":"new","fallback":null,'
    '"generation":1,"incumbent":"old","kind":"promote","model":"annie","operation":"op","previous":null,"report":"r",'
    '"resident":[],"strategy":"blue_green"},"tries":0}'
)
"""Before there were replicas."""


def test_a_state_of_an_earlier_program_is_read(registry: Registry) -> None:
    """Fields that came later have the value that they had then without a name; it is no plan of replicas."""
    old = replace(row(registry), state=AS_1_WROTE_IT)
    assert repository.state_of(old) == OperationState(PLAN, OperationPhase.BAKING)
    of_0_3 = AS_1_WROTE_IT.replace('"baking"', '"rolling"').replace('"model"', '"max_unavailable":2,"model"')
    assert repository.state_of(replace(old, state=of_0_3)) == OperationState(PLAN, OperationPhase.SWITCHING)


def test_the_engines_of_a_set_are_known_from_the_operation_that_put_them_in_service(
    registry: Registry,
) -> None:
    assert repository.replicas_of(registry, "annie", "old") == ("old",)
    ended = OperationState(replace(PLAN, candidates=("third",)), OperationPhase.SUCCEEDED)
    entry = AuditEntry(at=NOW, actor="gateway", verb="promote.succeeded", subject="annie", operation="op")
    state = canonical(encode(ended)).decode()
    registry.change(OperationRow, entry, state=state, phase="succeeded", done=True)
    assert repository.replicas_of(registry, "annie", "new") == ("new", "third")
    assert repository.replicas_of(registry, "bertha", "new") == ("new",)


def test_an_alias_that_somebody_else_moved_stops_the_switch(registry: Registry) -> None:
    """The state is where it was, so its effect can be fed the failure, and what was begun is undone."""
    event, before = OperationEvent.BEGIN, stored(registry)
    while (after := step(before, event)).state.phase is not OperationPhase.SWITCHING:
        repository.commit(registry, before, event, after, at=NOW, actor="gateway")
        event, before = OperationEvent.DONE, after.state
    entry = AuditEntry(at=NOW, actor="eve", verb="override", subject="annie")
    registry.note(entry, RouteChange("annie", "third", None, 1))
    with pytest.raises(GenerationMoved):
        repository.commit(registry, before, event, after, at=NOW, actor="gateway")
    assert stored(registry) == before and before.phase is OperationPhase.CANARY
    failed = step(before, OperationEvent.FAILED)
    repository.commit(registry, before, OperationEvent.FAILED, failed, at=NOW, actor="gateway")
    assert row(registry).phase == "rolling_back"
    live = registry.alias("annie", "live")
    assert live is not None and (live.engine, live.generation) == ("third", 2)
