"""`RequestContext`: one request, from its headers to its log line.

Three stages. Received: it has an id and a place in a trace. Accepted: its body was checked, and names a model. Tried: an
engine was asked, and the facts of its reply are kept here; each further engine (a failover) starts them anew. Accounting,
spans and the shadow recorder read it when the request is over. All times are `time.perf_counter` seconds.
"""

import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from typing import Any, Final

from msgspec.structs import replace

from app.access.accounts import ANONYMOUS, MOST, Account, Admission, estimate, unix_now
from app.api.embeddings import Embeddings
from app.api.engine_request import AskedEngine, is_forced, thinking_for
from app.api.surface import Counts, ParsedRequest, Surface, joined_usage
from app.api.thinking_budget import ThoughtLimit, ThoughtPlan, Why, thought_plan
from app.api.tool_choice import NOT_KEPT, ToolChoiceEnforcer, enforcer_for, other_means
from app.config.config import GatewayConfig, ModelConfig
from app.engines.backend import FaultAttribution, Route
from app.engines.heard import for_model
from app.errors.tree import BadField, ContextExceeded, MannersError, UpstreamError
from app.proxy.deadlines import ClientGone, Deadlines
from app.registry.values import UNLIMITED
from app.stream.audit import ReplyAudit
from app.stream.encode import ReplyHead
from app.stream.pipeline import StreamPolicy
from app.stream.thinking_control import held_characters
from app.telemetry.clocks import Clocks
from deploy.engine.dialects import DIALECTS
from gates.reply.events import Usage

NO_ENGINE = "none"  # the engine label of requests that reached no engine

Headers = list[tuple[bytes, bytes]]

MEDIUM_BYTES = 4096
"""Until the engine has counted, an image or a sound counts as so much text (about 1,000 tokens) against its key."""

ID_SEPARATOR = "~"
"""Between a caller's request id and what is added for an engine. No caller's id contains it."""

_FIELD_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


GATEWAY_FAILURES: Final = frozenset({
    "first_token_timeout", "idle_timeout", "connect_failed", "connect_timeout", "upstream_disconnected", "upstream_truncated",
})  # fmt: skip
"""Codes of failures that eject an engine, as Envoy's gateway failures do; an error that the engine states is none."""


