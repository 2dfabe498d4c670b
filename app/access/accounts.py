"""In-memory accounting per caller's key: open requests, reserved tokens and usage. Times are passed in.

begin (the head has arrived) -> reserve (the body was read) -> end (the request is over, with any outcome)

The arithmetic is that of `app.access.limits`; each step is made without a pause between its check and its change.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from app.access import limits as rules
from app.access.limits import Excess, Reservation
from app.errors.tree import KeyLimited
from app.registry.values import UNLIMITED, KeyLimits, Meter

Headers = list[tuple[bytes, bytes]]

ANONYMOUS = "anonymous"
"""The name of all callers if no keys are configured."""

_MESSAGES = {
    "rpm": "the key {name!r} may send {limit} requests a minute",
    "tpm": "the key {name!r} may use {limit} tokens a minute",
    "concurrency": "the key {name!r} may have {limit} requests open at once",
    "daily_budget": "the key {name!r} has used up its {limit} tokens of this day (UTC)",
    "budget": "the key {name!r} has used up its {limit} tokens; ask an operator for a larger budget",
}


class Account:
    """The account of one key. `created` tells it from an earlier key of the same name; "" for a key of the configuration."""

    def __init__(
        self, name: str, limits: KeyLimits = UNLIMITED, meter: Meter | None = None, created: str = ""
    ) -> None:
        self.name = name
        self.limits = limits
        self.created = created
        self.meter = meter or Meter()
        self.in_flight = 0
        self.reserved = 0
        self.changed = False  # changed since it was last written

    def begin(self, now: float) -> "Admission":
        """Open a request, to be ended once. Raises KeyLimited."""
        self.meter, excess = rules.begin(self.limits, self.meter, self.in_flight, self.reserved, now)
        if excess is not None:
            raise self.refusal(excess)
        self.in_flight += 1
        self.changed = True
        return Admission(self)

    def headers(self, now: float) -> Headers:
        """The rate-limit headers of a reply."""
        return rules.headers(self.limits, self.meter, now)

    def refusal(self, excess: Excess) -> KeyLimited:
        """The error for a limit that is exceeded."""
        limit = getattr(self.limits, excess.limit)
        seconds = None if excess.seconds is None else max(ceil(excess.seconds), 1)
        wait = "" if seconds is None else f": try again in {seconds} s"
        text = _MESSAGES[excess.limit].format(name=self.name, limit=limit)
        return KeyLimited(text + wait, f"key_{excess.limit}_exceeded", seconds=seconds)


class Admission:
    """An open request of an account."""

    __slots__ = ("_account", "_ended", "reserved")

    def __init__(self, account: Account) -> None:
        self._account = account
        self.reserved = Reservation()
        self._ended = False

    def reserve(self, body_bytes: int, reply: int, now: float) -> None:
        """Reserve the tokens that the request, or one more reply to it, may use. Raises KeyLimited."""
        account, before = self._account, self.reserved
        more = rules.reservation(account.limits, body_bytes, reply)
        account.meter, excess = rules.reserve(account.limits, account.meter, account.reserved, more, now)
        if excess is not None:
            raise account.refusal(excess)
        account.reserved += more.most
        self.reserved = Reservation(before.most + more.most, before.minute + more.minute)

    def end(self, used: int, now: float) -> None:
        """Close the request: free its slot, and settle what it has used instead of what it reserved. Idempotent."""
        if self._ended:
            return
        self._ended, account = True, self._account
        account.in_flight -= 1
        account.reserved -= self.reserved.most
        account.meter = rules.settle(account.limits, account.meter, self.reserved, used, now)
        account.changed = True


@dataclass(frozen=True, slots=True)
class KeyTerms:
    """A key's limits and its time of creation ("" for a key of the configuration)."""

    limits: KeyLimits = UNLIMITED
    created: str = ""


class Accounts:
    """The accounts of all keys, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Account] = {}
        self._anonymous = Account(ANONYMOUS)

    def of(self, name: str | None) -> Account:
        """The account of a key; an unlimited one if no keys are configured."""
        return self._known.get(name or "", self._anonymous)

    def take(self, terms: Mapping[str, KeyTerms], stored: Mapping[str, Meter]) -> None:
        """Replace the keys. Known keys keep their open requests and usage; new ones start with the stored usage."""
        known: dict[str, Account] = {}
        for name, term in terms.items():
            account = self._known.get(name)
            if account is None or account.created != term.created:
                account = Account(name, meter=stored.get(name), created=term.created)
            account.limits = UNLIMITED if term.limits == UNLIMITED else term.limits
            known[name] = account
        self._known = known

    def changed(self) -> dict[str, Meter]:
        """The meters of stored keys that have changed since the last call."""
        found = {name: it.meter for name, it in self._known.items() if it.changed and it.created}
        for name in found:
            self._known[name].changed = False
        return found

    def mark_changed(self, names: Mapping[str, Meter]) -> None:
        """Mark meters that could not be written as changed again."""
        for name in names:
            if name in self._known:
                self._known[name].changed = True

    def meters(self) -> dict[str, tuple[Meter, int]]:
        """The usage and the number of open requests of each key."""
        return {name: (it.meter, it.in_flight) for name, it in self._known.items()}
