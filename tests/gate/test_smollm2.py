"""A model that others trained, gated by a suite in one file: SmolLM2 in Q4_1 against itself in Q8_0, and rounded to two bits."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.smollm2 import weights, write_q8_0

pytestmark = [pytest.mark.gate, pytest.mark.timeout(1800)]

SUITE = Path(__file__).parent / "smollm2.yaml"
ENGINE = """
[engines.{name}]
dialect = "llama-server"
driver = "embedded"
artefact = "{name}"
args = ["--ctx-size", "2048"]
"""


def manners(at: Path, *words: str) -> tuple[int, str]:
    """`manners gate`: its exit code, and what it printed."""
    argv = [sys.executable, "-m", "app", "gate", *words]
    done = subprocess.run(argv, cwd=at, capture_output=True, text=True, timeout=1500, check=False)
    print(done.stderr[-2000:])
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration with three sealed forms of the model."""
    base, source = tmp_path_factory.mktemp("smollm2"), weights()
    for name in ("q8_0", "q4_1", "two-bits"):
        (base / name).mkdir()
    write_q8_0(source, base / "q8_0" / "smollm2.gguf")
    shutil.copy(source, base / "q4_1" / "smollm2.gguf")
    write_q8_0(source, base / "two-bits" / "smollm2.gguf", through="Q2_K")
    for name, format, origin in (
        ("q8_0", "q8_0", ()),
        ("q4_1", "q4_1", ("--source", "q8_0")),
        ("two-bits", "q8_0", ("--source", "q8_0")),
    ):
        code, said = manners(base, "seal", name, "--name", "smollm2", "--format", f"gguf-{format}", *origin)
        assert code == 0, said
    engines = "".join(ENGINE.format(name=name) for name in ("q8_0", "q4_1", "two-bits"))
    (base / "gate.toml").write_text(
        f'[gateway]\nstate = "state"\n{engines}\n[models.smollm2]\nlive = "q8_0"\n'
    )
    return base


@pytest.mark.parametrize("candidate, verdict", [("q4_1", "pass"), ("two-bits", "fail")])
def test_thirty_prompts_tell_a_good_file_from_a_bad_one(place: Path, candidate: str, verdict: str) -> None:
    code, said = manners(
        place, "run", "--config", "gate.toml", "--suite", str(SUITE), "--candidate", candidate, "--baseline", "q8_0",
        "--out", f"out-{candidate}", "--json",
    )  # fmt: skip
    found: dict[str, Any] = json.loads(said)
    assert (code, found["verdict"]) == ({"pass": 0, "fail": 1}[verdict], verdict), said
    (checks,) = (gate for gate in found["gates"] if gate["gate"] == "checks")
    assert (checks["n"], checks["verdict"]) == (30, verdict)
