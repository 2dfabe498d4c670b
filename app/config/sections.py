"""What the tables of a configuration share, and the small ones: addresses, secrets, telemetry."""

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class ConfigError(Exception):
    """The configuration cannot be used; the message is one line that says what to change."""


class Table(BaseModel):
    """A frozen table without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


@lru_cache(256)
def is_loopback(name: str) -> bool:
    """Whether a host name or address means this machine and can mean no other."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


class Address(Table):
    """A host and a port to listen on."""

    host: str
    port: int = Field(ge=0, le=65_535)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Telemetry(Table):
    """`[telemetry]`: where spans go, if anywhere. The address of a collector, with or without /v1/traces."""

    otlp_endpoint: str | None = None

    @field_validator("otlp_endpoint")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        parts = urlsplit(url or "")
        if url is not None and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError(f"telemetry.otlp_endpoint: {url!r} must be http(s)://HOST[:PORT][/PATH]")
        return url


class Secrets(Table):
    """Keys by value; they came from the environment or a file and go nowhere else."""

    api_keys: tuple[str, ...] = Field(default=(), repr=False)
    admin_token: str | None = Field(default=None, repr=False)


def secrets_for(
    keys_file: str | None, token_file: str | None, base: Path, environ: Mapping[str, str]
) -> Secrets:
    """Keys and token from the environment, and from the files that `[gateway]` names. Raises ConfigError."""
    keys = environ.get("MANNERS_API_KEYS", "")
    if keys_file:
        keys += "," + _read_secret(keys_file, base, "gateway.api_keys_file")
    token: str | None = environ.get("MANNERS_ADMIN_TOKEN") or None
    if token_file:
        token = _read_secret(token_file, base, "gateway.admin_token_file").strip()
    found = [key.strip() for key in keys.replace("\n", ",").split(",")]
    return Secrets(api_keys=tuple(key for key in found if key), admin_token=token)


def _read_secret(path: str, base: Path, key: str) -> str:
    try:
        return absolute(path, base, key).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{key}: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{key}: {path}: not UTF-8 text") from None


def absolute(path: str, base: Path, key: str) -> Path:
    """A path of the configuration, from the folder of its file. Raises ConfigError."""
    try:
        return (base / Path(path).expanduser()).resolve()
    except RuntimeError:  # ~nobody
        raise ConfigError(f"{key}: {path}: there is no such home directory") from None
