"""JSON objects on disk, as model folders hold them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gates.contracts import strict_json
from quantizer.core.errors import SourceError

MAX_BYTES: Final = 64 * 2**20
"""Larger than any index or configuration of a real model."""


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises SourceError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
        document = strict_json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise SourceError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(document, dict):
        raise SourceError(f"{path}: must be a JSON object")
    return document


def write_object(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object with an indent of two. Raises OSError."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
