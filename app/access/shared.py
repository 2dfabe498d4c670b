"""Callers' limits and budgets, counted once for several gateways: `[gateway] limits`, extra `redis`.

Each step of a request is one run of `shared.lua` on Redis, whose clock all gateways share. Redis learns the names of keys,
their limits and what was used. A gateway waits TIMEOUT at most; once Redis has not answered, no request waits until it
does. Meanwhile each gateway divides the limits, and the use of them, by the number of gateways seen last. Its next message
tells Redis what it has used.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from math import ceil
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from app.access.accounts import Account, Admission, estimate, unix_now
from app.registry.values import UNLIMITED, KeyLimits, Meter
from deploy.core.tasks import supervise

TIMEOUT: Final = 0.05  # seconds for an answer, where the address has no `?socket_timeout=`
HEARTBEAT: Final = 1.0
LIFE: Final = 5.0  # seconds after its last message in which a gateway counts as one


class Counted(NamedTuple):
    """The reply of the script. `told`: this gateway's use as Redis knows it; `refused`: the limit that refuses the step."""

    gateways: int
    refused: str | None = None
    wait: float | None = None
    epoch: str = ""
    told: list[int] = []
    meter: Meter = Meter()


class SharedLimits:
    """This gateway among those that count together. `tell` is called with whether Redis answers, when that changes."""

    def __init__(self, url: str, tell: Callable[[bool], None]) -> None:
        self._redis = Redis.from_url(url, socket_timeout=TIMEOUT, retry=Retry(NoBackoff(), 0))
        self._timeout = self._redis.connection_pool.connection_kwargs["socket_timeout"]
        self._script = self._redis.register_script(Path(__file__).with_name("shared.lua").read_text("utf-8"))
        self._tell, self._id, self._wake = tell, token_hex(8), asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._untold: set[SharedAccount] = set()
        self.gateways, self.answers = 1, True

    def account(self, account: Account) -> "SharedAccount":
        """The part of an account that is counted together."""
        return SharedAccount(account, self)

    async def start(self) -> None:
        """Say that this gateway is here, and keep saying it."""
        await self.call()
        self._keeper = supervise(self._keep, "limits")

    async def stop(self) -> None:
        """Tell what is untold. Idempotent."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
            await self._tell_all()
            await self._redis.aclose()

    def changed(self, account: "SharedAccount") -> None:
        """Something about this account is to be told."""
        self._untold.add(account)
        if self.answers:
            self._wake.set()

    async def call(self, key: str = "", **facts: Any) -> Counted | None:
        """Run the script; without a key a sign of life. None: no answer in time."""
        keys = ["{manners}:gateways", *([f"{{manners}}:key:{key}"] if key else ())]  # one slot of a cluster
        said, reply = msgspec.msgpack.encode({"gateway": self._id, "life": LIFE, **facts}), None
        with suppress(RedisError, OSError, TimeoutError, msgspec.DecodeError):
            async with asyncio.timeout(self._timeout):
                raw = await self._script(keys=keys, args=[said])
            reply = msgspec.msgpack.decode(raw, type=Counted)
            self.gateways = reply.gateways
        if self.answers != (reply is not None):
            self.answers = not self.answers
            self._tell(self.answers)
        return reply

    async def _keep(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT):
                    await self._wake.wait()
            self._wake.clear()
            if not self._untold or not self.answers:
                await self.call()
            await self._tell_all()

    async def _tell_all(self) -> None:
        for account in tuple(self._untold) if self.answers else ():
            self._untold.discard(account)
            await account.ask()


class SharedAccount:
    """An account among several gateways. Its meter holds what all had used at the last answer, and what this one has since.

    `_used`: requests and tokens of minutes, and tokens in all, since this gateway began; `_told`: those that Redis knows of.
    """

    def __init__(self, account: Account, limits: SharedLimits) -> None:
        self._account, self._limits, self._lock = account, limits, asyncio.Lock()
        self._used, self._told = [0, 0, 0], [0, 0, 0]
        self._share: Account | None = None
        self._epoch = ""  # of what Redis holds: another one if it has lost that

    async def begin(self) -> Admission:
        """As `Account.begin`. Raises KeyLimited."""
        wants = [int(self._account.limits.rpm is not None), 0, 1, 0]
        if not await self.ask(wants):
            self._its_share().begin(unix_now())
            self._take(wants)
        return Admission(self._account)

    async def reserve(self, admission: Admission, body_bytes: int, reply: int) -> None:
        """As `Admission.reserve`. Raises KeyLimited."""
        tpm, most = self._account.limits.tpm, body_bytes + reply
        minute = 0 if tpm is None else min(estimate(body_bytes, reply), tpm)
        if not await self.ask([0, minute, 0, most]):
            share = Admission(self._its_share())
            share.reserve(body_bytes, reply, unix_now())
            minute = share.minute
            self._take([0, minute, 0, most])
        admission.minute += minute
        admission.reserved += most

    def settle(self, held: int, used: int, now: float) -> None:
        """A request is over."""
        self._used[1] += 0 if self._account.limits.tpm is None else used - held
        self._used[2] += used
        if self._share is not None:
            self._share.settle(held, used, now)
        self._limits.changed(self)

    async def ask(self, wants: list[int] | None = None) -> bool:
        """Tell what was used, and take what a step wants, if all of it is left; whether Redis answers. Raises KeyLimited."""
        account, reply = self._account, None
        if wants and account.limits == UNLIMITED:
            self._take(wants)
            return True
        async with self._lock:  # the next message builds on the answer
            used, meter = [*self._used], account.meter_at(unix_now())
            known = {"told": self._told, "epoch": self._epoch, "meter": meter}
            state = {"used": used, "open": account.in_flight, "reserved": account.reserved}
            try:
                if self._limits.answers:
                    key, limits = f"{account.name}:{account.created}", asdict(account.limits)
                    reply = await self._limits.call(key, wants=wants, limits=limits, **known, **state)
            finally:
                if reply is None:
                    self._limits.changed(self)
            if reply is None:
                return False
            self._told, self._epoch, self._share = reply.told, reply.epoch, None
            if wants and reply.refused is None:
                self._take(wants)
            meter, since, at = reply.meter, self._used[2] - used[2], unix_now()
            account.meter = meter._replace(at=at, today=meter.today + since, total=meter.total + since)
        if reply.refused is not None:
            raise account.refusal(reply.refused, reply.wait)
        return True

    def _take(self, wants: list[int]) -> None:
        self._used[0] += wants[0]
        self._used[1] += wants[1]
        self._account.in_flight += wants[2]
        self._account.reserved += wants[3]

    def _its_share(self) -> Account:
        """This gateway's share of the account, which counts while Redis does not answer."""
        account, gateways = self._account, self._limits.gateways
        if (share := self._share) is None:
            requests, tokens, *_, today, total = account.meter
            totals = {"today": ceil(today / gateways), "total": ceil(total / gateways)}
            meter = account.meter._replace(requests=requests / gateways, tokens=tokens / gateways, **totals)
            share = self._share = Account(account.name, meter=meter)
        of_key = asdict(account.limits).items()
        share.limits = KeyLimits(**{name: limit and max(limit // gateways, 1) for name, limit in of_key})
        share.in_flight, share.reserved = account.in_flight, account.reserved
        return share
