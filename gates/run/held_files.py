"""The files of the judged artefacts, which must stay as they are from the first question of a run to its report.

Between hashing and report they could be exchanged for one load and put back. So their metadata are kept beside the samples, and
compared when the run goes on and before it is signed (`gates.artefact.artefact.snapshot`).
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gates.artefact.artefact import snapshot
from gates.contracts.errors import RunError
from gates.run.gate_job import ServedModel

HELD: Final = "weights.json"


def hold(folder: Path, models: Iterable[ServedModel]) -> None:
    """Keep the files' metadata in the run's folder. Raises RunError: the run has begun with other files, or cannot write."""
    now = {model.artefact.root: [list(entry) for entry in model.files] for model in models}
    path = folder / HELD
    try:
        before = json.loads(path.read_bytes()) if path.exists() else {}
        gone = [root for root in now if before.get(root, now[root]) != now[root]]
        if not gone:
            path.write_text(json.dumps({**before, **now}), "utf-8")
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(f"{path}: cannot be used ({error}); {_ANEW}") from None
    if gone:
        raise RunError(
            f"the files of {gone[0]:.19} were written to or exchanged since this run began; {_ANEW}"
        )


def check_held(models: Iterable[ServedModel]) -> None:
    """Raises RunError: files of an artefact were written to or exchanged since they were hashed."""
    for model in models:
        if model.files and _now(model) != model.files:
            what = f"{model.artefact.name} ({model.artefact.root:.19})"
            raise RunError(f"files of {what} were written to or exchanged while it was judged; {_ANEW}")


def _now(model: ServedModel) -> object:
    try:
        return snapshot(Path(model.files[0][0]))
    except OSError:
        return None


_ANEW: Final = "nothing of it can be signed: run the gate in a folder of its own (--out DIR)"
