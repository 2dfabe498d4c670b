"""`[shadow]`: what is recorded of callers' requests, if anything."""

from typing import Any

import re2
from pydantic import Field, model_validator

from app.config.sections import Table
from app.telemetry.redact import compiled


class Shadow(Table):
    """Off unless `record` is set.

    `share` of the chat requests that went well are kept, chosen at random; for `keep_days` days, and
    never more than `max_mb` megabytes of them. `redact` are patterns of the operator's own (RE2's
    syntax), besides those of `app.telemetry.redact`.
    """

    record: bool = False
    share: float = Field(default=0.05, gt=0, le=1)
    keep_days: int = Field(default=7, ge=1, le=365)
    max_mb: int = Field(default=200, ge=1, le=1 << 20)
    redact: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _tuples(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("redact"), list):
            return {**data, "redact": tuple(data["redact"])}
        return data

    @model_validator(mode="after")
    def _patterns(self) -> "Shadow":
        for pattern in self.redact:
            try:
                found = compiled(pattern).search("")
            except (re2.error, UnicodeEncodeError) as error:
                why = f"{_words(error)}; RE2 has no lookaround and no back references"
                raise ValueError(f"shadow.redact: {pattern!r} is no pattern of RE2: {why}") from None
            if found:
                raise ValueError(f"shadow.redact: {pattern!r} fits an empty text, and so every text")
        return self


def _words(error: Exception) -> str:
    """RE2's message; its binding hands it over as bytes."""
    told = error.args[0] if error.args else error
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else str(error)
