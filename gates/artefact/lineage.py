"""Are two artefacts the same model? A comparison with another model says nothing about a quantization.

An artefact's provenance names a base model and the artefacts it was made of, by role. `source` is a
conversion (another format of the same weights) and `teacher` the model it was recovered towards;
both keep the model what it is. `base` is training from other weights: recovery from a
quantization's damage is that, and so is teaching something new. What tells them apart is kept here:

* both artefacts name the same base model, and
* one descends from the weights that the other is a conversion of.

A model fine-tuned from a base is not that base, though it descends from it: the base does not name
itself as its base model. Two fine-tunes of one base are two models. Quantization and recovery hand
the base model on unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gates.artefact.manifest import Artefact

_SAME_MODEL: Final = ("source", "teacher")


@dataclass(frozen=True, slots=True)
class Lineage:
    """Whether two artefacts are one model; true or false by itself. `reason` is one line."""

    same: bool
    reason: str

    def __bool__(self) -> bool:
        return self.same


UNCHECKED: Final = Lineage(False, "the baseline's lineage was not checked")


def same_lineage(candidate: Artefact, baseline: Artefact, known: Iterable[Artefact] = ()) -> Lineage:
    """Whether the baseline is the candidate's own model in another form.

    `known` are further artefacts, through which parents of parents are found: a candidate made of a
    checkpoint that was itself recovered from the baseline's source needs that checkpoint here.
    """
    if candidate.root == baseline.root:
        return Lineage(True, f"both are {baseline.root}")
    ours, theirs = candidate.provenance.base_model, baseline.provenance.base_model
    if ours != theirs:
        return Lineage(False, f"{_says(candidate)}; {_says(baseline)}")
    shelf = {a.root: a for a in (candidate, baseline, *known)}
    for child, parent in ((candidate, baseline), (baseline, candidate)):
        common = _ancestors(child, shelf) & _ancestors(parent, shelf, _SAME_MODEL)
        if common:
            return Lineage(True, f"both come from {min(common)}")
    return Lineage(
        False,
        f"neither {candidate.name} ({candidate.format}) nor {baseline.name} ({baseline.format}) comes from "
        "what the other is made of, by the parents in their manifests",
    )


def _says(artefact: Artefact) -> str:
    base = artefact.provenance.base_model
    return f"{artefact.name} ({artefact.format}) {f'is based on {base}' if base else 'names no base model'}"


def _ancestors(
    artefact: Artefact, shelf: Mapping[str, Artefact], roles: tuple[str, ...] | None = None
) -> frozenset[str]:
    """The artefact's root and the roots it was made of, as far as the shelf knows; of some roles."""
    found: set[str] = set()
    waiting = [artefact.root]
    while waiting:
        root = waiting.pop()
        if root in found:
            continue
        found.add(root)
        if root in shelf:
            parents = shelf[root].provenance.parents
            waiting += [digest for role, digest in parents.items() if roles is None or role in roles]
    return frozenset(found)
