"""The configuration file: TOML in, frozen values out, and one clear line when it is wrong.

Nothing else in the program reads the environment or a file for settings. An unknown key is an
error that names the nearest right one. Paths are relative to the file they stand in.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from app.config.sections import Address as Address
from app.config.sections import ConfigError as ConfigError
from app.config.sections import Seconds, Table, Telemetry, absolute, secrets_for
from app.config.sections import Secrets as Secrets
from app.config.shadow import Shadow
from app.stream.conduct import Guard
from app.stream.tags import ALL_FAMILIES, FAMILIES, tag_set
from deploy.core.errors import PinError, SpecError
from deploy.engine.spec import NAME, EngineSpec, Kind
from deploy.images.pins import pinned
from gates.policy.decoder import nearest

MAX_BYTES = 1 << 20
"""Of a configuration file."""
EMBEDDED_DEFAULT = Path(__file__).parents[2] / "deploy" / "embedded.toml"
"""What `manners serve` runs without a file."""


def _with_tuples(data: Any, *keys: str) -> Any:
    """TOML has lists, and a frozen table has tuples."""
    if not isinstance(data, dict):
        return data
    return {k: tuple(v) if k in keys and isinstance(v, list) else v for k, v in data.items()}


class Gateway(Table):
    """`[gateway]`: where it listens, where it keeps its state, and what it takes."""

    listen: str = "127.0.0.1:8080"
    admin: str = "127.0.0.1:8081"
    state: str = "~/.local/state/manners"
    api_keys_file: str | None = None
    admin_token_file: str | None = None
    max_body_bytes: int = Field(default=1 << 20, ge=1024, le=64 << 20)
    max_messages: int = Field(default=512, ge=1)
    max_reply_bytes: int = Field(default=4 << 20, ge=1024, le=1 << 30)
    max_stream_bytes: int = Field(default=32 << 20, ge=1024, le=1 << 40)
    drain_seconds: Seconds = 30.0
    read_seconds: Seconds = 30.0
    max_connections: int = Field(default=1024, ge=1, le=1_000_000)
    hosts: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=253)], ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _tuples(cls, data: Any) -> Any:
        return _with_tuples(data, "hosts")


class Timeouts(Table):
    """Seconds. `idle` is the longest silence inside a stream; `total` bounds the whole reply."""

    connect: Seconds = 1.0
    first_token: Seconds = 10.0
    idle: Seconds = 15.0
    total: Seconds = 120.0


class Model(Table):
    """`[models.NAME]`: what a caller may put in `model`, and who serves it."""

    live: str
    fallback: tuple[str, ...] = ()
    baseline: str | None = None
    kind: Kind = "chat"
    thinking: Literal["off", "on"] | Annotated[int, Field(ge=0)] = "off"
    thinking_ms: int | None = Field(default=None, ge=1, le=86_400_000)
    reasoning: Literal["strip", "separate", "inline"] = "strip"
    timeouts: Timeouts = Timeouts()
    concurrency: int = Field(default=8, ge=1)
    queue: int = Field(default=32, ge=0)
    keepalive: float = Field(default=0.0, ge=0, le=86_400)
    thought_guard: Guard = "auto"
    think_tags: tuple[str, ...] = ALL_FAMILIES

    @model_validator(mode="before")
    @classmethod
    def _tuples(cls, data: Any) -> Any:
        return _with_tuples(data, "fallback", "think_tags")

    @model_validator(mode="after")
    def _known_tags(self) -> Self:
        for name in self.think_tags:
            if name not in FAMILIES:
                raise ValueError(f"think_tags: there is no family {name!r}{nearest(name, FAMILIES)}")
        for tools in (True, False):  # compiled now, and not under the first request
            tag_set(self.think_tags, tools)
        if self.thought_guard != "auto" and not 0 <= self.thought_guard <= 1 << 20:
            raise ValueError('thought_guard: must be "auto", or 0 to 1048576 characters')
        return self

    @property
    def engines(self) -> tuple[str, ...]:
        """The live engine and then its fallbacks."""
        return (self.live, *self.fallback)


class Gates(Table):
    """`[gates]`: the suite and policy that a promotion is judged by."""

    suite: str = "annie"
    policy: str = "annie"
    controls: dict[str, str] = {}
    max_age_days: int = Field(default=7, ge=1)


class Promotion(Table):
    """`[promotion]`: how a new engine is brought in.

    It is warmed with prompts of these lengths (tokens), alone and so many at once, until the medians
    of three rounds lie within `settle` of one another (a share). `bake_seconds` of live traffic come
    after the switch, before the old engine goes.
    """

    warm_tokens: tuple[Annotated[int, Field(ge=1)], ...] = (50, 500, 2000, 4000)
    warm_at_once: tuple[Annotated[int, Field(ge=2, le=256)], ...] = (2, 4)
    warm_seconds: Seconds = 600.0
    settle: float = Field(default=0.2, gt=0)
    bake_seconds: float = Field(default=600.0, ge=0, le=86_400)

    @model_validator(mode="before")
    @classmethod
    def _tuples(cls, data: Any) -> Any:
        return _with_tuples(data, "warm_tokens", "warm_at_once")


class Config(Table):
    """All of it, checked as a whole."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    gateway: Gateway = Gateway()
    engines: dict[str, EngineSpec]
    models: dict[str, Model] = Field(min_length=1)
    gates: Gates = Gates()
    promotion: Promotion = Promotion()
    shadow: Shadow = Shadow()
    telemetry: Telemetry = Telemetry()
    secrets: Secrets = Secrets()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for name, model in self.models.items():
            if not NAME.fullmatch(name):
                raise ValueError(f"models.{name}: a model's name must match ^{NAME.pattern}$")
            for engine in (*model.engines, *filter(None, [model.baseline])):
                if engine not in self.engines:
                    hint = nearest(engine, self.engines)
                    raise ValueError(f"models.{name}: there is no engine {engine!r}{hint}")
        return self

    @property
    def listen(self) -> Address:
        """The public address."""
        return _address(self.gateway.listen, "gateway.listen")

    @property
    def admin(self) -> Address:
        """The operators' address."""
        return _address(self.gateway.admin, "gateway.admin")

    @property
    def state_dir(self) -> Path:
        """Where state lives."""
        return Path(self.gateway.state)


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Config:
    """Read and check a configuration file; without one, the embedded default.

    Raises:
        ConfigError: unreadable, not TOML, an unknown key, a bad value, or a missing secret file.
    """
    source = path or EMBEDDED_DEFAULT
    try:
        with source.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ConfigError(f"{source}: larger than {MAX_BYTES} bytes; a configuration is a few thousand")
        data = tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{source}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also nesting without end, and numbers of 5,000 digits
        raise ConfigError(f"{source}: not TOML: {error}") from None
    try:
        config = parse(data, source.parent)
        return config.model_copy(
            update={
                "secrets": secrets_for(
                    config.gateway.api_keys_file, config.gateway.admin_token_file, source.parent, environ
                )
            }
        )
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def parse(data: dict[str, Any], base: Path) -> Config:
    """A checked Config from parsed TOML. `base` is the folder that paths are relative to."""
    tables = data.get("engines", {})
    if not isinstance(tables, dict):
        raise ConfigError("engines: must be tables, [engines.NAME]")
    engines = {name: _engine(name, table, base) for name, table in tables.items()}
    if "secrets" in data:
        raise ConfigError("secrets: unknown key; secrets come from the environment, or *_file of [gateway]")
    try:
        config = Config.model_validate({**data, "engines": engines}, strict=True)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None
    state = str(absolute(config.gateway.state, base, "gateway.state"))
    gateway = config.gateway.model_copy(update={"state": state})
    config = config.model_copy(update={"gateway": gateway, "engines": _with_kinds(config)})
    if config.listen == config.admin and config.listen.port:
        raise ConfigError("gateway.admin: must be another address than gateway.listen")
    return config


