"""A gate job as a value: what is judged, by what, against what, and the arms that are asked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gates.artefact.manifest import Artefact
from gates.contracts.case import Suite
from gates.contracts.errors import RunError
from gates.policy.values import Policy
from gates.report.statement import Engine
from gates.run.readings import ARM_PREFIX
from gates.run.target import Arm, Target, Variant

CANDIDATE: Final = "candidate"
BASELINE: Final = "baseline"
AGAIN: Final = "again"
GATEWAY: Final = "gateway"
CONTROL: Final = "control:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """An engine that is up, and what it serves. `context` in tokens; `tokens`: the special ones."""

    target: Target
    artefact: Artefact
    engine: Engine
    tokens: frozenset[str] = frozenset()
    context: int = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is judged, by what, against what. `controls`: the side and the variant of each by name.

    `known` are further artefacts through which lineage is found. `timed` switches the latency part;
    `full` asks all of the first stage also of a candidate that has failed already. `through` is a
    gateway before the candidate: it is timed beside it, so that the gateway's own share is seen.
    """

    suite: Suite
    policy: Policy
    candidate: Side
    baseline: Side
    controls: Mapping[str, tuple[Side, Variant]] = field(default_factory=dict)
    known: tuple[Artefact, ...] = ()
    timed: bool = True
    full: bool = False
    through: Target | None = None

    def __post_init__(self) -> None:
        """Raises RunError for a control that the policy wants and nobody gave an engine for."""
        wanted = {control.name for control in self.policy.controls}
        if missing := wanted - self.controls.keys():
            raise RunError(
                f"policy {self.policy.name} wants the control {', '.join(sorted(missing))}; name its engine"
            )

    @property
    def arms(self) -> dict[str, Arm]:
        """Every arm that is asked for behaviour, by its name."""
        production = Variant(system_suffix=self.policy.run.system)
        arms = [
            Arm(CANDIDATE, self.candidate.target, production),
            Arm(BASELINE, self.baseline.target, production),
            Arm(AGAIN, self.baseline.target, production),
        ]
        for control in self.policy.controls:
            side, variant = self.controls[control.name]
            arms.append(Arm(f"{CONTROL}{control.name}", side.target, variant))
        return {arm.name: arm for arm in arms}

    @property
    def sides(self) -> dict[str, Side]:
        """The side of every arm, timed ones included."""
        sides = {CANDIDATE: self.candidate, BASELINE: self.baseline, AGAIN: self.baseline}
        sides |= {f"{CONTROL}{name}": side for name, (side, _) in self.controls.items()}
        sides |= {f"{ARM_PREFIX}{arm}": sides[arm] for arm in (CANDIDATE, BASELINE)}
        if self.through is not None:
            sides[f"{ARM_PREFIX}{GATEWAY}"] = replace(self.candidate, target=self.through)
        return sides

    @property
    def timed_arms(self) -> list[Arm]:
        """The arms of the latency part."""
        arms = [self.arms[CANDIDATE], self.arms[BASELINE]]
        if self.through is not None:
            arms.append(Arm(GATEWAY, self.through, arms[0].variant))
        return [Arm(f"{ARM_PREFIX}{arm.name}", arm.target, arm.variant) for arm in arms]
