"""What holds for every test: how many examples Hypothesis draws, and no deadline on the wall clock for any of them."""

import gc

from hypothesis import settings

from tests.scale import SCALE

settings.register_profile("quick", deadline=None, max_examples=40, print_blob=True)
settings.register_profile("full", deadline=None, max_examples=200, print_blob=True)
settings.load_profile(SCALE)


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules live to the end: no collection of garbage need go through them again."""
    gc.collect()
    gc.freeze()
