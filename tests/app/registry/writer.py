"""A process that writes to a registry until it is killed, and says on stdout what it was promised."""

import sys
from dataclasses import replace
from pathlib import Path

from app.registry.registry import Registry
from app.registry.values import AliasMove, AuditEntry, KnownEngine, OperationRow

PHASES = ("starting", "switching", "succeeded")


def entry(operation: str, phase: str) -> AuditEntry:
    """What the audit says of a phase."""
    return AuditEntry(
        at="now", actor="writer", verb="test", subject="annie", operation=operation, detail={"phase": phase}
    )


def finish(registry: Registry, operation: OperationRow) -> None:
    """Take an operation through the phases that are left, and say so after each."""
    for phase in PHASES[PHASES.index(operation.phase) + 1 if operation.phase in PHASES else 0 :]:
        alias = registry.alias("annie", "live")
        move = AliasMove(model="annie", name="live", engine="e", generation=alias.generation if alias else 0)
        moves = [move] if phase == "switching" else []
        registry.advance(
            replace(operation, phase=phase, done=phase == PHASES[-1]), moves, entry(operation.id, phase)
        )
        print(registry.head().seq, flush=True)


def main(path: Path) -> None:
    with Registry(path) as registry:
        registry.add_engine(
            KnownEngine(digest="e", name="e", artefact=None, spec="{}"), entry("none", "engine")
        )
        for left in registry.operations(unfinished_only=True):
            finish(registry, left)
        while True:
            operation = OperationRow(
                id=f"op{registry.head().seq}", kind="promote", model="annie", phase="queued", state="{}", created="now"
            )  # fmt: skip
            registry.begin(operation, entry(operation.id, "queued"))
            finish(registry, operation)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
