"""Whom a run asks: targets, and arms, which are targets under a name with a variant. Values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from gates.contracts.errors import RunError

Dialect = Literal["vllm", "llama-server", "openai"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One engine, or a gateway before one, that is up.

    `url` is without `/v1`; `served_model` is what it calls the model. `artefact` and `engine` are
    digests: of the weights' folder, and of what serves them (build, argv, image). `headers` may hold
    a key: they go out with requests, and nowhere else.
    """

    url: str
    served_model: str
    dialect: Dialect
    artefact: str
    engine: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Raises RunError for an address that cannot be asked, or that holds a password."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RunError(f"{self.url!r} is no address of an engine; write http(s)://HOST[:PORT]")
        if parts.username or parts.password:
            raise RunError(f"the address of {parts.hostname} holds a password; give the key by header")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How an arm is asked otherwise than production asks: the negative controls.

    `thinking` lets it think, `system_suffix` is added to the system prompt, and without `tools` the
    schemas are taken out of the request. `extra` adds request fields; it cannot replace any.
    """

    thinking: bool = False
    system_suffix: str = ""
    tools: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Arm:
    """A target under the name that its samples carry (see `gates.contracts.sample.Key.arm`)."""

    name: str
    target: Target
    variant: Variant = Variant()
