"""When and where a profile last ran: each says it, or says that it has not run; a changed one has not run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.profiles import runs
from deploy.profiles.__main__ import main as print_profile
from deploy.profiles.load import Profile, ProfileError, load_profile, shipped
from deploy.profiles.runs import last_run, profile_digest, read_runs, record, told, write_runs

NANO = load_profile("nano-embedded")


def result(**changes: Any) -> dict[str, Any]:
    one = {
        "variant": "v", "profile": NANO.name, "digest": profile_digest(NANO), "weights": "trained", "left": [], "added": [],
        "at": "2026-11-24T19:10:00+00:00", "start_s": 1.0, "build": "llama.cpp b1", "checks": {"a": "", "b": "no"}, "why": "",
    }  # fmt: skip
    return {**one, **changes}


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_profile_says_when_and_where_it_ran_or_that_it_did_not(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    profile, kept = load_profile(name), read_runs()
    run = last_run(profile, kept)
    assert run is not None or name not in kept, (
        f"{name} was changed since its run: take that out of {runs.RUNS.name}"
    )
    if run is not None:
        assert run.where and run.at[:4].isdecimal()
    assert "run by this project" not in profile.run.lower(), "what ran here is data, not a sentence"
    assert print_profile([name, "--artefact", "models/m"]) == 0
    assert f"# last run: {run or 'not run'}\n" in capsys.readouterr().out


CHANGED: dict[str, dict[str, Any]] = {
    "a flag": {"flags": ()},
    "a value": {"flags": (replace(NANO.flags[0], value="512"),)},
    "the dialect": {"dialect": "openai"},
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_profile_has_not_run(name: str) -> None:
    kept = record({"host": {"gpu": "G"}, "variants": [result()]}, {})
    changed: Profile = replace(NANO, **CHANGED[name])
    assert told(NANO, kept) != "not run" == told(changed, kept)
    assert told(replace(NANO, title="Another", about="Other words"), kept) != "not run"


def test_runs_are_kept_in_a_file_and_a_broken_one_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    kept = record({"host": {"gpu": "G"}, "variants": [result()]}, {})
    write_runs(kept, path)
    assert read_runs(path) == kept
    path.write_text(json.dumps({"nano-embedded": {"digest": "x"}}), "utf-8")
    with pytest.raises(ProfileError, match="runs.json"):
        read_runs(path)


def test_the_command_keeps_the_runs_of_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.json"
    path.write_text("{}", "utf-8")
    monkeypatch.setattr("deploy.profiles.__main__.read_runs", lambda: read_runs(path))
    monkeypatch.setattr("deploy.profiles.__main__.write_runs", lambda found: write_runs(found, path))
    taken = tmp_path / "matrix.json"
    taken.write_text(json.dumps({"host": {"gpu": "G"}, "variants": [result()]}), "utf-8")
    assert print_profile(["--record", str(taken)]) == 0
    assert set(read_runs(path)) == {"nano-embedded"}