class RequestContext:
    """Made when a request's head has been read; `accept` and `try_engine` take it further."""

    deadlines: Deadlines
    # Set by `accept`, and not read before it.
    parsed: ParsedRequest
    model: ModelConfig
    start: float  # when the request's last byte had come
    limits: GatewayConfig  # of the size of a reply: a larger one is `upstream_too_large`
    # Set by `try_engine`: of the engine that was asked last.
    route: Route
    head: ReplyHead
    limit: ThoughtLimit | None
    asked: AskedEngine
    body: bytes  # what the engine was sent
    clocks: Clocks
    audit: ReplyAudit
    queued: float  # seconds spent waiting for a place
    calls: list[str]  # where each tool call came from: engine, rescued, invalid
    usage: Usage | None
    overhead: float  # seconds of the gateway's own work until the first content
    cut: Why | None  # why the thought was ended, or should have been
    broken: MannersError | None  # told to the caller after the first byte
    filtered: MannersError | None  # the caller got `when_nothing_is_left` in its place
    ended: float | None  # when the reply's last byte went out
    # Set by `expect_reply`, while the engine works.
    policy: StreamPolicy  # what the stream core may assume of the reply
    span: Any = None  # of `app.proxy.otel`
    admission: Admission | None = None  # None until the key's limits let it in
    body_bytes = 0  # of the request
    is_metered = False  # its key has limits
    made = 0  # tokens, at least, that engines have generated without a count of their own
    choice = 0  # which of the request's choices this is about, where there are several
    public_name: str | None = None  # of the model; None until the request is accepted
    stream = False  # whether the caller streams
    engine = NO_ENGINE  # that was asked last
    ignored: Sequence[str] = ()  # of the request's fields, by the engine's dialect
    was_tried = False  # there are facts of a reply
    begun = False  # the caller has the status line, so no other engine may answer
    error: BaseException | None = None  # what ended it, if not the end of a whole reply
    attribution: FaultAttribution | None = None  # whether that was the engine's fault

    def __init__(
        self,
        surface: Surface,
        headers: Mapping[bytes, bytes],
        request_id: str,
        account: Account | None = None,
    ) -> None:
        self.surface = surface
        self.account = account or Account(ANONYMOUS)  # of the caller's key
        self.received = time.perf_counter()
        self.request_id = self.engine_id = request_id
        self.engine_headers = {"x-request-id": request_id}  # all that an engine gets of the caller's headers
        for name in (b"traceparent", b"tracestate"):
            if name in headers:
                self.engine_headers[name.decode()] = headers[name].decode("latin-1")
        self.engines: list[str] = []  # that were asked, in order
        self.failed: list[Route] = []  # as callers of `OutlierDetector` are to tell it
        self._asked_again: set[str] = set()  # codes of faults after which the same engine was asked again

    def accept(self, parsed: ParsedRequest, model: ModelConfig, start: float, limits: GatewayConfig) -> None:
        """Take the checked body and its model, and the model's `max_tokens` where the request names none.

        A thought's budget comes on top. A thought without one is bounded by the engine's context only.
        """
        self.model, self.start, self.limits = model, start, limits
        self.parsed = self._given = parsed
        body, chat = parsed.body, parsed.chat
        self.public_name = chat.model
        if isinstance(self.surface, Embeddings):
            return
        self.stream = bool(chat.stream)
        thinking = chat.thinking_or(model.default_thinking) if self.surface.is_chat else 0
        if (
            body.get("max_tokens") is None
            and body.get("max_completion_tokens") is None
            and thinking is not None
        ):
            most = {"max_tokens": model.max_tokens + thinking}
            self.parsed = replace(parsed, chat=chat.model_copy(update=most), body={**body, **most})

    @property
    def is_forced(self) -> bool:
        """Whether the request dictates words of the reply, which is then no evidence about its engine."""
        return is_forced(self.parsed.chat, self.parsed.body)

    def asks_smaller(self, fault: ContextExceeded) -> bool:
        """Whether the same engine may have room on a second try: without our `max_tokens`, or once its shared context is freed."""
        is_ours = self.parsed is not self._given
        self.parsed = self._given if is_ours and not fault.shared else self.parsed
        return (is_ours or fault.shared) and self.asks_again(fault)

    def asks_again(self, fault: MannersError) -> bool:
        """Whether the same engine is to be asked once more after this fault."""
        is_first = fault.code not in self._asked_again
        self._asked_again.add(fault.code)
        return is_first and not self.begun

    def record_failure(self, fault: UpstreamError) -> None:
        """Tell the breaker of the engine that was asked last of its fault."""
        if fault.code in GATEWAY_FAILURES:
            self.failed.append(self.route)
        self.attribution = self.route.backend.record_failure(fault)

    def reserve(self, body_bytes: int, room: Callable[[str], int]) -> Awaitable[None] | None:
        """Reserve tokens of its key, the whole context for a reply without `max_tokens`; `room` is the context of a model.

        Raises KeyLimited, at once or awaited.
        """
        chat = self.parsed.chat
        if chat.media:
            number, size = chat.media_bytes
            body_bytes += number * MEDIUM_BYTES - size
        self.body_bytes = body_bytes
        if self.admission is not None and self.account.limits is not UNLIMITED:
            self.is_metered, context = True, room(chat.model)
            reply = 0 if isinstance(self.surface, Embeddings) else min(chat.most or context, context)
            if (shared := self.account.shared) is not None:
                reserved: Awaitable[None] = shared.reserve(
                    self.admission, body_bytes, reply * self.parsed.count
                )
                return reserved
            self.admission.reserve(body_bytes, reply * self.parsed.count, unix_now())
        return None

    def delivered(self, made: int) -> None:
        """The reply's last byte has gone out, after so many tokens; free the key's slots before the caller's next request."""
        self.ended = time.perf_counter()
        self.leave(made)

    def leave(self, made: int = 0) -> None:
        """Free its key's slots and count its tokens, by the engine's count. Idempotent.

        Without that count, because the caller left, it counts the prompt and at least `made` tokens. A failed reply costs
        nothing.
        """
        admission, self.admission = self.admission, None
        if admission is None:
            return
        used, made = 0, self.made + made
        is_fault = self.error is not None and not isinstance(self.error, ClientGone)
        if self.was_tried and self.usage is not None:
            used = self.usage.tokens("prompt_tokens") + self.usage.tokens("completion_tokens")
        elif self.was_tried and (made or not is_fault):
            used = min(estimate(self.body_bytes, made), admission.reserved if self.is_metered else MOST)
        admission.end(used, unix_now())

    @property
    def failovers(self) -> int:
        """Engines that failed it and were followed by another."""
        return max(len(self.engines) - 1, 0)

    def try_engine(self, route: Route) -> None:
        """Ask this engine next; the facts of a reply start anew. Raises BadField: the engine cannot do what is asked."""
        self.route = route
        if route.engine != self.engine:
            self.engine = route.engine
            self.engines.append(route.engine)
        surface, parsed, model = self.surface, self.parsed, self.model
        chat = parsed.chat
        if route.abilities.continues is False and chat.is_begun:
            raise BadField(
                "this engine cannot go on with an answer: leave the last assistant turn out", param="messages"
            )
        if parsed.logprobs and chat.tools and not DIALECTS[route.dialect].logprobs_beside_tools:
            raise BadField(
                "this engine sends no logprobs beside tools: leave one of them out",
                "unsupported_by_engine",
                param="logprobs",
            )
        self.ignored = surface.ignored(parsed, route.dialect)
        abilities = route.abilities
        if NOT_KEPT in self._asked_again:
            abilities = other_means(abilities)
        thinking = thinking_for(chat, model.default_thinking, route.dialect, abilities)
        if surface.is_chat:
            plan = thought_plan(thinking, abilities)
        else:
            plan = ThoughtPlan(thinking)
        reply_id = f"{random.getrandbits(128):032x}"  # an id, no secret: no system call
        self.head = ReplyHead(
            surface.id_prefix + reply_id,
            int(time.time()),
            chat.model,
            model.reasoning,
            chat.include_usage,
            parsed.echo,
        )
        guard = held_characters(model.thought_guard, route.control)
        self.asked = AskedEngine(
            route.dialect, route.served_name, abilities, plan.sent, plan.metered, guard, self.is_metered
        )
        self.limit, self._closer, self._id_prefix = plan.limit, plan.closer, reply_id[:12]
        self.body = surface.engine_body(parsed, self.asked)
        self.clocks, self.audit = Clocks(self.start), ReplyAudit(thinking != 0)
        self.calls, self.usage, self.cut = [], None, None
        self.broken = self.filtered = self.ended = self.attribution = None
        self.queued, self.overhead = time.perf_counter() - self.start, 0.0
        self.was_tried = True

    def expect_reply(self) -> ToolChoiceEnforcer | None:
        """Make the policy by which the reply is read, and the enforcer of `tool_choice`.

        Called while the engine works, so that it costs no time to first token.
        """
        surface, asked, model, prefix = self.surface, self.asked, self.model, self._id_prefix
        policy = surface.policy(self.parsed, asked, prefix)
        plain = not self.parsed.logprobs
        self.policy = for_model(policy, model, asked.abilities, closer=self._closer, plain=plain)
        return enforcer_for(self.parsed.chat.choice, asked.dialect, asked.abilities, f"call_{prefix}")

    def branch(self, index: int) -> "RequestContext":
        """The request for one of its choices at the same engine, with facts of its own; account and trace are shared."""
        one = copy(self)
        one.choice, one.parsed, one.admission = index, self.parsed.choice(index), None
        if index:  # engines track open requests by id
            engine_id = f"{self.engine_id}{ID_SEPARATOR}{index}"
            one.engine_headers = {**self.engine_headers, "x-request-id": engine_id}
        one._id_prefix = f"{self._id_prefix}{index}"
        one.body = self.surface.engine_body(one.parsed, self.asked)
        start = time.perf_counter() - self.queued  # its thought's time begins now
        one.clocks, one.audit = Clocks(start), ReplyAudit(self.asked.thinking != 0)
        one.calls, one.made = [], 0
        one.queued = time.perf_counter() - self.start
        return one

    def gather(self, tried: Sequence["RequestContext"]) -> None:
        """Take the facts of all its choices as those of one reply; its clocks are those of the first choice."""
        first, usages = tried[0], [one.usage for one in tried]
        self.clocks, self.queued, self.overhead = first.clocks, first.queued, first.overhead
        self.audit = ReplyAudit(False, [one.audit for one in tried])
        self.calls = [source for one in tried for source in one.calls]
        self.made += sum(one.made if one.usage is None else Counts.of(one.usage).made for one in tried)
        self.cut = next((one.cut for one in tried if one.cut), None)
        self.broken = next((one.broken for one in tried if one.broken), None)
        self.filtered = next((one.filtered for one in tried if one.filtered), None)
        per_prompt = self.parsed.count // max(len(self.parsed.prompts), 1)
        self.usage = joined_usage(usages, per_prompt) if len(usages) == self.parsed.count else None

    def headers(self) -> Headers:
        """The headers of every reply."""
        headers = [(b"x-request-id", self.request_id.encode()), (b"x-manners-engine", self.engine.encode())]
        if self.ignored:
            names = ",".join(name for name in self.ignored if _FIELD_NAME.fullmatch(name))
            headers.append((b"x-manners-ignored", names[:512].encode()))
        return headers
