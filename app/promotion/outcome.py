"""How an effect ends when it does not bring about what it should; the actor makes each an event.

EffectFailed     it could not be done                         -> Failed
EffectRefused    a check said no; CHECK and IDENTIFY only     -> Refused
Breach           live traffic saw the candidate misbehave     -> Breached
"""

from app.promotion.phases import Fault


class _Ending(Exception):
    """Carries why, for programs and for people."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.code}: {fault.message}")
        self.fault = fault


class EffectFailed(_Ending):
    """What was asked could not be brought about; the operation goes back."""


class EffectRefused(_Ending):
    """A check said no; the operation is rejected."""


class Breach(_Ending):
    """Live traffic saw the candidate misbehave, fail or vanish; it is rolled back."""
