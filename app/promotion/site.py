"""What the effects of an operation work on; the same for all of them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.config.config import Config
from app.engines.pool import EnginePool
from app.promotion.archive import Archive
from app.promotion.effects import Effect
from app.promotion.plan import Plan
from app.promotion.room import Room
from app.promotion.shelf import Shelf
from app.telemetry.reply_window import ReplyWindow

Evidence = dict[str, object]
"""Numbers and digests that an effect's outcome rests on, as JSON has them."""


@dataclass(frozen=True, slots=True)
class Site:
    """The parts of one gateway that a promotion touches."""

    config: Config
    pool: EnginePool
    shelf: Shelf
    archive: Archive
    room: Room
    reply_window: ReplyWindow


Deed = Callable[[Site, Plan, Effect], Awaitable[Evidence]]
"""Brings an effect about. Raises EffectFailed; a check EffectRefused, a watch Breach."""
