"""`manners doctor`: the whole command, over this machine and over files."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from deploy.core.errors import DockerError
from deploy.doctor.evidence import Swap
from tests.deploy.doctor.test_examine import read

DOCKER = """
[gateway]
state = "{state}"
[engines.spark]
dialect = "vllm"
driver = "docker"
image = "vllm/vllm-openai:cu130-nightly"
artefact = "{state}/model"
args = ["--trust-remote-code"]
[models.annie]
live = "spark"
"""


class NoDocker:
    """A daemon that does not answer."""

    async def version(self) -> None:
        raise DockerError("the Docker Engine does not answer")

    def close(self) -> None:
        pass


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine like any that runs the tests: what is healthy about the Spark's host, without its GPU."""
    none = dict.fromkeys(("gpus", "toolkit", "docker", "nvccs"))
    plain = replace(read("healthy-spark.json")[0].host, architecture="x86_64", **none)
    monkeypatch.setattr("deploy.doctor.collectors.host.host", lambda: plain)
    monkeypatch.setattr("app.cli.doctor.Docker", NoDocker)


def printed_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.usefixtures("quiet")
def test_the_shipped_default_is_in_order_and_a_weak_key_is_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["doctor", "--json"]) == 0
    found = printed_json(capsys)
    checks = {(one["id"], one["engine"]): one for one in found["checks"]}
    assert checks["model.gguf", "annie-nano"]["state"] == "ok"
    assert checks["config.schema", ""]["state"] == "ok"
    assert "image.cuda" in found["not_applicable"] and found["state"] in ("ok", "warn")
    monkeypatch.setenv("MANNERS_API_KEYS", "changeme")
    assert main(["doctor", "--json"]) == 1
    assert (
        "one key is shorter than 16 characters" in (told := capsys.readouterr().out)
        and "changeme" not in told
    )


@pytest.mark.usefixtures("quiet")
def test_a_configuration_that_does_not_load_is_looked_at_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "manners.toml"
    path.write_text(DOCKER.format(state=tmp_path), "utf-8")
    assert main(["doctor", "--config", str(path), "--json"]) == 1
    wrong = {one["id"]: one for one in printed_json(capsys)["checks"] if one["state"] == "fail"}
    assert {"config.schema", "image.pinned", "image.nightly", "engine.unsafe", "model.files"} <= wrong.keys()
    assert "is not pinned" in wrong["config.schema"]["evidence"]
    assert wrong["image.pinned"]["fix"].startswith("manners engine pin spark --pull")


def test_the_table_marks_and_counts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = read("healthy-spark.json")[0]
    swap = Swap(name="/swap.img", size=17179869184)
    facts = replace(healthy, host=replace(healthy.host, swaps=(swap,), toolkit="1.17.8"))
    monkeypatch.setattr("app.cli.doctor.gather", lambda path: facts)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"! +host +host\.swap +/swap\.img \(16 GiB\):", out)
    assert re.search(r"✗ +host +host\.toolkit +1\.17\.8:", out)
    assert "→ sudo swapoff -a" in out and re.search(r"1 fail, 0 unknown, 1 warn, \d+ ok;", out)
