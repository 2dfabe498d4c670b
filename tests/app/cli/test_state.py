"""`manners state`: a consistent copy of the registry beside a writer, and back."""

from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from app.access import records
from app.registry.registry import Registry, RegistryReader
from app.registry.values import KnownKey
from tests.app.cli.test_access import HEAD


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A registry with one key in a state folder."""
    (tmp_path / "manners.toml").write_text(HEAD + 'state = "state"\n')
    (tmp_path / "state").mkdir(mode=0o700)
    with Registry(tmp_path / "state" / "registry.db") as registry:
        records.add(registry, "key", "first", "admin", {})
    return tmp_path / "state" / "registry.db"


def run(state: Path, verb: str, file: Path) -> int:
    return main(["state", verb, str(file), "--config", str(state.parents[1] / "manners.toml")])


def keys(path: Path) -> list[str]:
    with RegistryReader(path) as reader:
        return [key.name for key in reader.all(KnownKey)]


def test_a_backup_beside_a_writer_is_restored_and_what_was_there_is_kept(state: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Registry(state) as registry:
        assert run(state, "backup", copy) == 0
        records.add(registry, "key", "second", "admin", {})
    assert copy.stat().st_mode & 0o777 == 0o600
    assert run(state, "restore", copy) == 0
    assert (keys(state), keys(state.with_name("registry.db.replaced"))) == (["first"], ["first", "second"])
    with Registry(state) as registry:
        assert registry.verify_chain().seq == 1


def test_nothing_is_restored_under_a_running_gateway(state: Path, tmp_path: Path, capsys: Any) -> None:
    assert run(state, "backup", tmp_path / "copy") == 0
    with Registry(state):
        assert run(state, "restore", tmp_path / "copy") == 75
    assert "another gateway uses this state folder; stop it first" in capsys.readouterr().err


@pytest.mark.parametrize("text", [b"no database", b"SQLite format 3\0" + bytes(4000)])
def test_a_file_that_is_no_registry_is_not_restored(
    text: bytes, state: Path, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "copy").write_bytes(text)
    assert run(state, "restore", tmp_path / "copy") == 75
    assert capsys.readouterr().err.startswith(f"manners state restore: {tmp_path}/copy: ")
    assert keys(state) == ["first"]
