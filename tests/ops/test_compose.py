"""compose.yaml, as docker-compose understands it: who may what, and that it agrees with what else is written."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.config.config import load
from deploy.drivers.container import _ENVIRONMENT
from deploy.engine.spec import PINNED_IMAGE
from deploy.images.pins import tags, write_compose_lock
from tests.deploy.profiles import profile as shipped_profile
from tests.ops.facts import ROOT

COMPOSE = ROOT / "deploy" / "compose"
PROFILES = ("cpu", "gpu")
INSTALL = "needs docker-compose: apt-get install -y --no-install-recommends docker-compose"
SOCKET = "/var/run/docker.sock"


def asked(variables: Path) -> "subprocess.CompletedProcess[str]":
    """`docker-compose config` with an env file; skips where there is none."""
    if shutil.which("docker-compose") is None:
        pytest.skip(INSTALL)
    argv = ["docker-compose", "--env-file", str(variables), "config"]
    environ = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    return subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)


@cache
def config(name: str) -> dict[str, Any]:
    """The whole configuration with every variable put in, of a lock as a registry's answers would make it."""
    with tempfile.TemporaryDirectory() as folder:
        mine = Path(shutil.copy(COMPOSE / f"{name}.env", folder))
        pins = {key: f"{tag.rpartition(':')[0]}@sha256:{'1' * 64}" for key, tag in tags(mine).items()}
        done = asked(write_compose_lock(mine, pins))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(json.dumps(yaml.safe_load(done.stdout), default=str))
    return found


@pytest.mark.ops
@pytest.mark.parametrize("name", PROFILES)
def test_no_container_may_more_than_it_must(name: str) -> None:
    found, started = config(name), {name, "observability"}
    for title, service in found["services"].items():
        assert service["read_only"] is True, title
        assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"], title
        assert service.get("cap_add", []) == (["CHOWN"] if title == "ownership" else []), title
        assert not service.get("privileged") and "pid" not in service and "ipc" not in service, title
        assert "mem_limit" not in service, "no container's limit sees what a GPU takes of unified memory"
        if any(SOCKET in str(volume) for volume in service.get("volumes", [])):
            assert (title, service["network_mode"]) == ("launcher", "none")
        ports = [str(port) for port in service.get("ports", [])]
        assert all(port.startswith("127.0.0.1:") for port in ports), title
        assert not ports or title in ("gateway", "grafana")
        if title.startswith(("vllm", "llama")):
            assert set(service["networks"]) == {"manners"} and service["restart"] == "no"
        if not service["image"].startswith("manners:") and started & set(service.get("profiles", started)):
            assert PINNED_IMAGE.fullmatch(service["image"]), title
    assert PINNED_IMAGE.fullmatch(found["services"]["gateway"]["build"]["args"]["BASE"])
    assert found["networks"]["manners"]["internal"] is True


@pytest.mark.ops
def test_the_gateway_writes_nowhere_that_docker_mounts_for_an_engine() -> None:
    """Docker follows a link as root: the folder of caches is the launcher's, and a mountpoint cannot be renamed."""
    services = config("gpu")["services"]
    caches = [str(volume) for volume in services["gateway"]["volumes"] if "state/caches" in str(volume)]
    assert len(caches) == 1 and caches[0].endswith(":ro")
    launcher = [str(volume) for volume in services["launcher"]["volumes"] if "/srv/manners" in str(volume)]
    assert launcher == [caches[0].removesuffix(":ro") + ":rw"]


@pytest.mark.ops
@pytest.mark.parametrize(
    "name, profile, image, own",
    [("vllm", "vllm-nvfp4-9b", "VLLM_IMAGE", 7), ("llama-server-gpu", "llama-q4_k_m", "LLAMA_IMAGE", 11)],
)
def test_an_engine_of_compose_is_the_one_of_the_profile(
    name: str, profile: str, image: str, own: int
) -> None:
    """And of the driver. `own`: words of the command that are not the profile's."""
    service, shipped = config("gpu")["services"][name], shipped_profile(profile)
    assert tags(COMPOSE / "gpu.env")[image] == shipped["image"]
    command = service["command"]
    said = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    assert said[own:] == shipped["args"]
    (gpus,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (gpus["driver"], gpus["capabilities"]) == ("nvidia", ["gpu"]) and str(gpus["count"]) in (
        "all",
        "-1",
    )
    assert name != "vllm" or service["environment"] == _ENVIRONMENT


@pytest.mark.ops
@pytest.mark.parametrize("name", PROFILES)
def test_what_is_not_pinned_is_refused_and_the_command_is_named(name: str) -> None:
    done = asked(COMPOSE / f"{name}.env")
    assert done.returncode != 0
    assert "manners engine pin --pull --compose deploy/compose/cpu.env (or gpu.env)" in done.stderr


@pytest.mark.parametrize("name", ["embedded", *PROFILES])
def test_the_gateways_configuration_loads(name: str, tmp_path: Path) -> None:
    keys = tmp_path / "api_keys"
    keys.write_text("a-key\n")
    keys.chmod(0o600)
    text = (COMPOSE / f"{name}.toml").read_text("utf-8").replace("/run/secrets/api_keys", str(keys))
    path = tmp_path / "manners.toml"
    path.write_text(text.replace("../../models", str(ROOT / "models")))
    found = load(path)
    assert not found.listen.is_loopback and set(found.models) == {"annie"}


def test_the_image_is_made_of_what_dockerignore_lets_in() -> None:
    """Every file that the Dockerfile copies is let in, and nothing is let in for nothing."""
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    let_in = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.MULTILINE)
    assert sorted(path for paths in copied for path in paths.split()) == sorted(let_in)
    assert all((ROOT / path).exists() for path in let_in)
