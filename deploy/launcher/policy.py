"""The requests to the Docker Engine that a gateway may make, for the engines of its catalogue only. Pure.

Whoever may create arbitrary containers is root on the host. So a request's body must equal the body that the docker driver
would send for an engine of the catalogue; the parts that may vary are checked first, one by one.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from deploy.core.errors import DeployError
from deploy.drivers.container import CACHE, MODEL, NETWORK, PREFIX, Placement, container_name, create_body
from deploy.engine.dialects import DIALECTS
from deploy.engine.spec import EngineSpec

Json = Mapping[str, Any]

OLDEST: Final = (1, 41)
"""The oldest allowed version of Docker's API. Before 1.24, a start request could contain a HostConfig."""
_VERSION: Final = re.compile(r"/v(\d+)\.(\d+)(?=/)")
_ARTEFACT: Final = re.compile(r"sha256:[0-9a-f]{64}|file:\d+:\d+")
_CONTAINER: Final = r"[a-zA-Z0-9][a-zA-Z0-9_.-]+"


class RequestNotAllowed(DeployError):
    """The docker driver makes no such request for an engine of the catalogue."""


@dataclass(frozen=True, slots=True)
class EngineCatalogue:
    """The engines that may run, their gateway (`instance_of` its `state` folder on the host), and their user (UID:GID)."""

    engines: tuple[EngineSpec, ...]
    instance: str
    state: Path
    user: str

    @property
    def images(self) -> set[str | None]:
        """All images that may be inspected or pulled."""
        return {spec.image for spec in self.engines}


