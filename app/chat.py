"""`POST /v1/chat/completions`: from the request's bytes to an exchange, and its end in the books."""

import asyncio
import random
import time
from typing import Any

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.admission import Turnstile
from app.config import Config, Model
from app.dialects import Thinking
from app.door import RAW_SEND
from app.errors import (
    BodyTooLarge,
    Busy,
    Draining,
    EngineTimeout,
    MannersError,
    RequestError,
    Unauthorized,
    UpstreamError,
)
from app.fleet import Fleet, Route
from app.http_errors import error_response
from app.lifeline import ClientGone, Lifeline
from app.log import Logger
from app.metrics import UNKNOWN, Metrics
from app.relay import Exchange
from app.requests import ChatRequest, parse_chat
from app.shaping import stream_policy, upstream_body
from app.stream.clocks import Clocks
from app.stream.encode import ReplyHead
from app.witness import Witness

NO_ENGINE = "none"
"""The engine label of requests that reached no engine."""


class ChatService:
    """Serves chat completions. One per gateway; made by `app.main`."""

    def __init__(self, config: Config, fleet: Fleet, metrics: Metrics, log: Logger) -> None:
        self._config = config
        self._fleet = fleet
        self._metrics = metrics
        self._log = log
        self._turnstiles = {
            name: Turnstile(model.concurrency, model.queue, self._gauges(name))
            for name, model in config.models.items()
        }
        self.draining = False

    def _gauges(self, name: str) -> Any:
        in_flight = self._metrics.in_flight.labels(name)
        depth = self._metrics.queue_depth.labels(name)

        def changed(serving: int, waiting: int) -> None:
            in_flight.set(serving)
            depth.set(waiting)

        return changed

    @property
    def in_flight(self) -> int:
        """Requests being served or waiting."""
        return sum(t.in_flight + t.waiting for t in self._turnstiles.values())

    async def prepare(self, request: Request) -> Response:
        """Read and check a request. Raises RequestError or Draining."""
        try:
            return await self._admit(request)
        except (MannersError, ClientGone) as error:
            outcome = _outcome(error)
            self._metrics.finished(UNKNOWN, NO_ENGINE, outcome)
            self._log.info(
                "request",
                request_id=request.state.request_id,
                model=UNKNOWN,
                engine=NO_ENGINE,
                outcome=outcome,
                code=getattr(error, "code", None),
            )
            if isinstance(error, ClientGone):
                return Response(status_code=400)  # to nobody
            raise

    async def _admit(self, request: Request) -> "ChatReply":
        raw = await read_body(request, self._config.gateway.max_body_bytes)
        start = time.perf_counter()
        if self.draining:
            raise Draining("this gateway is shutting down; send the request to another")
        chat, body, ignored = parse_chat(raw, self._config.gateway.max_messages)
        model = self._fleet.model(chat.model)
        return ChatReply(self, request, chat, body, ignored, model, start)

    async def serve(self, reply: "ChatReply", receive: Receive, send: Send, raw: Send) -> None:
        """Hold a place, ask an engine, and book what became of it."""
        timeouts, turnstile = reply.model.timeouts, self._turnstiles[reply.chat.model]
        try:
            async with (
                Lifeline(receive, timeouts) as line,
                turnstile.place(timeouts.first_token),
            ):
                route = self._fleet.route(reply.model)
                exchange = reply.bind(route)
                await exchange.run(route, line, send, raw, reply.trace)
            self._book(reply, exchange.broken)
        except MannersError as error:
            await reply.fail(error, send)
            self._book(reply, error)
        except ClientGone as gone:
            self._book(reply, gone)
        except asyncio.CancelledError as cancelled:
            self._book(reply, cancelled)
            raise

    def _book(self, reply: "ChatReply", error: BaseException | None) -> None:
        """Count and log one request that is over."""
        model, engine, outcome = reply.chat.model, reply.engine, _outcome(error)
        self._metrics.finished(model, engine, outcome)
        exchange, end = reply.exchange, time.perf_counter()
        facts: dict[str, Any] = {}
        if exchange is not None:
            clocks, witness = exchange.clocks, exchange.witness
            end = exchange.ended or end
            stripped = witness.stripped if exchange.head.reasoning == "strip" else set()
            breaches = witness.breaches()
            self._metrics.manners(model, engine, stripped, breaches, exchange.calls)
            tokens = exchange.usage.tokens("completion_tokens") if exchange.usage else 0
            if outcome == "ok":
                self._metrics.latency(model, engine, clocks, end, tokens, exchange.overhead)
            facts = {
                "first_token": _since(clocks.start, clocks.first_token),
                "first_content": _since(clocks.start, clocks.first_content),
                "first_sentence": _since(clocks.start, clocks.first_sentence),
                "completion_tokens": tokens,
                "calls": exchange.calls,
                "stripped": sorted(stripped),
                "breaches": sorted(breaches),
            }
        self._log.info(
            "request",
            request_id=reply.request_id,
            model=model,
            engine=engine,
            stream=bool(reply.chat.stream),
            outcome=outcome,
            code=getattr(error, "code", None),
            seconds=_since(reply.start, end),
            ignored_fields=len(reply.ignored),
            **facts,
        )


