"""The service of every API surface: from a request's bytes to an exchange.

A bare ASGI application, not a FastAPI route: it stands in front of the framework (`app.wiring`),
whose routing, dependencies and middleware cost 90 us a request and wrap `send` in three layers,
1.5 to 2 us a streamed chunk.
"""

import asyncio
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.engine_request import answer_body, without_parser
from app.api.surface import Asked, HandsOn, OverChat, Surface
from app.api.thinking_budget import ThoughtPlan, thought_plan
from app.config.config import Config, ModelConfig
from app.engines.backend import Judgement
from app.engines.pool import EnginePool, Route
from app.errors.render import error_response
from app.errors.translate import bug_behind, unwritten
from app.errors.tree import BadField, BodyTooLarge, Draining, MannersError, UpstreamError, WrongMethod
from app.proxy.accounting import NO_ENGINE, RequestAccounting, outcome_of
from app.proxy.admission import Turnstile
from app.proxy.deadlines import ClientGone, Lifeline
from app.proxy.exchange import STREAM_HEADERS, Exchange, ReplyBudget
from app.proxy.handing import HandOn
from app.proxy.keepalive import Pulse
from app.proxy.relay import Relayed
from app.proxy.tracing import Ending, Trace, Tracing
from app.stream.audit import ReplyAudit
from app.stream.clocks import Clocks
from app.stream.conduct import held_characters
from app.stream.encode import ReplyHead
from app.stream.pipeline import StreamPolicy
from app.telemetry.log import Logger, where
from app.telemetry.metrics import Metrics
from app.upstream.batching import Round
from deploy.engine.dialects import Thinking

