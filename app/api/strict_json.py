"""Decodes untrusted JSON with bounds on its cost and on what engines support. Pure.

All work is linear in the text, and the costly part is bounded: msgspec takes 33 us for some numbers with an exponent
(`1e300`), and an object or array costs far more than its two bytes.
"""

from itertools import accumulate
from typing import Any

import msgspec

from app.errors.tree import BadJSON

MAX_DEPTH = 128
"""Maximum nesting of arrays and objects. A tool's schema has some ten levels, of two brackets each."""
MAX_DIGITS = 308
"""Maximum digits of a whole number: one more does not fit the double of an engine in C++."""
MAX_VALUES = 50_000
"""Arrays, objects and members of objects in one request. One with 512 turns and 128 tools has some 10,000."""
MAX_NODES = 20_000
"""Schemas and values of enums in the tools' schemas of one request, with references followed. OpenAI takes 5,000 properties in a
schema (platform.openai.com/docs/guides/structured-outputs)."""
MAX_PATTERN_WORK = 16_384
"""Of all patterns in the schemas of one request (`app.api.tool_schema.pattern_cost`). `(a|a|…)*` with 31 branches is as much."""
MAX_EXPONENTS = 1000
"""Maximum count of numbers with an exponent in one request."""

_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_LONG_NUMBER = b"0" * (MAX_DIGITS + 1)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


class Budget:
    """The remaining budget of one request: `values` and `exponents` of JSON, `nodes` and `patterns` of schemas."""

    values, exponents = MAX_VALUES, MAX_EXPONENTS
    nodes, patterns = MAX_NODES, MAX_PATTERN_WORK


def decode(raw: bytes, budget: Budget | None = None) -> Any:
    """The value of a JSON text in UTF-8; of duplicate keys the last counts. Charges the budget.

    Raises:
        BadJSON: invalid_json; or number_out_of_range, nested_too_deeply, body_too_complex, invalid_utf8.
    """
    _check_bounds(raw, budget or Budget())
    try:
        return msgspec.json.decode(raw)
    except UnicodeDecodeError as error:
        message = f"not UTF-8: {error.reason} at byte {error.start} of a string"
        raise BadJSON(message, "invalid_utf8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise (_out_of_range() if "out of range" in str(error) else BadJSON(str(error))) from None


def _check_bounds(raw: bytes, budget: Budget) -> None:
    """The text may be invalid JSON."""
    # A comma for each string.
    bare = b",".join(raw.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    levels = bare.translate(_STEPS, _NOT_BRACKETS)
    steps, opened = memoryview(levels).cast("b"), levels.count(b"\x01")
    if opened > MAX_DEPTH and max(accumulate(steps)) > MAX_DEPTH:
        if sum(steps) != 0:
            raise BadJSON("a bracket is not closed")
        message = f"arrays and objects are nested deeper than {MAX_DEPTH} levels"
        raise BadJSON(message, "nested_too_deeply")
    budget.values -= opened + bare.count(b":")
    if budget.values < 0:
        message = f"there are more than {MAX_VALUES} arrays, objects and members of objects"
        raise BadJSON(message, "body_too_complex")
    numbers = bare.translate(_DIGITS)
    budget.exponents -= numbers.count(b"0e")
    if budget.exponents < 0:
        raise BadJSON(f"more than {MAX_EXPONENTS} numbers have an exponent", "body_too_complex")
    if _LONG_NUMBER in numbers:
        raise _out_of_range()


def _out_of_range() -> BadJSON:
    return BadJSON("a number is too large for a double of 64 bits", "number_out_of_range")
