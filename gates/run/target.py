"""Targets (engines to ask) and arms (targets with a name and a variant). Values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any
from urllib.parse import urlsplit

from gates.contracts.dialect import Dialect
from gates.contracts.errors import RunError
from gates.contracts.sample import TimedRead

Hearing = Callable[[Mapping[str, Any], Sequence[TimedRead]], bytes]
"""What a caller of the gateway hears, as a stream of chat completion chunks: takes the request and the engine's reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running engine, or a gateway in front of one. `url` is without `/v1`; `artefact` and `engine` are digests of the weights' folder
    and of what serves it. `headers` may hold a key; they are stored nowhere. `hearing`: of the gateway that is to serve it, if there is one.
    """

    url: str
    served_model: str
    dialect: Dialect
    artefact: str
    engine: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: SSLContext | None = field(default=None, repr=False)
    hearing: Hearing | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raises RunError for an address that cannot be used or that contains a password."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RunError(f"{self.url!r} is no address of an engine; write http(s)://HOST[:PORT]")
        if parts.username or parts.password:
            raise RunError(f"the address of {parts.hostname} holds a password; give the key by header")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How an arm's requests differ from production's, for the negative controls."""

    thinking: bool = False
    system_suffix: str = ""
    tools: bool = True


@dataclass(frozen=True, slots=True)
class Arm:
    """A target under the name that its samples carry (see `gates.contracts.sample.SampleKey.arm`)."""

    name: str
    target: Target
    variant: Variant = Variant()
