"""`manners shadow replay` on the command line: a table, JSON, and what is wrong as one line and a code."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.__main__ import main
from app.shadow.store import Store
from tests.app.shadow.records import record

MODELS = Path(__file__).parents[3] / "models"
needs_models = pytest.mark.skipif(
    not (MODELS / "stranger-nano-q4_k_m").exists(), reason="the nano models are missing: make nano"
)


def run(*argv: str) -> int:
    """The exit code."""
    return main(["shadow", *argv])


def a_config(base: Path) -> str:
    """The file of a gateway with two engines, and one record in its state folder."""
    engines = "".join(
        f'[engines.{name}]\ndialect = "llama-server"\ndriver = "embedded"\nartefact = "{MODELS / folder}"\n'
        for name, folder in (("annie-nano", "annie-nano-q4_k_m"), ("stranger-nano", "stranger-nano-q4_k_m"))
    )
    path = base / "manners.toml"
    path.write_text(f'[gateway]\nstate = "{base}"\n{engines}[models.annie]\nlive = "annie-nano"\n')
    return str(path)


def keep(base: Path, words: str = "Hello!") -> None:
    """One more record, of a moment ago."""
    Store(base).append(record(words, at=datetime.now(UTC)))


@pytest.mark.slow  # two engines are asked: 2 s
@pytest.mark.engine
@needs_models
def test_two_engines_are_compared_and_the_code_is_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path)
    keep(tmp_path, "What is the capital of Norway?")
    code = run("replay", "--candidate", "stranger-nano", "--config", a_config(tmp_path), "--json")
    told = json.loads(capsys.readouterr().out)
    assert code == 0 and (told["candidate"], told["baseline"]) == ("stranger-nano", "annie-nano")
    assert told["records"] == 2 and told["breaches"]["any"]["candidate"] > told["breaches"]["any"]["baseline"]


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (["--candidate", "annie-nano"], 66, "nothing was recorded since"),
        (["--candidate", "nobody"], 78, "no engine 'nobody'"),
        (["--candidate", "annie-nano"], 69, "compared with itself"),
    ],
)
def test_what_is_wrong_is_one_line_and_a_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], code: int, told: str
) -> None:
    if code != 66:
        keep(tmp_path)
    assert run("replay", *argv, "--config", a_config(tmp_path)) == code
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1
