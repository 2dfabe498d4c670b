"""The launcher lets through what the docker driver asks for the catalogue's engines, and nothing else."""

import asyncio
import os
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.core.errors import DockerError
from deploy.drivers.container import NETWORK, Placement, container_name, create_body
from deploy.drivers.docker import DockerEngine, instance_of
from deploy.drivers.docker_client import Docker
from deploy.engine.engine import Phase
from deploy.engine.spec import EngineSpec
from deploy.launcher.__main__ import main, read
from deploy.launcher.policy import (
    DockerRequest,
    EngineCatalogue,
    RequestNotAllowed,
    check_ours,
    check_request,
)
from tests.docker import image
from tests.docker.daemon import Daemon
from tests.ops.facts import ROOT
from tests.scale import PATIENCE

DIGEST = "sha256:" + "ab" * 32
STATE = Path("/srv/manners/state")
INSTANCE = "0123456789ab"
VLLM = EngineSpec(
    name="spark", dialect="vllm", driver="docker", artefact=Path("/srv/manners/models/annie"),
    image=f"vllm/vllm-openai@{DIGEST}", args=("--max-model-len", "32768"),
)  # fmt: skip
LLAMA = EngineSpec(
    name="standby", dialect="llama-server", driver="docker", artefact=Path("/srv/manners/models/q4"),
    image=f"ghcr.io/ggml-org/llama.cpp@{DIGEST}", gpu="none",
)  # fmt: skip
CATALOGUE = EngineCatalogue((VLLM, LLAMA), INSTANCE, STATE, "10001:10001")
PLACING = Placement(
    instance=INSTANCE, artefact=DIGEST, model="/srv/manners/models/annie", inside="/model",
    cache=f"{STATE}/caches/{'ab' * 8}", user="10001:10001",
)  # fmt: skip
BESIDE = replace(PLACING, model="/srv/manners/models/q4/annie.gguf", inside="/model/annie.gguf")


def making(spec: EngineSpec, placing: Placement) -> DockerRequest:
    """The request by which the driver makes this engine's container."""
    body = create_body(spec, placing)
    return DockerRequest(
        "POST", "/v1.41/containers/create", {"name": container_name(spec, placing.instance)}, body
    )


def refused(request: DockerRequest, catalogue: EngineCatalogue = CATALOGUE) -> str:
    """Why it is refused, which it must be."""
    with pytest.raises(RequestNotAllowed) as error:
        check_request(request, catalogue)
    return str(error.value)


@pytest.mark.parametrize("spec, placing", [(VLLM, PLACING), (LLAMA, BESIDE)])
def test_what_the_driver_makes_passes(spec: EngineSpec, placing: Placement) -> None:
    assert check_request(making(spec, placing), CATALOGUE) is None


@pytest.mark.parametrize(
    "key, value",
    [
        ("Privileged", True), ("CapAdd", ["SYS_ADMIN"]), ("CapDrop", []), ("NetworkMode", "host"), ("PidMode", "host"),
        ("SecurityOpt", []), ("ReadonlyRootfs", False), ("Binds", ["/:/host"]), ("PortBindings", {"8000/tcp": [{}]}),
        ("Devices", [{"PathOnHost": "/dev/sda"}]), ("AutoRemove", True), ("Runtime", "other"), ("UsernsMode", "host"),
        ("/Image", "evil:latest"), ("/Cmd", ["sh"]), ("/Env", ["LD_PRELOAD=/x"]), ("/Entrypoint", ["sh"]), ("/Volumes", {"/x": {}}),
        ("/Healthcheck", {"Test": ["CMD", "sh"]}), ("/NetworkingConfig", {}),
    ],
)  # fmt: skip
def test_a_container_that_may_more_is_refused(key: str, value: Any) -> None:
    request = making(VLLM, PLACING)
    name = key.removeprefix("/")
    (request.body if name != key else request.body["HostConfig"])[name] = value
    assert refused(request) == f"{name if name != key else 'HostConfig'} is not what the catalogue says"


@pytest.mark.parametrize(
    "changed",
    [{"model": "/etc"}, {"model": "/srv/manners/models/annie/../.."}, {"inside": "/usr"}, {"cache": "/etc"}, {"user": "0:0"},
     {"user": "10001:0"}, {"artefact": "anything"}],
)  # fmt: skip
def test_other_places_and_other_users_are_refused(changed: dict[str, str]) -> None:
    assert "mounts, labels or user" in refused(making(VLLM, replace(PLACING, **changed)))


def test_another_name_another_engine_and_another_gateway_are_refused() -> None:
    request = making(VLLM, PLACING)
    assert refused(replace(request, query={"name": "innocent"})) == "the container has another name"
    assert "nothing else" in refused(replace(request, query={**request.query, "platform": "linux"}))
    assert "no engine 'other'" in refused(making(replace(VLLM, name="other"), PLACING))
    assert "mounts, labels or user" in refused(making(VLLM, replace(PLACING, model="/elsewhere")))
    body = deepcopy(request.body)
    body["Labels"]["manners.instance"] = "f" * 12
    assert "Labels" in refused(replace(request, body=body))
    others: tuple[Any, ...] = (None, [], "x", {}, {"Labels": {"manners.engine": "spark"}})
    for nonsense in others:
        refused(replace(request, body=nonsense))


