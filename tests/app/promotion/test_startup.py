"""Who is live at start: the configuration says so until something was promoted, and then the registry does."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.config.config import Config
from app.errors.tree import Refused
from app.promotion import repository
from app.promotion.spec_catalogue import SpecCatalogue, spec_of
from app.promotion.startup import bound_to_reports, current_roots, record_configuration
from app.promotion.state_machine import (
    OperationEvent,
    OperationKind,
    OperationPlan,
    step,
)
from app.registry.registry import Registry
from app.registry.values import AuditEntry, KnownArtefact, KnownEngine, KnownReport, OperationRow
from deploy.engine.spec import EngineSpec, spec_digest, spec_text
from tests.app.promotion.stage import settings

AT = "2026-11-21T06:00:00.000Z"
ENTRY = AuditEntry(at=AT, actor="test", verb="test", subject="annie")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return settings(tmp_path)


@pytest.fixture
def registry(tmp_path: Path, config: Config) -> Iterator[Registry]:
    """As the first start of that configuration leaves it."""
    with Registry(tmp_path / "registry.db") as it:
        assert start(it, config) == "small"
        yield it


def all_live(registry: Registry, config: Config) -> tuple[str, ...]:
    """The names of all engines that are live after a start."""
    shelf = SpecCatalogue(config.engines)
    return tuple(shelf.name(it.digest) for it in record_configuration(registry, config, shelf, AT)["annie"])


def start(registry: Registry, config: Config) -> str:
    """The name of the engine that is live after a start."""
    return all_live(registry, config)[0]


def promoted(
    registry: Registry,
    config: Config,
    engine: str,
    report: str = "r",
    waived: bool = False,
    until: str = "succeeded",
) -> None:
    """A promotion as it stands in the registry, every effect done; or as far as a phase."""
    shelf, live = SpecCatalogue(config.engines), registry.alias("annie", "live")
    assert live is not None and live.engine is not None
    plan = OperationPlan(
        operation=f"op{registry.head().seq}", kind=OperationKind.PROMOTE, model="annie", candidate=shelf.digest(engine),
        incumbent=live.engine, strategy="blue_green", generation=live.generation, report=report,
    )  # fmt: skip
    repository.begin(registry, plan, at=AT, actor="test")
    (row,) = registry.all(OperationRow, id=plan.operation)
    machine = repository.state_of(row)
    while not machine.is_done and machine.phase != until:
        event = OperationEvent.DONE if machine.effect else OperationEvent.BEGIN
        after = step(machine, event)
        evidence = {"waived": {"report_stale": "it is old"}} if waived else {}
        repository.commit(registry, machine, event, after, None, evidence, at=AT, actor="test")
        machine = after.state


def changed(config: Config, *, live: str = "small", edited: str = "", without: str = "") -> Config:
    """The configuration with another engine as `live`, another flag for an engine, or without an engine."""
    engines = {name: spec for name, spec in config.engines.items() if name != without}
    if edited:
        engines[edited] = replace(engines[edited], args=("--ctx-size", "1024"))
    model = config.models["annie"].model_copy(update={"live": (live,)})
    return config.model_copy(update={"engines": engines, "models": {"annie": model}})


def required(config: Config, require: bool | None) -> Config:
    """The configuration with this `[gates] require`."""
    return config.model_copy(update={"gates": config.gates.model_copy(update={"require": require})})


def report_about(registry: Registry, config: Config, engine: str) -> str:
    """A report about the engine's weights, uploaded and no more; its digest."""
    digest = "sha256:" + "7" * 64
    root = current_roots(SpecCatalogue(config.engines))[spec_digest(config.engines[engine])]
    assert root is not None
    report = KnownReport(
        digest=digest, statement="s", artefact=root, suite="s", policy="p", baseline="b", verdict="pass", created=AT, path="p"
    )  # fmt: skip
    registry.add(report, ENTRY)
    return digest


def gated(registry: Registry, config: Config) -> set[str]:
    """The names of the engines that count as gated."""
    shelf = SpecCatalogue(config.engines)
    return {shelf.name(digest) for digest in repository.gated(registry, current_roots(shelf))}


def test_a_first_start_writes_down_what_the_configuration_says(registry: Registry, config: Config) -> None:
    known = registry.find(KnownEngine, digest=spec_digest(config.engines["large"]))
    assert known is not None and known.artefact is not None
    assert registry.find(KnownArtefact, root=known.artefact) is not None
    assert [event.actor for event in registry.events()] == ["configuration"] * registry.head().seq
    head = registry.head()
    assert (start(registry, config), registry.head()) == ("small", head)


