"""`manners quantize` and `manners data`: the model builder's commands, which are implemented in `quantizer`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quantizer.data.traffic import Traffic
    from quantizer.plan.machine import HostMemory


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the commands and their flags. This is the only place where `app` imports `quantizer`, and it does so lazily."""
    from quantizer.cli import main

    main.add(commands, read_host, read_traffic)


def read_host() -> "HostMemory | None":
    """The host's memory as the engines' memory guard sees it; None if it is unknown."""
    from deploy.memory.guard import Guard
    from quantizer.plan.machine import HostMemory

    memory = Guard(own_memory=True).memory()
    return None if memory is None else HostMemory(memory.total, memory.available, memory.floor)


def read_traffic(config: Path | None, model: str | None, days: int | None) -> "Traffic":
    """The recorded chats that callers have agreed to, for `manners data from-shadow`.

    Raises RecipeError: the configuration is wrong, or states no consent.
    """
    from collections import Counter
    from datetime import UTC, datetime, timedelta

    from app.config.config import ConfigError, load
    from app.shadow.store import Store
    from app.shadow.training import as_row, reason_against
    from app.telemetry.redact import compiled
    from quantizer.core.errors import RecipeError
    from quantizer.data.traffic import Traffic

    try:
        settings = load(config)
    except ConfigError as error:
        raise RecipeError(str(error)) from None
    consent = settings.shadow.training_consent.strip()
    if not consent:
        raise RecipeError(
            "no consent is stated: set replies = true and training_consent in [shadow], to where your callers agreed that a "
            "model may be trained on their chats; what was recorded before stays unused"
        )
    own = tuple(map(compiled, settings.shadow.redact))
    store = Store(settings.state_dir)
    since = datetime.now(UTC) - timedelta(days=days or settings.shadow.keep_days)
    records = [record for record in store.records(since) if model in (None, record.model)]
    reasons = [reason_against(record, consent, own) for record in records]
    usable = [record for record, reason in zip(records, reasons, strict=True) if not reason]
    facts = {
        "since": since.isoformat(timespec="seconds"),
        "models": dict(Counter(record.model for record in usable)),
        "engines": dict(Counter(record.engine for record in usable)),
    }
    dropped = Counter(reason for reason in reasons if reason)
    return Traffic([as_row(record) for record in usable], consent, len(records), dropped, facts)
