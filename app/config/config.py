"""The configuration file: TOML in, frozen values out, and one clear line when it is wrong.

`deploy/manners.example.toml` says what each key means. Paths are relative to the folder of the file.
"""

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, Self

import re2
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    field_validator,
    model_validator,
)

from app.config.private import read_secret
from app.config.replicas import replicas_fault
from app.errors.tree import UnknownThing
from app.stream.schema import UnaskedCalls
from app.telemetry.redact import compiled
from deploy.core.errors import PinError, SpecError
from deploy.engine.dialect import Thinking
from deploy.engine.spec import NAME, EngineSpec, Kind, url_fault
from deploy.images.pins import pinned
from gates.decode.decoder import nearest

MAX_INT = 2**31 - 1  # largest count of tokens that every engine reads
MAX_REPLICAS = 64  # live engines of one model
MAX_BYTES = 1 << 20  # of a configuration file
EMBEDDED_DEFAULT = Path(__file__).parents[2] / "deploy" / "embedded.toml"  # of `manners serve` without a file

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Percent = Annotated[int, Field(ge=1, le=99)]
HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=253)]
Words = Annotated[tuple[str, ...], Strict(False)]  # TOML has lists; a frozen section has tuples
Pairs = Annotated[dict[str, str], AfterValidator(lambda table: tuple(sorted(table.items())))]


class ConfigError(Exception):
    """The configuration cannot be used; the message is one line that says what to change."""


class ConfigSection(BaseModel):
    """A section of the file: frozen, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


@lru_cache(256)
def is_loopback(name: str) -> bool:
    """Whether a host name or address always means this machine."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


class Address(NamedTuple):
    """A host and a port to listen on."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str, key: str) -> Self:
        """HOST:PORT. Raises ConfigError that names the key."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise ConfigError(f"{key}: {text!r} must be HOST:PORT")
        return cls(host.strip("[]"), int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class GatewayConfig(ConfigSection):
    """`[gateway]`: addresses, the state folder, and limits."""

    listen: str = "127.0.0.1:8080"
    admin: str = "127.0.0.1:8081"
    state: str = "~/.local/state/manners"
    limits: str | None = Field(default=None, pattern="^(rediss?|unix)://", repr=False)  # may hold a password
    api_keys_file: str | None = None
    admin_token_file: str | None = None
    max_body_bytes: int = Field(default=1 << 20, ge=1024, le=64 << 20)
    max_messages: int = Field(default=512, ge=1)
    max_reply_bytes: int = Field(default=4 << 20, ge=1024, le=1 << 30)
    max_stream_bytes: int = Field(default=32 << 20, ge=1024, le=1 << 40)
    lame_duck: float = Field(default=5.0, ge=0, le=600)
    drain_seconds: Seconds = 30.0
    read_seconds: Seconds = 30.0
    max_connections: int = Field(default=1024, ge=1, le=1_000_000)
    hosts: Annotated[tuple[HostName, ...], Strict(False)] = ()


class Timeouts(ConfigSection):
    """`[models.NAME.timeouts]`: seconds."""

    connect: Seconds = 1.0
    first_token: Seconds | None = None
    idle: Seconds = 15.0
    total: Seconds = 120.0


class EngineTable(ConfigSection):
    """`[engines.NAME]` as the file has it; `EngineSpec` checks the values."""

    dialect: str
    driver: str
    artefact: str | None = None
    image: str | None = None
    args: Words = ()
    url: str | None = None
    gpu: str | None = None
    command: Words | None = None
    env: Pairs | None = None
    numerics: Pairs | None = None
    media: Annotated[Words, AfterValidator(lambda names: tuple(sorted(set(names))))] | None = None
    format: str | None = None
    key_file: str | None = None
    ca_file: str | None = None


class ModelConfig(ConfigSection):
    """`[models.NAME]`: a public model, and the engines that serve it; several live ones are replicas of each other."""

    live: Annotated[
        Words,
        BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
        Field(min_length=1, max_length=MAX_REPLICAS),
    ]
    fallback: Words = ()
    baseline: str | None = None
    kind: Kind = "chat"
    thinking: Literal["off", "on"] | Annotated[int, Field(ge=0)] = "off"
    reasoning: Literal["strip", "separate", "inline"] = "strip"
    timeouts: Timeouts = Timeouts()
    concurrency: int = Field(default=8, ge=1)
    queue: int = Field(default=32, ge=0)
    max_tokens: int = Field(default=1024, ge=1, le=MAX_INT)
    thought_guard: Literal["auto"] | Annotated[int, Field(ge=0, le=1 << 20)] = "auto"
    unasked_calls: UnaskedCalls = "strip"
    when_nothing_is_left: str = Field(default="", max_length=1000)
    speech: Literal["as_is", "plain"] = "as_is"

    @property
    def engines(self) -> tuple[str, ...]:
        """The live engines, then the fallbacks."""
        return (*self.live, *self.fallback)

    @property
    def default_thinking(self) -> Thinking:
        """The thinking of a request that asks for none."""
        if isinstance(self.thinking, str):
            return 0 if self.thinking == "off" else None
        return self.thinking


class Gates(ConfigSection):
    """`[gates]`: the suite and the policy by which a promotion is judged, and whether a start insists on one."""

    suite: str = "annie"
    policy: str = "annie"
    controls: dict[str, str] = {}
    max_age_days: int = Field(default=7, ge=1)
    require: bool | None = None


class Promotion(ConfigSection):
    """`[promotion]`: how a new engine takes over."""

    warm_tokens: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Strict(False)] = (50, 500, 2000, 4000)
    warm_at_once: Annotated[tuple[Annotated[int, Field(ge=2, le=256)], ...], Strict(False)] = (2, 4)
    warm_seconds: Seconds = 600.0
    shift_weights: Annotated[tuple[Percent, ...], Strict(False), Field(max_length=16)] = ()
    shift_seconds: Seconds = 60.0
    bake_seconds: float = Field(default=600.0, ge=0, le=86_400)
    bake_slow_factor: float = Field(default=1.25, ge=1, le=1000)

    @model_validator(mode="after")
    def _weights_rise(self) -> Self:
        if any(after <= before for before, after in pairwise(self.shift_weights)):
            raise ValueError("promotion.shift_weights: each weight must be higher than the one before it")
        return self


