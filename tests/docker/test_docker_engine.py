"""A real llama.cpp in a real container: it streams, it is locked in, it comes back, it goes away."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.core.errors import StartFailed
from deploy.drivers.container import NETWORK
from deploy.drivers.docker import DockerEngine
from deploy.engine.engine import Phase
from deploy.engine.probe import probe
from deploy.engine.spec import EngineSpec, spec_digest
from deploy.engine.supervisor import RestartPolicy
from gates.contracts.numerics import Numerics
from tests.deploy.conftest import until
from tests.docker.conftest import MODELS
from tests.docker.daemon import Daemon
from tests.scale import PATIENCE

pytestmark = pytest.mark.docker
Make = Callable[..., DockerEngine]
FAST = RestartPolicy(first_pause_s=0.05)


def containers(daemon: Daemon) -> list[dict[str, Any]]:
    """All that there are, dead ones too."""
    with daemon.api() as api:
        return list(api.containers(all=True))


def inspected(daemon: Daemon) -> dict[str, Any]:
    """The one container, as the daemon has it."""
    (one,) = containers(daemon)
    with daemon.api() as api:
        return dict(api.inspect_container(one["Id"]))


async def test_it_starts_streams_says_what_runs_and_goes_away(
    engine: Make, spec: EngineSpec, image_id: str, daemon: Daemon
) -> None:
    it = engine(spec)
    state = await it.start()
    assert state.url is not None and state.model == "nano" and state.abilities.build
    assert (await probe(state.url, model="nano", deadline_s=PATIENCE)).ok
    told = await it.describe()
    assert told["image"] == told["image_id"] == image_id and told["running"]
    assert told["argv"][-2:] == ("--ctx-size", "1024") and "--model" in told["argv"]
    assert told["model_file"] == str((spec.artefact or Path()) / "annie-nano-q4_k_m.gguf")
    assert told["spec"] == spec_digest(spec)
    assert told["numerics"] == Numerics(kv_cache="K f16, V f16")
    await it.stop()
    assert it.state.state is Phase.STOPPED and containers(daemon) == []
    assert "listening at" in it.log_path.read_text()


async def test_it_is_locked_in_and_its_process_cannot_write(
    engine: Make, spec: EngineSpec, daemon: Daemon
) -> None:
    state = await engine(spec).start()
    seen = inspected(daemon)
    host = seen["HostConfig"]
    assert not seen["NetworkSettings"]["Ports"] or not any(seen["NetworkSettings"]["Ports"].values())
    assert not host["PortBindings"] and not host["PublishAllPorts"]
    assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["Privileged"]
    assert host["SecurityOpt"] == ["no-new-privileges"] and host["IpcMode"] == "private"
    assert host["RestartPolicy"]["Name"] == "no" and not host["AutoRemove"]
    assert seen["Config"]["User"] not in ("", "0", "0:0")
    labels = seen["Config"]["Labels"]
    assert labels["manners.spec"] == spec_digest(spec) and labels["manners.engine"] == "nano"
    assert labels["manners.artefact"].startswith("sha256:")
    assert list(seen["NetworkSettings"]["Networks"]) == [NETWORK]
    with daemon.api() as api:
        assert api.inspect_network(NETWORK)["Internal"]
    assert state.pid is not None
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{state.pid}/status").read_text().splitlines()
        if ":\t" in line
    )
    assert "0" not in status["Uid"].split() and int(status["CapBnd"], 16) == 0 and status["NoNewPrivs"] == "1"
    mounts = [line.split() for line in Path(f"/proc/{state.pid}/mounts").read_text().splitlines()]
    options = {where: flags.split(",") for _, where, _, flags, *_ in mounts}
    assert "ro" in options["/"] and "ro" in options["/model/annie-nano-q4_k_m.gguf"]
    assert "rw" in options["/cache"]


async def test_a_gpu_that_is_not_there_is_one_clear_line(
    engine: Make, spec: EngineSpec, daemon: Daemon
) -> None:
    with pytest.raises(StartFailed, match="could not select device driver"):
        await engine(replace(spec, gpu="all")).start()
    assert containers(daemon) == []


async def test_other_weights_under_the_same_path_are_not_adopted(
    engine: Make, spec: EngineSpec, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODELS / "annie-nano-q4_k_m", folder)
    moved = replace(spec, artefact=folder)
    before = await engine(moved).start()
    shutil.rmtree(folder)
    shutil.copytree(MODELS / "stranger-nano-q4_k_m", folder)
    after = await engine(moved).start()
    assert after.pid != before.pid


async def test_a_container_that_dies_is_made_anew(engine: Make, spec: EngineSpec, daemon: Daemon) -> None:
    it = engine(spec, policy=FAST)
    before = await it.start()
    old = inspected(daemon)["Id"]
    with daemon.api() as api:
        api.kill(old, "SIGKILL")
    gone = await until(it, Phase.BACKING_OFF)
    assert gone.last_error == "its container was killed by signal 9"
    after = await until(it, Phase.READY)
    assert after.restarts == 1 and after.pid != before.pid and inspected(daemon)["Id"] != old