@dataclass(frozen=True, slots=True)
class DockerRequest:
    """A request with its path decoded and its body parsed (None without a body)."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


def check_request(request: DockerRequest, catalogue: EngineCatalogue) -> str | None:
    """Raise RequestNotAllowed unless the request is allowed. Returns the container that it names, for `check_ours`."""
    version = _VERSION.match(request.path)
    if version and (int(version[1]), int(version[2])) < OLDEST:
        raise RequestNotAllowed(f"API {version[1]}.{version[2]} is too old")
    path = request.path[version.end() :] if version else request.path
    for method, pattern, rule in _RULES:
        found = re.fullmatch(pattern, path)
        if found and request.method == method:
            if request.body is not None and rule is not _create:
                raise RequestNotAllowed(f"{method} {path} takes no body")
            return rule(found, request, catalogue)
    raise RequestNotAllowed(f"{request.method} {path[:200]}: Docker API call not allowed")


def check_ours(container: Json, catalogue: EngineCatalogue) -> None:
    """Raise RequestNotAllowed unless this gateway created the container, given as Docker inspects it."""
    labels = (container.get("Config") or {}).get("Labels") or {}
    if labels.get(f"{PREFIX}instance") != catalogue.instance:
        raise RequestNotAllowed("the container belongs to another gateway")


def _free(found: re.Match[str], request: DockerRequest, catalogue: EngineCatalogue) -> None:
    return None


def _ours(found: re.Match[str], request: DockerRequest, catalogue: EngineCatalogue) -> str:
    return found[1]


def _image(found: re.Match[str], request: DockerRequest, catalogue: EngineCatalogue) -> None:
    if found[1] not in catalogue.images:
        raise RequestNotAllowed(f"{found[1][:200]} is no image of the catalogue")


def _pull(found: re.Match[str], request: DockerRequest, catalogue: EngineCatalogue) -> None:
    name, tag = request.query.get("fromImage", ""), request.query.get("tag", "")
    wanted = f"{name}@{tag}" if tag.startswith("sha256:") else name
    if wanted not in catalogue.images or set(request.query) - {"fromImage", "tag"}:
        raise RequestNotAllowed(f"{wanted[:200]} is no image of the catalogue")


def _list(found: re.Match[str], request: DockerRequest, catalogue: EngineCatalogue) -> None:
    try:
        wanted = json.loads(request.query.get("filters", "{}"))["label"]
    except (ValueError, KeyError, TypeError, RecursionError):
        wanted = ()
    if f"{PREFIX}instance={catalogue.instance}" not in wanted:
        raise RequestNotAllowed("containers are listed by the gateway's own label only")


def _create(found: re.Match[str], request: DockerRequest, catalogue: EngineCatalogue) -> None:
    body, name = request.body, request.query.get("name")
    if set(request.query) != {"name"}:
        raise RequestNotAllowed("a container is made by its name and nothing else")
    named = body.get("Labels", {}).get(f"{PREFIX}engine") if isinstance(body, dict) else None
    reasons = [f"there is no engine {str(named)[:64]!r} in the catalogue"]
    for spec in catalogue.engines:
        if spec.name == named:
            why = _differs(body, name, spec, catalogue)
            if why is None:
                return
            reasons.append(why)
    raise RequestNotAllowed(reasons[-1])


def _differs(body: Json, name: str | None, spec: EngineSpec, catalogue: EngineCatalogue) -> str | None:
    """How a body differs from that for this engine; None if it does not."""
    placing = _placing(body, spec, catalogue)
    if placing is None:
        return "its mounts, labels or user are none that the gateway would give it"
    if name != container_name(spec, catalogue.instance):
        return "the container has another name"
    ours = create_body(spec, placing)
    for key in sorted(ours.keys() | body.keys()):
        if ours.get(key) != body.get(key):
            return f"{key} is not what the catalogue says"
    return None


def _placing(body: Json, spec: EngineSpec, catalogue: EngineCatalogue) -> Placement | None:
    """The variable parts of a body; None if one of them is not allowed."""
    try:
        labels, (model, cache) = body["Labels"], body["HostConfig"]["Mounts"]
        source, inside = model["Source"], model["Target"]
        artefact = labels[f"{PREFIX}artefact"]
    except (KeyError, TypeError, ValueError):
        return None
    digest = (spec.image or "").partition("sha256:")[2]
    home = str(catalogue.state / "caches" / digest[:16])
    well = (
        (source, inside) in _places(spec, source)
        and (cache.get("Source"), cache.get("Target")) == (home, CACHE)
        and body.get("User") == catalogue.user
        and _ARTEFACT.fullmatch(str(artefact))
    )
    if not well:
        return None
    return Placement(
        instance=catalogue.instance, artefact=artefact, model=source, inside=inside, cache=home,
        user=catalogue.user,
    )  # fmt: skip


def _places(spec: EngineSpec, source: Any) -> set[tuple[str, str]]:
    """The allowed pairs of the model's path on the host and in the container."""
    if spec.artefact is None:
        return set()
    if not DIALECTS[spec.dialect].gguf:
        return {(str(spec.artefact), MODEL)}
    path = PurePosixPath(str(source))
    beside = path.suffix == ".gguf" and str(path.parent) == str(spec.artefact) and path.name != ".gguf"
    return {(str(path), f"{MODEL}/{path.name}")} if beside or str(path) == str(spec.artefact) else set()


_Rule = Callable[[re.Match[str], DockerRequest, EngineCatalogue], str | None]
_RULES: Final[tuple[tuple[str, str, _Rule], ...]] = (
    ("GET", r"/_ping", _free),
    ("HEAD", r"/_ping", _free),
    ("GET", r"/version", _free),
    ("GET", rf"/networks/{NETWORK}", _free),
    ("GET", r"/images/(.+)/json", _image),
    ("POST", r"/images/create", _pull),
    ("GET", r"/containers/json", _list),
    ("POST", r"/containers/create", _create),
    ("GET", rf"/containers/({_CONTAINER})/json", _ours),
    ("GET", rf"/containers/({_CONTAINER})/logs", _ours),
    ("POST", rf"/containers/({_CONTAINER})/start", _ours),
    ("POST", rf"/containers/({_CONTAINER})/kill", _ours),
    ("DELETE", rf"/containers/({_CONTAINER})", _ours),
)
"""All requests of the docker driver; any other is refused."""
