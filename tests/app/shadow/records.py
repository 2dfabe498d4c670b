"""Records for tests."""

from datetime import UTC, datetime
from typing import Any

from app.shadow.record import ShadowRecord

AT = datetime(2026, 11, 21, 9, tzinfo=UTC)


def record(words: str = "Hello!", **changes: Any) -> ShadowRecord:
    """A chat that ended at AT with one message."""
    fields = {"id": words, "at": AT, "model": "annie", "engine": "annie-nano", "thinking": False}
    return ShadowRecord(
        **{**fields, "request": {"messages": [{"role": "user", "content": words}]}, **changes}
    )