class Shadow(ConfigSection):
    """`[shadow]`: recording of callers' requests for a later replay."""

    record: bool = False
    share: float = Field(default=0.05, gt=0, le=1)
    keep_days: int = Field(default=7, ge=1, le=365)
    max_mb: int = Field(default=200, ge=1, le=1 << 20)
    redact: Words = ()

    @model_validator(mode="after")
    def _patterns(self) -> Self:
        for pattern in self.redact:
            try:
                found = compiled(pattern).search("")
            except (re2.error, UnicodeEncodeError) as error:
                why = error.args[0].decode() if isinstance(error, re2.error) else error
                note = "RE2 has no lookaround and no back references"
                raise ValueError(
                    f"shadow.redact: {pattern!r} is not a valid pattern of RE2: {why}; {note}"
                ) from None
            if found:
                raise ValueError(f"shadow.redact: {pattern!r} matches an empty text, and so every text")
        return self


class Telemetry(ConfigSection):
    """`[telemetry]`: where spans are sent."""

    otlp_endpoint: str | None = None

    @field_validator("otlp_endpoint")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        if url is not None and (fault := url_fault(url)):
            raise ValueError(f"telemetry.otlp_endpoint: {fault}")
        return url


class Log(ConfigSection):
    """`[log]`: what is written to stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class Secrets(ConfigSection):
    """From the environment or from files; never printed or logged."""

    api_keys: tuple[str, ...] = Field(default=(), repr=False)
    admin_token: str | None = Field(default=None, repr=False)


class Config(ConfigSection):
    """The whole configuration, with its cross-references checked."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    gateway: GatewayConfig = GatewayConfig()
    engines: dict[str, EngineSpec]
    models: dict[str, ModelConfig] = Field(min_length=1)
    gates: Gates = Gates()
    promotion: Promotion = Promotion()
    shadow: Shadow = Shadow()
    telemetry: Telemetry = Telemetry()
    log: Log = Log()
    secrets: Secrets = Secrets()

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        for name, model in self.models.items():
            if not NAME.fullmatch(name):
                raise ValueError(f"models.{name}: a model's name must match ^{NAME.pattern}$")
            for engine in (*model.engines, *filter(None, [model.baseline])):
                if engine not in self.engines:
                    hint = nearest(engine, self.engines)
                    raise ValueError(f"models.{name}: there is no engine {engine!r}{hint}")
            if fault := replicas_fault([self.engines[engine] for engine in model.live]):
                raise ValueError(f"models.{name}.live: {fault}")
        return self

    def model(self, name: str) -> ModelConfig:
        """The public model of this name. Raises UnknownThing."""
        if (found := self.models.get(name)) is None:
            message = f"there is no model {name[:64]!r} here; there is: {', '.join(sorted(self.models))}"
            raise UnknownThing(message, "model_not_found")
        return found

    def engine(self, name: str) -> EngineSpec:
        """The engine of this name. Raises ConfigError."""
        if (found := self.engines.get(name)) is None:
            configured = ", ".join(sorted(self.engines))
            raise ConfigError(f"there is no engine {name!r}; configured are {configured}")
        return found

    @property
    def listen(self) -> Address:
        """The public listener's address."""
        return Address.of(self.gateway.listen, "gateway.listen")

    @property
    def admin(self) -> Address:
        """The admin listener's address."""
        return Address.of(self.gateway.admin, "gateway.admin")

    @property
    def state_dir(self) -> Path:
        """The state folder, absolute."""
        return Path(self.gateway.state)


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Config:
    """Read and check a configuration file; without one, the embedded default. Raises ConfigError."""
    source = path or EMBEDDED_DEFAULT
    tables = read_tables(source)
    try:
        return parse(tables, source.parent, environ)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def read_tables(source: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises ConfigError."""
    try:
        with open(source, "rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ConfigError(f"{source}: larger than {MAX_BYTES} bytes; a configuration is a few thousand")
        return tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{source}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also deep nesting, and numbers of 5,000 digits
        raise ConfigError(f"{source}: not TOML: {error}") from None


def parse(data: dict[str, Any], base: Path, environ: Mapping[str, str] = MappingProxyType({})) -> Config:
    """A checked Config from parsed TOML. `base` is the folder that paths are relative to. Raises ConfigError."""
    tables = data.get("engines", {})
    if isinstance(tables, dict):
        tables = {name: _engine(name, table, base) for name, table in tables.items()}
    if "secrets" in data:
        raise ConfigError("secrets: unknown key; secrets come from the environment, or *_file of [gateway]")
    try:
        config = Config.model_validate({**data, "engines": tables})
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None
    if config.listen == config.admin and config.listen.port:
        raise ConfigError("gateway.admin: must not be the address of gateway.listen")
    state = str(absolute(config.gateway.state, base, "gateway.state"))
    kinds = {(name, model.kind) for model in config.models.values() for name in model.engines}
    embeds = {name for name, kind in kinds if kind == "embeddings" and (name, "chat") not in kinds}
    embedding = {name: replace(config.engines[name], kind="embeddings") for name in embeds}
    update = {
        "gateway": config.gateway.model_copy(update={"state": state}),
        "engines": {**config.engines, **embedding},
        "secrets": _secrets(config.gateway, base, environ),
    }
    return config.model_copy(update=update)


def _secrets(gateway: GatewayConfig, base: Path, environ: Mapping[str, str]) -> Secrets:
    """Those of the environment and of the files that `[gateway]` names. Raises ConfigError."""
    keys = environ.get("MANNERS_API_KEYS", "")
    if gateway.api_keys_file:
        keys += "," + _COMMENT.sub("", _read_secret(gateway.api_keys_file, base, "gateway.api_keys_file"))
    token = environ.get("MANNERS_ADMIN_TOKEN") or None
    if gateway.admin_token_file:
        token = _read_secret(gateway.admin_token_file, base, "gateway.admin_token_file").strip()
    found = [key.strip() for key in keys.replace("\n", ",").split(",")]
    return Secrets(api_keys=tuple(key for key in found if key), admin_token=token)


def _engine(name: str, table: Any, base: Path) -> EngineSpec:
    """The engine of a table. Its paths become absolute, its image pinned."""
    try:
        stated = EngineTable.model_validate(table)
        values: dict[str, Any] = {key: value for key, value in stated if value is not None}
        for key in values.keys() & {"artefact", "key_file", "ca_file"}:
            values[key] = absolute(values[key], base, f"engines.{name}.{key}")
        program, *words = values.get("command") or ("",)
        if "/" in program or program.startswith("~"):  # its links stay: Python finds its environment by them
            path = base / _expanded(program, f"engines.{name}.command")
            values["command"] = (os.path.abspath(path), *words)
        if "image" in values:
            values["image"] = pinned(values["image"], base)
        spec = EngineSpec(name=name, **values)
        spec.access.check()
    except ValidationError as error:
        raise ConfigError(_explain(error, "engines", name)) from None
    except SpecError as error:
        raise ConfigError(f"engines.{name}.{error.field}: {error.why}") from None
    except PinError as error:
        raise ConfigError(f"engines.{name}.image: {error}") from None
    except ValueError as error:
        raise ConfigError(f"engines.{name}.{error}") from None
    return spec


_COMMENT = re.compile(r"(^|\s)#.*", re.MULTILINE)  # of a file of keys: `#` begins a line, or follows a blank


def _read_secret(path: str, base: Path, key: str) -> str:
    try:
        return read_secret(absolute(path, base, key))
    except OSError as error:
        raise ConfigError(f"{key}: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{key}: {path}: not UTF-8 text") from None


def absolute(path: str, base: Path, key: str) -> Path:
    """A path of the configuration as an absolute one; `base` is the file's folder. Raises ConfigError."""
    return (base / _expanded(path, key)).resolve()


def _expanded(path: str, key: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:  # ~nobody
        raise ConfigError(f"{key}: {path}: there is no such home directory") from None


_SECTIONS: dict[str, type[BaseModel]] = {
    **{name: type(field.default) for name, field in Config.model_fields.items()},
    "": Config,
    "engines": EngineTable,
    "models": ModelConfig,
    "timeouts": Timeouts,
}


def _explain(error: ValidationError, *place: str) -> str:
    """The first error as one line: the key below `place`, what is wrong, and the nearest known key."""
    first = error.errors(include_url=False)[0]
    path = [*place, *map(str, first["loc"])]
    where = ".".join(path) or "configuration"
    if first["type"] == "extra_forbidden":
        section = next((p for p in reversed(path[:-1]) if p in _SECTIONS), "")
        known = set(_SECTIONS[section].model_fields) - {"secrets"}
        return f"{where}: unknown key{nearest(path[-1], known)}"
    message = first["msg"].removeprefix("Value error, ")
    return message if first["type"] == "value_error" else f"{where}: {message[0].lower()}{message[1:]}"
