"""What holds for every test: how many examples Hypothesis draws, and no deadline on the wall clock for any of them."""

from hypothesis import settings

from tests.scale import SCALE

settings.register_profile("quick", deadline=None, max_examples=40, print_blob=True)
settings.register_profile("full", deadline=None, max_examples=200, print_blob=True)
settings.load_profile(SCALE)
