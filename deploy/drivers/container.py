"""The container that an engine runs in, as a request body of Docker's API. Pure.

It has few privileges. Compiled kernels go to a cache of its own image: code that another image compiled is not trusted.
Docker never restarts or removes it: the supervisor decides that, and a container that ended keeps its log.
"""

from dataclasses import dataclass
from typing import Any, Final

from deploy.core.errors import SpecError
from deploy.engine.dialect import Launch
from deploy.engine.dialects import DIALECTS, SILENT, server_args
from deploy.engine.spec import EngineSpec, spec_digest

PORT: Final = 8000
NETWORK: Final = "manners"
"""An internal bridge network: the host and an attached gateway reach the engines, which reach nothing outside."""
MODEL: Final = "/model"
CACHE: Final = "/cache"
SHM_BYTES: Final = 8 << 30
STACK_BYTES: Final = 64 << 20
PIDS: Final = 8192
PREFIX: Final = "manners."
"""The prefix of every label that the driver sets."""

_ENVIRONMENT: Final = {
    "HOME": CACHE,
    # A user without an entry in the image's passwd has no name, and torch needs one.
    "LOGNAME": "manners",
    "XDG_CACHE_HOME": CACHE,
    "VLLM_CACHE_ROOT": f"{CACHE}/vllm",
    "VLLM_CONFIG_ROOT": f"{CACHE}/vllm-config",
    "TRITON_CACHE_DIR": f"{CACHE}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE}/inductor",
    "FLASHINFER_WORKSPACE_BASE": CACHE,
    "CUDA_CACHE_PATH": f"{CACHE}/cuda",
    **SILENT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What a spec does not contain: paths on this host, the weights' digest, the gateway (`instance`) and the user (UID:GID)."""

    instance: str
    artefact: str
    model: str
    inside: str
    cache: str
    user: str


def container_name(spec: EngineSpec, instance: str) -> str:
    """A name that is the same for the same engine of the same gateway, so that Docker refuses a second container."""
    return f"manners-{instance[:8]}-{spec.name}-{spec_digest(spec).partition(':')[2][:8]}"


def labels(spec: EngineSpec, placement: Placement) -> dict[str, str]:
    """Labels by which a container is found again after a restart of the gateway or of the Docker daemon."""
    found = {
        "instance": placement.instance,
        "engine": spec.name,
        "spec": spec_digest(spec),
        "artefact": placement.artefact,
    }
    return {PREFIX + key: value for key, value in found.items()}


def argv(spec: EngineSpec, model: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The entrypoint, empty for the image's own, and its arguments. Raises SpecError: this dialect has no container; FlagError."""
    entrypoint = DIALECTS[spec.dialect].entrypoint
    if entrypoint is None:
        raise SpecError(spec.name, "dialect", "the docker driver starts vllm and llama-server")
    return entrypoint, server_args(spec, Launch(model=model, host="0.0.0.0", port=PORT))


def create_body(spec: EngineSpec, placement: Placement) -> dict[str, Any]:
    """The body of `POST /containers/create` (Docker Engine API 1.41 and later). Raises SpecError, FlagError."""
    entrypoint, words = argv(spec, placement.inside)
    body: dict[str, Any] = {
        "Image": spec.image,
        "Cmd": list(words),
        "Env": [f"{name}={value}" for name, value in _ENVIRONMENT.items()],
        "User": placement.user,
        "Labels": labels(spec, placement),
        "Hostname": "engine",
        "WorkingDir": DIALECTS[spec.dialect].workdir,
        # An image's own health check uses the image's default port; readiness is a streamed token.
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
        # Executable: kernels that are compiled at run time are loaded from here.
        "Tmpfs": {"/tmp": "rw,exec,nosuid,nodev,mode=1777,size=2g"},
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": PIDS,
        "Init": True,  # a process 1 that forwards signals and reaps zombies
        "IpcMode": "private",
        "ShmSize": SHM_BYTES,
        "Ulimits": [
            {"Name": "stack", "Soft": STACK_BYTES, "Hard": STACK_BYTES},
            # Locked memory only for an engine that is configured to use it.
            *([{"Name": "memlock", "Soft": -1, "Hard": -1}] if "--mlock" in spec.args else []),
        ],
        "LogConfig": {"Type": "local", "Config": {"max-size": "8m", "max-file": "2"}},
        "DeviceRequests": gpus,
    }


def _mount(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}