def _with_kinds(config: Config) -> dict[str, EngineSpec]:
    """The engines, each with what it must do to be ready: chat, unless only embeddings are asked of it."""
    asked: dict[str, set[Kind]] = {}
    for model in config.models.values():
        for name in model.engines:
            asked.setdefault(name, set()).add(model.kind)
    return {
        name: replace(spec, kind="embeddings") if asked.get(name) == {"embeddings"} else spec
        for name, spec in config.engines.items()
    }


_ENGINE_KEYS = ("dialect", "driver", "artefact", "image", "args", "url", "gpu")


def _engine(name: str, table: Any, base: Path) -> EngineSpec:
    if not isinstance(table, dict):
        raise ConfigError(f"engines.{name}: must be a table")
    for key in table:
        if key not in _ENGINE_KEYS:
            raise ConfigError(f"engines.{name}.{key}: unknown key{nearest(key, _ENGINE_KEYS)}")
    for key in ("dialect", "driver"):
        if key not in table:
            raise ConfigError(f"engines.{name}.{key}: missing")
    args = table.get("args", [])
    if not isinstance(args, list) or not all(isinstance(a, str) for a in args):
        raise ConfigError(f"engines.{name}.args: must be a list of strings")
    for key, value in table.items():
        if key != "args" and not isinstance(value, str):
            raise ConfigError(f"engines.{name}.{key}: must be a string")
    artefact = table.get("artefact")
    known = {key: table[key] for key in ("dialect", "driver", "image", "url", "gpu") if key in table}
    try:
        where = absolute(artefact, base, f"engines.{name}.artefact") if artefact is not None else None
        if "image" in known:
            known["image"] = pinned(known["image"], base)
        return EngineSpec(name=name, args=tuple(args), artefact=where, **known)
    except SpecError as error:
        raise ConfigError(f"engines.{name}.{error.field}: {error.why}") from None
    except PinError as error:
        raise ConfigError(f"engines.{name}.image: {error}") from None


def _address(text: str, key: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535 or not host:
        raise ConfigError(f"{key}: {text!r} must be HOST:PORT")
    return Address(host=host.strip("[]"), port=int(port))


_TABLES: dict[str, type[BaseModel]] = {
    "": Config,
    "gateway": Gateway,
    "models": Model,
    "timeouts": Timeouts,
    "gates": Gates,
    "promotion": Promotion,
    "shadow": Shadow,
    "telemetry": Telemetry,
}


def _explain(error: ValidationError) -> str:
    """The first fault as one line: where, what, and the nearest right key."""
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"]]
    where = ".".join(path) or "configuration"
    if first["type"] == "extra_forbidden":
        table = next((p for p in reversed(path[:-1]) if p in _TABLES), "")
        known = set(_TABLES[table].model_fields) - {"secrets"}
        return f"{where}: unknown key{nearest(path[-1], known)}"
    message = first["msg"].removeprefix("Value error, ")
    return message if first["type"] == "value_error" else f"{where}: {message[0].lower()}{message[1:]}"
