"""The specification of an engine: its name, its dialect, its driver, and what it serves. Pure; files are checked elsewhere."""

import hashlib
import re
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, get_args

from deploy.core.engine_access import EngineAccess
from deploy.core.errors import SpecError
from deploy.engine.formats import FORMATS, format_of, template_of
from gates.contracts.dialect import Dialect
from gates.contracts.numerics import PARTS
from gates.decode.decoder import canonical, nearest

Driver = Literal["docker", "process", "embedded", "url"]
Kind = Literal["chat", "embeddings"]
Gpu = Literal["all", "none"]
Medium = Literal["image", "audio"]
"""What a message may hold besides text."""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
# A tag can be moved to another image after the gate has passed it; a digest cannot. An image that was built or
# imported locally has no registry digest: its id is a digest of its configuration and layers.
_URL = re.compile(
    r"https?://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(/([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*)*)"
)
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
PINNED_IMAGE = re.compile(r"([a-z0-9][a-zA-Z0-9._:/-]*@)?sha256:[0-9a-f]{64}")

_DRIVERS: dict[Driver, tuple[dict[str, str], tuple[str, ...]]] = {
    "docker": ({"image": "an image"}, ("artefact", "args", "gpu")),
    "process": (
        {
            "command": 'the words that start the server, e.g. [".venv-vllm/bin/vllm", "serve"]',
            "artefact": "the model that it serves",
        },
        ("args", "gpu", "env"),
    ),
    "embedded": ({"artefact": "a .gguf to serve"}, ("args",)),
    # `artefact` says what the remote engine claims to serve.
    "url": ({"url": "the engine's address"}, ("artefact", "numerics", "key_file", "ca_file")),
}
"""By driver: the fields that it needs, with what they are, and the others that it takes."""
_DRIVER_FIELDS = frozenset().union(*((*needed, *taken) for needed, taken in _DRIVERS.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """One `[engines.NAME]` table, checked. Raises SpecError: a field is malformed, missing for this driver, or unused by it.

    `args` are the flags of the engine's own server; `artefact` is a folder with `artefact.json`, or a `.gguf` file. `command` and
    `env` are for the process driver. `numerics` and `media` are what the operator states of an engine. `format` is one of
    `deploy.engine.formats`. `key_file` and `ca_file` are no part of its identity.
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
    command: tuple[str, ...] | None = None
    env: tuple[tuple[str, str], ...] | None = None
    numerics: tuple[tuple[str, str], ...] | None = None
    media: tuple[Medium, ...] | None = None
    format: str | None = None
    key_file: Path | None = field(default=None, compare=False)
    ca_file: Path | None = field(default=None, compare=False)

    @property
    def taught_format(self) -> str:
        """The format that the template beside its weights teaches; "": not known. Reads files."""
        return format_of(template_of(self.artefact))

    @property
    def access(self) -> EngineAccess:
        """What its requests need."""
        return EngineAccess(self.key_file, self.ca_file)

    def __post_init__(self) -> None:
        self._check_words()
        _check_fields(self)
        _check_driver(self)

    def _check_words(self) -> None:
        if not NAME.fullmatch(self.name):
            raise SpecError(self.name, "name", f"must match ^{NAME.pattern}$")
        words = {"dialect": Dialect, "driver": Driver, "gpu": Gpu}
        given = [(name, getattr(self, name), get_args(kind)) for name, kind in words.items()]
        given += [("media", medium, get_args(Medium)) for medium in self.media or ()]
        for name, word, allowed in given:
            if word not in allowed and not (name == "gpu" and word is None):
                raise SpecError(self.name, name, f"must be one of {', '.join(allowed)}, not {word!r}")
        if self.format is not None and self.format not in FORMATS:
            why = f"{self.format!r} is none of {', '.join(FORMATS)}{nearest(self.format, FORMATS)}"
            raise SpecError(self.name, "format", why)


def spec_text(spec: EngineSpec) -> str:
    """The canonical JSON of every field of its identity that is set: sorted keys, paths as text."""
    values = {it.name: getattr(spec, it.name) for it in fields(spec) if it.compare}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    return canonical({name: value for name, value in plain.items() if value is not None}).decode()


def spec_digest(spec: EngineSpec) -> str:
    """The identity of an engine across starts, over `spec_text`. Weights that are replaced in place keep it."""
    return f"sha256:{hashlib.sha256(spec_text(spec).encode()).hexdigest()}"


def _check_fields(spec: EngineSpec) -> None:
    """By the driver: the fields that it needs, and those that mean nothing to it."""
    needed, taken = _DRIVERS[spec.driver]
    for name, why in needed.items():
        if not getattr(spec, name):
            raise SpecError(spec.name, name, f"the {spec.driver} driver needs {why}")
    for name in sorted(_DRIVER_FIELDS.difference(needed, taken)):
        if getattr(spec, name):
            raise SpecError(spec.name, name, f"means nothing to the {spec.driver} driver")


def _check_driver(spec: EngineSpec) -> None:
    """What a driver asks of its fields' values."""
    if spec.driver == "embedded" and spec.dialect != "llama-server":
        raise SpecError(spec.name, "dialect", "the embedded driver speaks llama-server")
    if spec.driver == "docker" and not PINNED_IMAGE.fullmatch(spec.image or ""):
        why = f"{spec.image!r} is not pinned; write NAME@sha256:DIGEST (`manners engine pin`)"
        raise SpecError(spec.name, "image", why)
    if spec.driver == "url" and (fault := url_fault(spec.url or "")) is not None:
        raise SpecError(spec.name, "url", fault)
    for part, _ in spec.numerics or ():
        if part not in PARTS:
            raise SpecError(spec.name, "numerics", f"{part!r} is none of {', '.join(PARTS)}")
    if spec.driver == "process":
        _check_process(spec)


def _check_process(spec: EngineSpec) -> None:
    if spec.dialect == "openai" and not any("{port}" in word for word in spec.args):
        why = "must say where the server listens and what it serves, with {host}, {port}, {model} and {name}"
        raise SpecError(spec.name, "args", why)
    for name, value in spec.env or ():
        if not _VARIABLE.fullmatch(name) or name.startswith("MANNERS_"):
            raise SpecError(spec.name, "env", f"{name!r} is no variable for an engine")
        if "\0" in value:
            raise SpecError(spec.name, "env", f"{name} holds a zero byte")
    if any("\0" in word for word in (*(spec.command or ()), *spec.args)):
        raise SpecError(spec.name, "command", "holds a zero byte")


def url_fault(url: str) -> str | None:
    """What is wrong with an engine's address, or None.

    Two HTTP clients parse it, so only one plain form is accepted: http(s)://HOST[:PORT][/PATH] in ASCII, by RFC 3986.
    """
    if "@" in url:
        return "must not hold a user or a password"
    if not url.isascii():
        return f"{url!r} must be ASCII: write an international name as xn--..., and a path with %XX"
    found = _URL.fullmatch(url)
    if found is None:
        return f"{url!r} must be http(s)://HOST[:PORT][/PATH] and nothing more"
    host, port, path = found["host"], found["port"], found["path"]
    if not _is_host(host):
        return f"{url!r} is not an address: {host!r} is neither a host's name nor an IP address"
    if port is not None and not 0 < int(port) < 65536:
        return f"{url!r} is not an address: a port is from 1 to 65535"
    if {".", ".."} & set(path.split("/")):
        return f"{url!r} must not hold . or .. in its path"
    return None


def _is_host(host: str) -> bool:
    if host.startswith("["):
        return _is_ip(host[1:-1])
    labels = host.removesuffix(".").split(".")
    if labels[-1].isdigit():  # some parsers take 127.1 and 0177.0.0.1 for addresses
        return _is_ip(host)
    return len(host) <= 253 and all(_LABEL.fullmatch(label) for label in labels)


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