class ChatReply(Response):
    """The reply to one chat request: an ASGI response that serves itself."""

    def __init__(
        self,
        service: ChatService,
        request: Request,
        chat: ChatRequest,
        body: dict[str, Any],
        ignored: list[str],
        model: Model,
        start: float,
    ) -> None:
        self._service = service
        self.request_id: str = request.state.request_id
        self.trace = trace_headers(request)
        self.chat, self.asked, self.ignored = chat, body, ignored
        self.model, self.start = model, start
        self.engine = NO_ENGINE
        self.exchange: Exchange | None = None
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._service.serve(self, receive, send, scope.get(RAW_SEND, send))

    def bind(self, route: Route) -> Exchange:
        """The exchange with this engine."""
        self.engine = route.engine
        chat, model = self.chat, self.model
        thinking = chat.thinking_or(_configured(model))
        reply_id = f"{random.getrandbits(128):032x}"  # an id, no secret: no system call
        head = ReplyHead(
            f"chatcmpl-{reply_id}", int(time.time()), chat.model, model.reasoning, chat.include_usage
        )
        self.exchange = Exchange(
            head,
            bool(chat.stream),
            stream_policy(chat, route.dialect, thinking, model.thought_guard, reply_id[:12]),
            upstream_body(chat, self.asked, route.dialect, route.served_name, thinking),
            self.own_headers(),
            Clocks(self.start),
            Witness(thinking != 0),
            queued=time.perf_counter() - self.start,
        )
        return self.exchange

    def own_headers(self) -> list[tuple[bytes, bytes]]:
        headers = [
            (b"x-request-id", self.request_id.encode()),
            (b"x-manners-engine", self.engine.encode()),
        ]
        if self.ignored:
            names = ",".join(name for name in self.ignored if name.isascii() and name.isidentifier())
            headers.append((b"x-manners-ignored", names[:512].encode()))
        return headers

    async def fail(self, error: MannersError, send: Send) -> None:
        """Tell the caller: by status while nothing has gone out, else in the stream."""
        if self.exchange is not None and self.exchange.begun:
            await self.exchange.tell(error, send)
            return
        await error_response(error, self.own_headers())(None, None, send)


async def read_body(request: Request, limit: int) -> bytes:
    """The body, counted while it comes: Content-Length is only a promise, if a telling one.

    Raises:
        BodyTooLarge: more than `limit` bytes. ClientGone: the caller left inside the body.
    """
    parts, size = [], 0
    too_large = BodyTooLarge(f"the body is larger than {limit} bytes: send less")
    promised = request.headers.get("content-length", "")
    if promised.isdecimal() and int(promised) > limit:
        raise too_large
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise too_large
            parts.append(part)
    except ClientDisconnect:
        raise ClientGone from None
    return b"".join(parts)


def trace_headers(request: Request) -> dict[str, str]:
    """What goes through to the engine: the request's id and its trace, nothing else."""
    trace = {"x-request-id": request.state.request_id}
    for name in ("traceparent", "tracestate"):
        if name in request.headers:
            trace[name] = request.headers[name]
    return trace


def _configured(model: Model) -> Thinking:
    if model.thinking == "off":
        return 0
    return None if model.thinking == "on" else model.thinking


def _since(start: float, mark: float | None) -> float | None:
    return None if mark is None else round(mark - start, 6)


def _outcome(error: BaseException | None) -> str:
    """The label of manners_requests_total."""
    if error is None:
        return "ok"
    if isinstance(error, ClientGone):
        return "client_cancel"
    if isinstance(error, EngineTimeout):
        return "timeout"
    if isinstance(error, RequestError | Unauthorized):
        return "client_error"
    if isinstance(error, Busy | Draining):
        return "busy"
    return "upstream_error" if isinstance(error, UpstreamError) else "error"


def router(service: ChatService) -> APIRouter:
    """The routes of this file."""
    routes = APIRouter()

    @routes.post("/v1/chat/completions", response_model=None)
    async def chat_completions(request: Request) -> Response:
        return await service.prepare(request)

    return routes
