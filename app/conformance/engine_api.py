"""The endpoints of an engine that the suite calls directly: load and tokenizer."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from deploy.core.engine_access import EngineAccess
from deploy.core.engine_http import ask_engine, read_json
from deploy.engine.dialects import DIALECTS
from deploy.engine.probe import metric
from gates.contracts.dialect import Dialect


@dataclass(frozen=True, slots=True)
class EngineEndpoints:
    """One engine's own endpoints. The answer is None where the engine has no such endpoint."""

    url: str
    dialect: Dialect
    access: EngineAccess

    async def running(self) -> int | None:
        """How many requests it computes or has queued, by its own metrics."""
        spec = DIALECTS[self.dialect]
        with suppress(ValueError):  # they are no metrics
            if spec.metrics is not None:
                return await metric(self.url + spec.metrics, *spec.load, access=self.access)
        return None

    async def tokens(self, text: str) -> int | None:
        """How many tokens this text is."""
        tokenize = DIALECTS[self.dialect].tokenize
        if tokenize is None or not text:
            return None if text else 0
        with suppress(LookupError, TypeError, ValueError):  # it was started without an endpoint
            models = await self._ask("GET", "/v1/models")
            said = await self._ask("POST", "/tokenize", tokenize(str(models["data"][0]["id"]), text))
            return int(said["count"]) if "count" in said else len(said["tokens"])
        return None

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        async with ask_engine(method, self.url + path, body, self.access) as reply:
            return await read_json(reply)