_FIELD_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Chat:
    """Serves completions, on any surface. One per gateway; made by `app.wiring`."""

    def __init__(
        self,
        config: Config,
        pool: EnginePool,
        metrics: Metrics,
        log: Logger,
        tracing: Tracing,
        accounting: RequestAccounting,
    ) -> None:
        self._limits = config.gateway
        self._tracing = tracing
        self._fleet = pool
        self._log = log
        self._books = accounting
        self._turnstiles = {
            name: Turnstile(model.concurrency, model.queue, _gauges(metrics, name))
            for name, model in config.models.items()
        }
        self.draining = False
        self._lines: set[Lifeline] = set()  # of what is served or waits

    def cut_off(self) -> None:
        """End what is still running, and tell each caller why."""
        for line in self._lines:
            line.cut_off()

    @property
    def in_flight(self) -> int:
        """Requests being served or waiting."""
        return sum(t.in_flight + t.waiting for t in self._turnstiles.values())

    def at(self, surface: Surface) -> ASGIApp:
        """The application of one surface."""
        return partial(self._answer, surface)

    async def _answer(self, surface: Surface, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        trace = self._tracing.begin(surface.path, headers, scope["state"]["request_id"])
        try:
            turn = await self._read(surface, scope["method"], headers, receive, trace)
        except ClientGone as gone:
            self._books.refused(trace, gone)
        except Exception as error:
            fault = unwritten(error)
            self._log_bug(trace.request_id, NO_ENGINE, fault)
            self._books.refused(trace, fault)
            own = _own_headers(trace.request_id, NO_ENGINE)
            await error_response(fault, own, surface.path)(scope, receive, send)
        else:
            await self._serve(turn, receive, send)

    async def _read(
        self, surface: Surface, method: str, headers: dict[bytes, bytes], receive: Receive, trace: Trace
    ) -> "Turn":
        """A request that can be served. Raises RequestError, Draining or ClientGone."""
        if method != "POST":
            raise WrongMethod(f"{method[:16]} is not for {surface.path}: POST a request", "POST")
        raw = await _body(headers, receive, self._limits.max_body_bytes)
        start = time.perf_counter()
        if self.draining:
            raise Draining("this gateway is shutting down; send the request to another")
        asked = surface.parse(raw, self._limits.max_messages)
        model = self._fleet.model(asked.chat.model, chats=not isinstance(surface, HandsOn))
        trace.asks(asked.chat.model, bool(asked.chat.stream))
        budget = ReplyBudget(self._limits.max_stream_bytes, self._limits.max_reply_bytes)
        return Turn(surface, asked, model, start, trace, budget)

    async def _serve(self, turn: "Turn", receive: Receive, send: Send) -> None:
        """Hold a place, ask an engine, and book what became of it."""
        timeouts, places = turn.model.timeouts, self._turnstiles[turn.chat.model]
        error: BaseException | None = None
        try:
            line = Lifeline(receive, timeouts, self._lines)
            async with line, places.place(timeouts.first_token):
                with turn.kept_alive(line, self._fleet.round, send):
                    error = await self._ask(turn, line, send)
            self._log_bug(turn.request_id, turn.engine, error)
        except MannersError as fault:
            error = fault
            self._log_bug(turn.request_id, turn.engine, fault)
            await turn.fail(fault, send)
        except (ClientGone, asyncio.CancelledError) as gone:
            error = gone
            if isinstance(gone, asyncio.CancelledError):
                raise
        except Exception as bug:  # the request's edge: told, logged, and no other stream is hurt
            told = error = unwritten(bug)
            self._log_bug(turn.request_id, turn.engine, told)
            await turn.fail(told, send)
        finally:
            self._books.closed(
                turn.trace,
                turn.chat.model,
                turn.ending(error),
                turn.judgement,
                stream=bool(turn.chat.stream),
                ignored_fields=len(turn.ignored),
            )

    def _log_bug(self, request_id: str, engine: str, fault: BaseException | None) -> None:
        """Where the gateway's own code raised, if that is behind the fault."""
        bug = bug_behind(fault)
        if bug is not None:
            event = "unreadable_reply" if isinstance(fault, UpstreamError) else "internal_error"
            self._log.error(event, request_id=request_id, engine=engine, **where(bug))

    async def _ask(self, turn: "Turn", line: Lifeline, send: Send) -> MannersError | None:
        """Ask the live engine, and the fallbacks as long as the caller has seen nothing.

        Returns a fault that was told in the stream. Raises the last engine's fault otherwise.
        """
        route = self._fleet.first(turn.chat.model)
        while True:
            exchange = turn.bind(route)
            try:
                with route.serving(line):
                    await exchange.run(route, line, send, turn.trace.headers)
                if isinstance(exchange.broken, UpstreamError):
                    turn.judgement = route.blame(exchange.broken)
                return exchange.broken
            except UpstreamError as fault:
                judgement = route.blame(fault)
                other = None if exchange.begun else self._fleet.next(turn.chat.model, turn.engines)
                if other is None:
                    turn.judgement = judgement
                    raise
                self._log_bug(turn.request_id, turn.engine, fault)
                self._books.failed_over(turn.chat.model, route.engine, fault, judgement)
                self._log.warning(
                    "failover", request_id=turn.request_id, engine=route.engine, code=fault.code
                )
                route = other


class Turn:
    """One request that can be served, from its body to its engine."""

    def __init__(
        self,
        surface: Surface,
        asked: Asked,
        model: ModelConfig,
        start: float,
        trace: Trace,
        budget: ReplyBudget,
    ) -> None:
        self._budget = budget
        self.chat, self.model = asked.chat, model
        self.request_id, self.trace = trace.request_id, trace
        self._surface, self._asked = surface, asked
        self._start = start
        self.engine = NO_ENGINE
        self.served_name: str | None = None
        self.engines: list[str] = []  # that were asked
        self.exchange: Exchange | None = None
        self.pulse: Pulse | None = None
        self.ignored: list[str] = []  # of the request's fields, by the engine's dialect
        self.judgement: Judgement | None = None  # of the last engine, if it failed

    @contextmanager
    def kept_alive(self, line: Lifeline, round_: Round, send: Send) -> Iterator[None]:
        """Signs of life go out while the block runs, if they are wanted."""
        if self.model.keepalive and self.chat.stream:
            comment = self._surface.keepalive
            self.pulse = Pulse(self.model.keepalive, comment, self._start, line, round_, send)
        try:
            yield
        finally:
            if self.pulse is not None:
                self.pulse.close()

    def bind(self, route: Route) -> Exchange:
        """The exchange with this engine."""
        self.engine, self.served_name = route.engine, route.served_name
        self.engines.append(route.engine)
        surface, asked = self._surface, self._asked
        if asked.chat.is_begun and route.abilities.continues is False:
            raise BadField(
                "this engine cannot go on with an answer: leave the last assistant turn out", param="messages"
            )
        if not route.abilities.parses_tools:
            asked = replace(asked, body=without_parser(asked.chat, asked.body))
        self.ignored = surface.ignored(asked, route.dialect)
        chat, model = self.chat, self.model
        thinking = chat.thinking_or(_configured(model))
        plan = ThoughtPlan(thinking)
        if isinstance(surface, OverChat):
            plan = thought_plan(thinking, chat.thinking_ms_or(model.thinking_ms), route.abilities)
        reply_id = f"{random.getrandbits(128):032x}"  # an id, no secret: no system call
        head = ReplyHead(
            surface.id_prefix + reply_id, int(time.time()), chat.model, model.reasoning, chat.include_usage
        )
        self.exchange = (HandOn if isinstance(surface, HandsOn) else Relayed)(
            surface,
            asked,
            head,
            bool(chat.stream),
            self._policy(asked, route, plan, reply_id[:12]),
            surface.engine_body(asked, route.dialect, route.served_name, plan.told, plan.metered),
            _own_headers(self.request_id, self.engine, self.ignored),
            Clocks(self._start),
            ReplyAudit(thinking != 0),
            queued=time.perf_counter() - self._start,
            limit=plan.limit,
            answer_body=lambda meter: answer_body(
                chat, asked.body, route.dialect, route.served_name, meter, route.abilities
            ),
            budget=self._budget,
            pulse=self.pulse,
        )
        if self.pulse is not None:
            self.pulse.follow(self.exchange.clocks, STREAM_HEADERS + self.exchange.headers)
        return self.exchange

    def _policy(self, asked: Asked, route: Route, plan: ThoughtPlan, id_prefix: str) -> StreamPolicy:
        """What the stream core may assume of this engine's reply."""
        thinking, model = self.chat.thinking_or(_configured(self.model)), self.model
        guard = held_characters(model.thought_guard, route.conduct)
        policy = self._surface.policy(asked, route.dialect, thinking, guard, id_prefix)
        think = msgspec.structs.replace(policy.think, families=model.think_tags)
        return msgspec.structs.replace(policy, think=think, closer=plan.closer, room=route.abilities.context)

    def ending(self, error: BaseException | None) -> Ending:
        """What became of it."""
        failovers = max(len(self.engines) - 1, 0)
        return Ending(outcome_of(error), error, self.engine, self.served_name, failovers, self.exchange)

    async def fail(self, error: MannersError, send: Send) -> None:
        """Tell the caller: by status while nothing has gone out, else in the stream."""
        if self.exchange is not None and self.exchange.is_open:
            await self.exchange.tell(error, send)
            return
        headers = _own_headers(self.request_id, self.engine, self.ignored)
        await error_response(error, headers, self._surface.path)({"type": "http"}, None, send)


def _own_headers(request_id: str, engine: str, ignored: list[str] | None = None) -> list[tuple[bytes, bytes]]:
    """What every reply carries."""
    headers = [(b"x-request-id", request_id.encode()), (b"x-manners-engine", engine.encode())]
    if ignored:
        names = ",".join(name for name in ignored if _FIELD_NAME.fullmatch(name))
        headers.append((b"x-manners-ignored", names[:512].encode()))
    return headers


async def _body(headers: dict[bytes, bytes], receive: Receive, limit: int) -> bytes:
    """The body, counted while it comes: Content-Length is only a promise, if a telling one.

    Raises:
        BodyTooLarge: more than `limit` bytes. ClientGone: the caller left inside the body.
    """
    promised = headers.get(b"content-length", b"")
    size = int(promised) if promised.isdigit() else 0
    body, more = bytearray(), size <= limit  # no list: a body may come byte by byte
    size = size if size > limit else 0
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        body += part
        more = message.get("more_body", False) and size <= limit
    if size > limit:
        raise BodyTooLarge(f"the body is larger than {limit} bytes: send less")
    return bytes(body)


def _configured(model: ModelConfig) -> Thinking:
    if model.thinking == "off":
        return 0
    return None if model.thinking == "on" else model.thinking


def _gauges(metrics: Metrics, model: str) -> Callable[[int, int], None]:
    in_flight, depth = metrics.in_flight.labels(model), metrics.queue_depth.labels(model)

    def changed(serving: int, waiting: int) -> None:
        in_flight.set(serving)
        depth.set(waiting)

    return changed