def test_what_was_promoted_stays_live(registry: Registry, config: Config) -> None:
    """Until then the configuration is followed."""
    assert start(registry, changed(config, live="large")) == "large"
    assert start(registry, changed(config, edited="small")) == "small"
    promoted(registry, config, "large")
    assert start(registry, config) == "large"
    assert start(registry, changed(config, edited="small")) == "large"


def test_an_engine_that_was_edited_since_its_promotion_has_to_be_promoted_again(
    registry: Registry, config: Config
) -> None:
    promoted(registry, config, "large")
    assert start(registry, required(changed(config, edited="large"), False)) == "small"
    assert registry.events()[-1].verb == "live.configured"
    previous = registry.alias("annie", "previous")
    assert previous is not None and previous.engine is None


@pytest.mark.parametrize("require", [None, True])
def test_what_was_promoted_on_a_report_serves_on_though_the_file_has_it_no_more(
    require: bool | None, registry: Registry, config: Config
) -> None:
    """As it was promoted, under a name of its own where another has taken it; the registry keeps its spec."""
    config = required(config, require)
    promoted(registry, config, "large")
    head = registry.head()
    assert re.fullmatch("large-[0-9a-f]{8}", start(registry, changed(config, edited="large")))
    assert start(registry, changed(config, without="large", live="stranger")) == "large"
    assert registry.head().seq == head.seq + 1  # the edited engine is known now; nothing was moved
    promoted(registry, config, "spare")
    assert (
        start(registry, changed(config, edited="spare", live="large")) == "large"
    )  # that one has a report, too


@pytest.mark.parametrize(("report", "waived"), [("override:4", False), ("r", True)])
def test_a_promotion_by_an_override_counts_as_ungated_and_binds_no_start(
    report: str, waived: bool, registry: Registry, config: Config
) -> None:
    """Whether it stood in for a report, or waived something that a report lacked."""
    promoted(registry, config, "large", report, waived)
    assert gated(registry, config) == set()
    assert start(registry, config) == "large"
    assert start(registry, changed(config, edited="large")) == "small"


@pytest.mark.parametrize(("phase", "counts"), [("canary", False), ("baking", True), ("succeeded", True)])
def test_an_engine_is_gated_from_the_switch_on(
    phase: str, counts: bool, registry: Registry, config: Config
) -> None:
    """A gateway that restarts inside a bake goes on with it, and knows what it serves."""
    promoted(registry, config, "large", until=phase)
    assert (gated(registry, config) == {"large"}) is counts


def test_an_engine_is_gated_with_the_weights_of_its_report_only(registry: Registry, config: Config) -> None:
    promoted(registry, config, "large", report_about(registry, config, "large"))
    assert gated(registry, config) == {"large"}
    shelf = SpecCatalogue(config.engines)
    replaced = {**current_roots(shelf), shelf.digest("large"): "sha256:" + "8" * 64}
    assert repository.gated(registry, replaced) == frozenset()


def test_require_refuses_an_engine_that_no_report_let_in_where_there_are_reports(
    registry: Registry, config: Config
) -> None:
    """By the default it serves, and a metric says so: nothing better was promoted yet."""
    assert start(registry, required(config, True)) == "small"
    report_about(registry, config, "small")
    assert start(registry, config) == "small"
    with pytest.raises(Refused, match=r"\[gates\] require = false") as caught:
        start(registry, required(config, True))
    assert caught.value.code == "live_not_gated"
    promoted(registry, config, "large", "r")
    assert start(registry, required(config, True)) == "large"


def test_replicas_of_the_configuration_are_live_together_whichever_of_them_was_promoted(
    registry: Registry, tmp_path: Path
) -> None:
    config = settings(tmp_path, live=["small", "spare"])
    assert all_live(registry, config) == ("small", "spare")
    promoted(registry, config, "large")  # no replica of the others
    assert all_live(registry, config) == ("large",)
    promoted(registry, config, "spare")
    assert all_live(registry, config) == ("small", "spare")


def test_a_report_is_about_all_replicas_with_its_weights() -> None:
    roots = {"a": "w", "b": "w", "c": "other", "d": None}
    found = [bound_to_reports(gated, [("a", "b", "c", "d")], roots) for gated in ("a", "cx", "d")]
    assert found == [{"a", "b"}, {"c"}, frozenset()]


def test_a_spec_is_read_back_from_its_text() -> None:
    numerics = (("gpu", "H"), ("scheme", "W4A4"))
    far = EngineSpec(name="a", dialect="vllm", driver="url", url="http://x", numerics=numerics)
    near = EngineSpec(
        name="b", dialect="llama-server", driver="embedded", artefact=Path("/m"), args=("-c", "1")
    )
    assert [spec_of(spec_text(spec)) for spec in (far, near)] == [far, near]
