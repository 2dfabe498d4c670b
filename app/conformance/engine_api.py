"""The endpoints of an engine that the suite calls directly: load and tokenizer."""

from contextlib import suppress
from typing import Any

from deploy.core.engine_access import EngineAccess
from deploy.core.engine_http import ask_engine, read_json
from deploy.engine.dialects import DIALECTS
from deploy.engine.probe import metric
from gates.contracts.dialect import Dialect

_NO_ANSWER = (LookupError, TypeError, ValueError)
"""Of an engine that was started without an endpoint, or does not expose it."""


class EngineEndpoints:
    """One engine's own endpoints. The answer is None where the engine has no such endpoint."""

    def __init__(self, url: str, dialect: Dialect, access: EngineAccess) -> None:
        self._url, self._dialect, self._access = url, dialect, access

    async def running(self) -> int | None:
        """How many requests it computes or has queued, by its own metrics."""
        spec = DIALECTS[self._dialect]
        if spec.metrics is None:
            return None
        with suppress(*_NO_ANSWER):
            return await metric(self._url + spec.metrics, *spec.load, access=self._access)
        return None

    async def tokens(self, text: str) -> int | None:
        """How many tokens this text is."""
        tokenize = DIALECTS[self._dialect].tokenize
        if tokenize is None or not text:
            return None if text else 0
        with suppress(*_NO_ANSWER):
            said = await self._ask("POST", "/tokenize", tokenize(await self.model(), text))
            return int(said["count"]) if "count" in said else len(said["tokens"])
        return None

    async def model(self) -> str:
        """The first model that it serves."""
        return str((await self._ask("GET", "/v1/models"))["data"][0]["id"])

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        async with ask_engine(method, self._url + path, body, self._access) as reply:
            if reply.status != 200:
                raise ValueError(f"HTTP {reply.status}")
            return await read_json(reply)