@pytest.mark.parametrize(
    "method, path, query",
    [
        ("GET", "/v1.41/info", {}), ("GET", "/containers/json", {}), ("GET", "/containers/json", {"filters": '{"label": ["a=b"]}'}),
        ("POST", "/containers/abc/exec", {}), ("POST", "/containers/abc/update", {}), ("PUT", "/containers/abc/archive", {}),
        ("POST", "/containers/abc/attach", {}), ("POST", "/containers/abc/rename", {"name": "x"}), ("POST", "/networks/create", {}),
        ("POST", "/build", {}), ("POST", "/images/create", {"fromImage": "evil", "tag": "latest"}), ("GET", "/images/evil:1/json", {}),
        ("POST", "/images/create", {"fromSrc": "http://evil", "fromImage": f"vllm/vllm-openai@{DIGEST}"}),
        ("POST", "/v1.23/containers/abc/start", {}), ("DELETE", "/images/x", {}), ("GET", "/secrets", {}), ("POST", "/swarm/init", {}),
    ],
)  # fmt: skip
def test_whatever_else_docker_can_do_is_refused(method: str, path: str, query: dict[str, str]) -> None:
    refused(DockerRequest(method, path, query))


def test_a_container_that_is_named_must_be_the_gateways() -> None:
    for method, path in (("GET", "json"), ("GET", "logs"), ("POST", "start"), ("POST", "kill")):
        assert check_request(DockerRequest(method, f"/v1.41/containers/abc/{path}"), CATALOGUE) == "abc"
    assert check_request(DockerRequest("DELETE", "/containers/abc"), CATALOGUE) == "abc"
    check_ours({"Config": {"Labels": {"manners.instance": INSTANCE}}}, CATALOGUE)
    for labels in (None, {}, {"manners.instance": "f" * 12}):
        with pytest.raises(RequestNotAllowed):
            check_ours({"Config": {"Labels": labels}}, CATALOGUE)


def test_a_catalogue_without_a_safe_user_or_an_absolute_state_is_no_catalogue(
    tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "manners.toml"
    path.write_text('[gateway]\nstate = "state"\n[engines]\n')
    assert main(["--catalogue", str(path), "--listen", str(tmp_path / "s")]) == 78
    assert "absolute" in capsys.readouterr().err
    with pytest.raises(ValueError, match="not root's"):
        read(path, "0:0")


# ---------------------------------------------------------------------- before a real Docker Engine


@pytest.mark.ops
@pytest.mark.engine
@pytest.mark.timeout(300)
async def test_the_docker_driver_works_through_it_and_a_stranger_does_not(
    daemon: Daemon, tmp_path: Path
) -> None:
    """The driver makes, watches and ends an engine; the same socket refuses a privileged container."""
    with daemon.api() as api:
        built = image.build(api, "manners-test-launched")
        api.create_network(NETWORK, driver="bridge", internal=True)
    state, catalogue = tmp_path / "state", tmp_path / "manners.toml"
    model = ROOT / "models" / "annie-nano-q4_k_m"
    table = f'[engines.nano]\ndialect = "llama-server"\ndriver = "docker"\ngpu = "none"\nimage = "{built}"\nartefact = "{model}"\nargs = ["--ctx-size", "1024"]\n'
    catalogue.write_text(f'[gateway]\nstate = "{state}"\n{table}')
    user = "65534:65534" if os.getuid() == 0 else f"{os.getuid()}:{os.getgid()}"
    spec = next(one for one in read(catalogue, user).engines if one.kind == "chat")
    assert read(catalogue, user).instance == instance_of(state)
    listen, real = tmp_path / "launcher.sock", daemon.url.removeprefix("unix://")
    argv = ["--catalogue", str(catalogue), "--listen", str(listen), "--docker", real, "--user", user]
    launcher = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.launcher", *argv, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    assert launcher.stderr is not None
    assert b"for nano" in await launcher.stderr.readline()
    client = Docker(f"unix://{listen}")
    try:
        async with asyncio.timeout(PATIENCE):
            while not listen.exists():
                await asyncio.sleep(0.05)
        engine = DockerEngine(spec, state_dir=state, docker=client)
        assert (await engine.start()).state is Phase.READY
        assert (await engine.describe())["running"] is True
        await engine.stop()
        with pytest.raises(DockerError, match="the launcher refuses"):
            await client.create("evil", {"Image": built, "HostConfig": {"Privileged": True}})
        with daemon.api() as api:
            strange = api.create_container_from_config(
                {"Image": built, "HostConfig": {"NetworkMode": "none"}}, "strange"
            )
        with pytest.raises(DockerError, match="another gateway"):
            await client.start(strange["Id"])
    finally:
        client.close()
        launcher.terminate()
        said = (await launcher.stderr.read()).decode()
        await launcher.wait()
        await asyncio.to_thread(daemon.clear)
    assert "refused: POST" in said
