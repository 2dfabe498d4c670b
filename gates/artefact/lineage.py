"""Whether two artefacts are forms of the same model. Only then does a comparison measure the quantization.

They are if both name the same base model, and one descends from the weights that the other is a conversion of.
Parents have a role: `source` (a conversion) and `teacher` (recovery) keep the model the same; `base` (training from
other weights) may change it. A fine-tune is not its base, and two fine-tunes of one base are two models.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gates.artefact.manifest import Artefact

_SAME_MODEL: Final = ("source", "teacher")


@dataclass(frozen=True, slots=True)
class Lineage:
    """Whether two artefacts are the same model; usable as a bool. `reason` is one line."""

    same: bool
    reason: str

    def __bool__(self) -> bool:
        return self.same


UNCHECKED: Final = Lineage(False, "the baseline's lineage was not checked")


def same_lineage(candidate: Artefact, baseline: Artefact, others: Iterable[Artefact] = ()) -> Lineage:
    """Whether the baseline is another form of the candidate's model. `others`: artefacts through which ancestors are found."""
    if candidate.root == baseline.root:
        return Lineage(True, f"both are {baseline.root}")
    ours, theirs = candidate.provenance.base_model, baseline.provenance.base_model
    if ours != theirs:
        return Lineage(False, f"{_base_model_text(candidate)}; {_base_model_text(baseline)}")
    known = {a.root: a for a in (candidate, baseline, *others)}
    for child, parent in ((candidate, baseline), (baseline, candidate)):
        common = _ancestors(child, known) & _ancestors(parent, known, _SAME_MODEL)
        if common:
            return Lineage(True, f"both come from {min(common)}")
    return Lineage(
        False,
        f"neither {candidate.name} ({candidate.format}) nor {baseline.name} ({baseline.format}) comes from "
        "what the other is made of, by the parents in their manifests",
    )


def _base_model_text(artefact: Artefact) -> str:
    base = artefact.provenance.base_model
    return f"{artefact.name} ({artefact.format}) {f'is based on {base}' if base else 'names no base model'}"


def _ancestors(
    artefact: Artefact, known: Mapping[str, Artefact], roles: tuple[str, ...] | None = None
) -> frozenset[str]:
    """The artefact's root and the roots it was made from, as far as `known` has them; through some roles only if given."""
    found: set[str] = set()
    waiting = [artefact.root]
    while waiting:
        root = waiting.pop()
        if root in found:
            continue
        found.add(root)
        if root in known:
            parents = known[root].provenance.parents
            waiting += [digest for role, digest in parents.items() if roles is None or role in roles]
    return frozenset(found)
