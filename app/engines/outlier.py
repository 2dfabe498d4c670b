"""Outlier detection, after Envoy's: an engine that fails callers while its probes pass is ejected for a while. Pure.

FAILURES in a row eject it, and after an ejection the next one, until a request succeeds. An ejection lasts
BASE_SECONDS times the number of ejections, which falls by one for each BASE_SECONDS in service. One caller's
failures do not eject an engine that has just served another caller. The pool asks ejected engines last, and ignores
ejections that would take out more than half of a model's engines (`EnginePool.next`). Times are monotonic seconds.
"""

from dataclasses import dataclass, field

FAILURES = 3
BASE_SECONDS = 30.0
LONGEST_SECONDS = 300.0
RECENT_SECONDS = 60.0  # a caller who was served this long ago shows that the engine works for others


@dataclass(slots=True)
class OutlierDetector:
    """Of one engine; for requests that decide no words of their reply."""

    until: float = 0.0  # when its ejection ends
    _failures: int = 0  # in a row
    _ejections: int = 0
    _failed: set[str] = field(default_factory=set)  # callers of these failures
    _served: dict[str, float] = field(default_factory=dict)  # by caller: when it last got a whole reply

    def ended(self, caller: str, whole: bool, now: float) -> bool:
        """A caller got a whole reply, or the engine failed what it should have served. Returns whether that ejects it."""
        if whole:
            self._failures, self._served[caller] = 0, now
            self._failed.clear()
        if whole or now < self.until:  # a request from before the ejection says nothing new
            return False
        self._failures += 1
        self._failed.add(caller)
        others = (at for name, at in self._served.items() if name not in self._failed)
        serves = len(self._failed) == 1 and max(others, default=float("-inf")) > now - RECENT_SECONDS
        if self._failures < FAILURES or serves:
            return False
        self._ejections -= min(self._ejections, int(max(now - self.until, 0.0) // BASE_SECONDS))
        self._ejections += 1
        self.until = now + min(self._ejections * BASE_SECONDS, LONGEST_SECONDS)
        self._failures = FAILURES - 1
        self._failed.clear()
        self._served.clear()
        return True
