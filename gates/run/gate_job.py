"""A gate job as a value: what is judged, against what, by which policy, and its arms. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gates.artefact.artefact import Snapshot, snapshot
from gates.artefact.manifest import Artefact
from gates.contracts.case import Suite
from gates.contracts.errors import RunError
from gates.contracts.numerics import Numerics
from gates.contracts.sample import AGAIN, BASELINE, CANDIDATE, CONTROL_PREFIX, LATENCY_PREFIX
from gates.policy.policy import Policy
from gates.report.statement import EngineIdentity
from gates.run.rulings import OutsideChecks
from gates.run.target import Arm, Target, Variant
from gates.suite.draw import order_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A running engine and its model. `context` in tokens; `tokens` are the special ones; `files` as before they were hashed."""

    target: Target
    artefact: Artefact
    engine: EngineIdentity
    numerics: Numerics | None = None
    reply_format: str = ""
    tokens: frozenset[str] = frozenset()
    context: int = 4096
    files: Snapshot = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateJob:
    """What is judged. `controls`: model and variant by name. `known`: artefacts for lineage. `timed`: with latency. `full`: all of
    stage 1 even after a failure. `sequential`: in random order, and only until it is decided. `gateway`: the model's configuration by which
    the targets hear; {} if they do not. `jobs`: how many requests at once, to different engines. `outside`: what asks an author's functions and judge models.
    """

    suite: Suite
    policy: Policy
    candidate: ServedModel
    baseline: ServedModel
    controls: Mapping[str, tuple[ServedModel, Variant]] = field(default_factory=dict)
    known: tuple[Artefact, ...] = ()
    timed: bool = True
    full: bool = False
    gateway: Mapping[str, str] = field(default_factory=dict)
    jobs: int = 1
    sequential: bool = False
    outside: OutsideChecks = field(default_factory=OutsideChecks)

    def __post_init__(self) -> None:
        """Raises RunError if a control of the policy has no engine."""
        wanted = {control.name for control in self.policy.controls}
        if missing := wanted - self.controls.keys():
            raise RunError(
                f"policy {self.policy.name} wants the control {', '.join(sorted(missing))}; name its engine"
            )

    @property
    def order(self) -> str:
        """The seed of a sequential run's order; "" for a run of fixed size."""
        return order_seed(self.suite.digest, self.candidate.artefact.root) if self.sequential else ""

    @property
    def arms(self) -> dict[str, Arm]:
        """Every arm that is judged for behaviour, by name."""
        production = Variant(system_suffix=self.policy.run.system)
        arms = [
            Arm(CANDIDATE, self.candidate.target, production),
            Arm(BASELINE, self.baseline.target, production),
            Arm(AGAIN, self.baseline.target, production),
        ]
        for control in self.policy.controls:
            side, variant = self.controls[control.name]
            arms.append(Arm(f"{CONTROL_PREFIX}{control.name}", side.target, variant))
        return {arm.name: arm for arm in arms}

    @property
    def served_models(self) -> dict[str, ServedModel]:
        """The served model of every arm, also of the timed ones."""
        sides = {CANDIDATE: self.candidate, BASELINE: self.baseline, AGAIN: self.baseline}
        sides |= {f"{CONTROL_PREFIX}{name}": side for name, (side, _) in self.controls.items()}
        sides |= {f"{LATENCY_PREFIX}{arm}": sides[arm] for arm in (CANDIDATE, BASELINE)}
        return sides

    @property
    def timed_arms(self) -> list[Arm]:
        """The arms of the latency part."""
        both = (self.arms[CANDIDATE], self.arms[BASELINE])
        return [Arm(f"{LATENCY_PREFIX}{arm.name}", arm.target, arm.variant) for arm in both]


HELD: Final = "weights.json"


def check_held(folder: Path, models: Iterable[ServedModel]) -> None:
    """Keep the metadata of the artefacts' files in the run's folder. Raises RunError: files were written to or exchanged since they were
    hashed, or since the run began; or the folder cannot be written.
    """
    path = folder / HELD
    try:
        kept = json.loads(path.read_bytes()) if path.exists() else {}
        for model in models:
            hashed = [list(entry) for entry in model.files]
            now = [list(entry) for entry in snapshot(Path(model.files[0][0]))] if hashed else []
            if not kept.setdefault(model.artefact.root, hashed) == hashed == now:
                what = f"{model.artefact.name} ({model.artefact.root:.19})"
                raise RunError(f"files of {what} were written to or exchanged since this run began; {_ANEW}")
        path.write_text(json.dumps(kept), "utf-8")
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(f"{path}: cannot be used ({error}); {_ANEW}") from None


_ANEW: Final = "nothing of it can be signed: run the gate in a folder of its own (--out DIR)"
