"""Teachers: servers that answer what a plan asks. One interface for each API that they speak.

A `TeacherApi` says which header holds the key and gives the client of a run. The client takes and gives chat completions,
whatever goes over the wire, so that everything behind it is the same for all teachers: retries, the ledger, the judge.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from gates.contracts.dialect import Dialect
from gates.contracts.sample import TimedRead, TransportFault
from gates.run.http import Attempt, RequestTimeouts, TimedClient
from gates.run.runner import RequestClient
from gates.run.target import Target
from quantizer.core.errors import RecipeError
from quantizer.data import messages_api

MessagesFactory = Callable[[RequestTimeouts, int], RequestClient]


@dataclass(frozen=True, slots=True)
class TeacherApi:
    """An API. dialect: of the chat completion requests that its client is given. client: for timeouts and a thinking
    budget. header: with the key. thinks: whether its requests can ask for thoughts."""

    name: str
    dialect: Dialect
    client: MessagesFactory
    header: Callable[[str], dict[str, str]]
    thinks: bool = True


@dataclass(frozen=True, slots=True)
class TeacherServer:
    """A server, its API, and the thinking budget in tokens; 0: thinking is off."""

    target: Target
    api: TeacherApi
    thinking: int = 0

    def client(self, timeouts: RequestTimeouts) -> RequestClient:
        """The client of a run."""
        return self.api.client(timeouts, self.thinking)


class MessagesClient:
    """Asks by Anthropic's Messages API; takes and gives chat completions. thinking: the budget in tokens; 0: off."""

    def __init__(self, timeouts: RequestTimeouts, thinking: int = 0) -> None:
        self._client = TimedClient(timeouts, path="/v1/messages")
        self._thinking = thinking

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def ask(self, target: Target, body: bytes) -> Attempt:
        """Send a request and read its reply to the end. Errors are recorded in the attempt and never raised."""
        asked = messages_api.request_body(json.loads(body), self._thinking)
        attempt = await self._client.ask(target, json.dumps(asked, ensure_ascii=False).encode())
        if attempt.status == 200 and attempt.fault is None:
            try:
                reply = messages_api.chat_reply(b"".join(read.data for read in attempt.reads))
                attempt.reads = [TimedRead(attempt.ended_ns, reply)]
            except ValueError as error:
                attempt.fault = TransportFault("broken", str(error))
        return attempt


def _chat(timeouts: RequestTimeouts, thinking: int) -> RequestClient:
    return TimedClient(timeouts)


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def _x_api_key(key: str) -> dict[str, str]:
    return {"x-api-key": key} if key else {}


APIS: Final[Mapping[str, TeacherApi]] = {
    api.name: api
    for api in (
        TeacherApi("openai", "openai", _chat, _bearer, thinks=False),
        TeacherApi("vllm", "vllm", _chat, _bearer),
        TeacherApi("llama-server", "llama-server", _chat, _bearer),
        TeacherApi("anthropic", "openai", MessagesClient, _x_api_key),
    )
}
"""By the name that `--dialect` has for it."""


def make_teacher(url: str, model: str, dialect: str, key: str = "", thinking: int = 0) -> TeacherServer:
    """A teacher. It is identified by its model name and whether it thinks, because its address may change while a run is
    stopped. Raises RunError for an address, and RecipeError for a thinking budget, that cannot be used."""
    api = APIS[dialect]
    if thinking and not api.thinks:
        raise RecipeError(f"--thinking: the dialect {dialect} has no switch for it; name another --dialect")
    if 0 < thinking < messages_api.FEWEST_TOKENS and dialect == "anthropic":
        raise RecipeError(
            f"--thinking {thinking}: this API takes {messages_api.FEWEST_TOKENS} tokens or more"
        )
    named = f"{model} thinking" if thinking else model
    name = f"sha256:{hashlib.sha256(named.encode()).hexdigest()}"
    headers = api.header(key) if key else {}
    if dialect == "anthropic":
        headers = {**headers, "anthropic-version": messages_api.VERSION}
    base = url.rstrip("/").removesuffix("/v1")
    target = Target(
        url=base, served_model=model, dialect=api.dialect, artefact=name, engine=name, headers=headers
    )
    return TeacherServer(target, api, thinking)
