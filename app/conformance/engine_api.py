"""The endpoints of an engine that the suite calls directly: version, load and tokenizer."""

import re
from collections.abc import Awaitable
from importlib import metadata
from typing import Any

import httpx2

from deploy.core.engine_http import read_body, read_json
from deploy.engine.dialects import DIALECTS
from gates.contracts.dialect import Dialect


class EngineEndpoints:
    """One engine's own endpoints. The answer is None where its dialect has no such endpoint."""

    def __init__(self, client: httpx2.AsyncClient, url: str, dialect: Dialect) -> None:
        self._client, self._url, self._dialect = client, url, dialect

    async def running(self) -> int | None:
        """How many requests it computes or has queued, by its own metrics."""
        return await self._asked(self._running())

    async def tokens(self, text: str) -> int | None:
        return await self._asked(self._tokens(text)) if text else 0

    async def _asked(self, question: Awaitable[int | None]) -> int | None:
        """None for an engine that was started without the endpoint, or does not expose it."""
        try:
            return await question
        except (httpx2.HTTPStatusError, LookupError, TypeError, ValueError):
            return None

    async def _running(self) -> int | None:
        spec = DIALECTS[self._dialect]
        return (
            None if spec.metrics is None else await metric(self._client, self._url + spec.metrics, *spec.load)
        )

    async def _tokens(self, text: str) -> int | None:
        if self._dialect == "llama-server":
            return len((await self._post("/tokenize", {"content": text}))["tokens"])
        if self._dialect in ("vllm", "sglang"):
            body = {"model": await self.model(), "prompt": text, "add_special_tokens": False}
            return int((await self._post("/tokenize", body))["count"])
        return None

    async def model(self) -> str:
        """The first model that it serves."""
        return str((await self._get("/v1/models"))["data"][0]["id"])

    async def version(self) -> str:
        """The build, as the engine reports it."""
        stated = DIALECTS[self._dialect].version
        if stated is None:
            return "unknown"
        path, key = stated
        return str((await self._get(path))[key]).replace("b0-unknown", _wheel())

    async def _get(self, path: str) -> Any:
        async with self._client.stream("GET", self._url + path) as reply:
            reply.raise_for_status()
            return await read_json(reply)

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        async with self._client.stream("POST", self._url + path, json=body) as reply:
            reply.raise_for_status()
            return await read_json(reply)


async def metric(client: httpx2.AsyncClient, url: str, *names: str) -> int | None:
    """The sum of an engine's metrics of these names; None if it has none of them. Raises httpx2.HTTPError, ValueError."""
    async with client.stream("GET", url) as reply:
        reply.raise_for_status()
        lines = (await read_body(reply)).decode("utf-8", "replace").splitlines()
    found = [float(line.split()[-1]) for line in lines if re.split(r"[{ ]", line)[0] in names]
    return int(sum(found)) if found else None


def _wheel() -> str:
    """The version of the xllamacpp wheel, whose server does not know its own build."""
    try:
        return f"xllamacpp {metadata.version('xllamacpp')}"
    except metadata.PackageNotFoundError:
        return "unknown"
