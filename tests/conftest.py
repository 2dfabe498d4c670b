"""What holds for every test: at which scale it runs, how many examples Hypothesis draws, and no bound on the wall clock."""

import gc

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.scale import SCALE, UNSHRUNK

BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
"""A deadline and the check of slow data look at the clock: on a busy machine they fail where nothing is wrong."""
settings.register_profile("quick", BUSY, max_examples=40)
settings.register_profile("full", BUSY, max_examples=200)
settings.register_profile(UNSHRUNK, settings.get_profile(SCALE), phases=[Phase.explicit, Phase.generate])
settings.load_profile(SCALE)

gc.disable()  # until all is collected: imports and tests make objects that stay, and going through them again took a fifth of the time


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `nightly` out at the quick scale: deselected, which the last line of the run counts."""
    left_out = {item for item in items if SCALE == "quick" and item.get_closest_marker("nightly")}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules live to the end: no collection of garbage need go through them again."""
    gc.collect()
    gc.freeze()
    gc.enable()
