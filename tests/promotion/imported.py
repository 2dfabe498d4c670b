"""What a gateway imports and compiles at its start, once for all that are forked from it (`tests/promotion/forked.py`)."""

import gc

import app.__main__
import app.server  # noqa: F401
import tests.promotion.forked  # noqa: F401
from app.stream.tags import ALL_CALL_FAMILIES, ALL_FAMILIES, tag_set

tag_set(ALL_FAMILIES, ALL_CALL_FAMILIES)
gc.collect()
gc.freeze()
