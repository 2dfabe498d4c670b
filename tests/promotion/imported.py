"""What a gateway imports and compiles at its start, once for all that are forked from it (`tests/promotion/forked.py`)."""

import gc

import app.__main__
import app.server  # noqa: F401
import tests.promotion.forked  # noqa: F401

gc.collect()
gc.freeze()
