"""What an engine is: a name, how it speaks, who runs it, and what it serves.

Pure: an `EngineSpec` that exists is well formed, because building one checks it. Whether its
files exist is asked by `deploy.weights`, and whether its flags mean something by the driver.
"""

import hashlib
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from deploy.errors import SpecError
from gates.report.codec import canonical

Dialect = Literal["vllm", "llama-server", "openai"]
Driver = Literal["docker", "embedded", "url"]
Kind = Literal["chat", "embeddings"]
Gpu = Literal["all", "none"]

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
# A tag can be moved to other bytes after the gate has passed it; a digest cannot. An image that was
# built or imported here has no digest of a registry: its id is one over its configuration and layers.
PINNED_IMAGE = re.compile(r"([a-z0-9][a-zA-Z0-9._:/-]*@)?sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """One `[engines.NAME]` table, checked.

    `args` are the flags of the engine's own server (`vllm serve`, `llama-server`), as they would
    stand on its command line. `artefact` is a folder with `artefact.json`, or a `.gguf` file. `kind`
    is what its models are asked for, and so what it must do to be ready.

    Raises:
        SpecError: a field is malformed, missing for this driver, or foreign to it.
    """

    name: str
    dialect: Dialect
    driver: Driver
    artefact: Path | None = None
    image: str | None = None
    args: tuple[str, ...] = ()
    url: str | None = None
    kind: Kind = "chat"
    gpu: Gpu | None = None

    def __post_init__(self) -> None:
        self._check_words()
        _CHECKS[self.driver](self)

    def _check_words(self) -> None:
        if not NAME.fullmatch(self.name):
            raise SpecError(self.name, "name", f"must match ^{NAME.pattern}$")
        if self.dialect not in get_args(Dialect):
            raise SpecError(self.name, "dialect", _one_of(get_args(Dialect), self.dialect))
        if self.driver not in get_args(Driver):
            raise SpecError(self.name, "driver", _one_of(get_args(Driver), self.driver))
        if self.gpu is not None and self.gpu not in get_args(Gpu):
            raise SpecError(self.name, "gpu", _one_of(get_args(Gpu), self.gpu))

    def _refuse(self, *fields: str) -> None:
        for field in fields:
            if getattr(self, field):
                raise SpecError(self.name, field, f"means nothing to the {self.driver} driver")


def spec_text(spec: EngineSpec) -> str:
    """The canonical JSON of every field of a spec that is set: sorted keys, paths as text."""
    values = {field.name: getattr(spec, field.name) for field in fields(spec)}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    return canonical({name: value for name, value in plain.items() if value is not None}).decode()


def spec_digest(spec: EngineSpec) -> str:
    """What names an engine across starts: `sha256:` and 64 hex digits over `spec_text`.

    It covers every field that is set, as configured: the name (callers and logs know the engine by it, and an
    embedded one serves under it), dialect, driver, kind, image, args in their order, address, GPUs, and
    the artefact's path. It does not cover the bytes behind that path: weights replaced in place keep the
    digest, so whoever relies on them compares the artefact's root digest, too.
    """
    return f"sha256:{hashlib.sha256(spec_text(spec).encode()).hexdigest()}"


def _one_of(allowed: tuple[str, ...], got: str) -> str:
    return f"must be one of {', '.join(allowed)}, not {got!r}"


def _check_embedded(spec: EngineSpec) -> None:
    spec._refuse("image", "url", "gpu")
    if spec.dialect != "llama-server":
        raise SpecError(spec.name, "dialect", "the embedded driver speaks llama-server")
    if spec.artefact is None:
        raise SpecError(spec.name, "artefact", "the embedded driver needs a .gguf to serve")


def _check_docker(spec: EngineSpec) -> None:
    spec._refuse("url")
    if spec.image is None:
        raise SpecError(spec.name, "image", "the docker driver needs an image")
    if not PINNED_IMAGE.fullmatch(spec.image):
        why = f"{spec.image!r} is not pinned; write NAME@sha256:DIGEST (`manners engine pin`)"
        raise SpecError(spec.name, "image", why)


def _check_url(spec: EngineSpec) -> None:
    # `artefact` stays allowed: it says what the remote engine claims to serve.
    spec._refuse("image", "args", "gpu")
    if spec.url is None:
        raise SpecError(spec.name, "url", "the url driver needs the engine's address")
    try:
        parts = urlsplit(spec.url)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        raise SpecError(spec.name, "url", f"{spec.url!r} is not an address") from None
    plain = not (parts.query or parts.fragment or parts.username or parts.password)
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_ok or not plain:
        why = f"{spec.url!r} must be http(s)://HOST[:PORT][/PATH] and nothing more"
        raise SpecError(spec.name, "url", why)


_CHECKS = {"embedded": _check_embedded, "docker": _check_docker, "url": _check_url}
