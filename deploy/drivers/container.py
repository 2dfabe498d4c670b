"""The container that an engine runs in, as Docker's API wants to be told of it. Pure.

It can do little: no port is published, the network has no way out, the root file system and the model
are read-only, and it is nobody's root. What it compiles goes to a cache that belongs to its image: what
another image compiled is foreign code. It is never restarted or removed by Docker: the supervisor
decides that, and a dead one still has its log.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from deploy.core.errors import FlagError, SpecError
from deploy.engine.spec import EngineSpec, spec_digest

PORT: Final = 8000
NETWORK: Final = "manners"
"""An internal bridge: the host, and a gateway that is attached to it, reach the engines; these, nobody."""
MODEL: Final = "/model"
CACHE: Final = "/cache"
SHM_BYTES: Final = 8 << 30
STACK_BYTES: Final = 64 << 20
PIDS: Final = 8192
PREFIX: Final = "manners."
"""Of every label that is ours."""

_OURS: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": ("--host", "--port", "--served-model-name", "--api-key", "--model", "--uds"),
    "llama-server": ("--host", "--port", "--alias", "-a", "--api-key", "--api-key-file", "--model", "-m"),
}
"""Flags that the driver sets, so that it finds the engine and the gateway its name."""

_ENVIRONMENT: Final = {
    "HOME": CACHE,
    # A user without a line in the image's passwd has no name, and torch asks for it.
    "LOGNAME": "manners",
    "XDG_CACHE_HOME": CACHE,
    "VLLM_CACHE_ROOT": f"{CACHE}/vllm",
    "VLLM_CONFIG_ROOT": f"{CACHE}/vllm-config",
    "TRITON_CACHE_DIR": f"{CACHE}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE}/inductor",
    "FLASHINFER_WORKSPACE_BASE": CACHE,
    "CUDA_CACHE_PATH": f"{CACHE}/cuda",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What a spec does not say: this machine's paths, and whose container it is.

    `instance` names the gateway's state folder, `artefact` the weights' digest, `operation` what it was
    started for. `model` is the folder or the `.gguf` on the host, `inside` its path in the container;
    `cache` a folder on the host that `user` (UID:GID) may write to.
    """

    instance: str
    artefact: str
    model: str
    inside: str
    cache: str
    user: str
    operation: str | None = None


def container_name(spec: EngineSpec, instance: str) -> str:
    """The same for the same engine of the same gateway: Docker itself then refuses a second one."""
    return f"manners-{instance[:8]}-{spec.name}-{spec_digest(spec).partition(':')[2][:8]}"


def labels(spec: EngineSpec, placement: Placement) -> dict[str, str]:
    """By which a container is found again, after whatever end of the gateway or of the daemon."""
    found = {
        "instance": placement.instance,
        "engine": spec.name,
        "spec": spec_digest(spec),
        "artefact": placement.artefact,
        "operation": placement.operation,
    }
    return {PREFIX + key: value for key, value in found.items() if value is not None}


def argv(spec: EngineSpec, model: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The entrypoint and its words. An empty entrypoint is the image's own.

    vLLM's images differ in it, and all have `vllm` on their path. llama.cpp's have their server as
    entrypoint, under a path that differs.

    Raises:
        SpecError: nobody knows how to start an engine of this dialect.
        FlagError: one of the `args` is the driver's to set.
    """
    if spec.dialect not in _OURS:
        raise SpecError(spec.name, "dialect", f"the docker driver starts {' and '.join(_OURS)}")
    for word in spec.args:
        if word.partition("=")[0] in _OURS[spec.dialect]:
            raise FlagError(spec.name, f"{word} is set by the driver and cannot be given")
    where = ("--host", "0.0.0.0", "--port", str(PORT))
    if spec.dialect == "vllm":
        return ("vllm", "serve"), (model, "--served-model-name", spec.name, *where, *spec.args)
    # Errors only: llama.cpp's warnings quote the request that they complain about.
    given = ("--model", model, "--alias", spec.name, *where, "--metrics", "--log-verbosity", "1")
    return (), (*given, *spec.args)


def create_body(spec: EngineSpec, placement: Placement) -> dict[str, Any]:
    """The body of `POST /containers/create` (Docker Engine API 1.41 and later).

    Raises:
        SpecError, FlagError: as `argv`.
    """
    entrypoint, words = argv(spec, placement.inside)
    body: dict[str, Any] = {
        "Image": spec.image,
        "Cmd": list(words),
        "Env": [f"{name}={value}" for name, value in _ENVIRONMENT.items()],
        "User": placement.user,
        "Labels": labels(spec, placement),
        "Hostname": "engine",
        "WorkingDir": "/tmp" if spec.dialect == "vllm" else "",
        # An image's own asks the port that it would have used; readiness is a token that streams.
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGTERM",
        "HostConfig": _host(spec, placement),
    }
    return body | ({"Entrypoint": list(entrypoint)} if entrypoint else {})


def _host(spec: EngineSpec, placement: Placement) -> dict[str, Any]:
    gpus = [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}] if spec.gpu != "none" else []
    return {
        "Mounts": [
            _mount(placement.model, placement.inside, read_only=True),
            _mount(placement.cache, CACHE, read_only=False),
        ],
        "NetworkMode": NETWORK,
        "PublishAllPorts": False,
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,
        "Privileged": False,
        "ReadonlyRootfs": True,
        # Executable: what compiles kernels at run time loads some of them from here.
        "Tmpfs": {"/tmp": "rw,exec,nosuid,nodev,mode=1777,size=2g"},
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": PIDS,
        "Init": True,  # a process 1 that takes signals, and collects the dead
        "IpcMode": "private",
        "ShmSize": SHM_BYTES,
        "Ulimits": [
            {"Name": "stack", "Soft": STACK_BYTES, "Hard": STACK_BYTES},
            # Memory that cannot be swapped is given only to whom it was promised.
            *([{"Name": "memlock", "Soft": -1, "Hard": -1}] if "--mlock" in spec.args else []),
        ],
        "LogConfig": {"Type": "local", "Config": {"max-size": "8m", "max-file": "2"}},
        "DeviceRequests": gpus,
    }


def _mount(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}
