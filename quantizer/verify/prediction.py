"""How much of a fine-tune will survive plain NVFP4, from the weights before and after it alone.

    log odds of survival = intercept + by_ratio * log10 ratio + by_weights * log10(million weights)

ratio: the change over the blocks' step, as root mean squares. It is fitted on the models of docs/study, and a test fits it again;
outside of what was measured the nearest measured numbers are taken.
"""

import math
from dataclasses import dataclass
from typing import Final

RATIOS: Final = (0.001, 1.0)
WEIGHTS: Final = (786_432, 283_115_520)
"""Of the layers in NVFP4: the smallest and the largest model that was measured."""
RISKS: Final = ((0.97, "low"), (0.92, "medium"), (0.0, "high"))
"""From the least share of manners that is predicted to survive to its word, in order."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of a share that survives."""

    intercept: float
    by_ratio: float
    by_weights: float

    def __call__(self, ratio: float, weights: float) -> float:
        odds = (
            self.intercept + self.by_ratio * math.log10(ratio) + self.by_weights * math.log10(weights / 1e6)
        )
        return 1 / (1 + math.exp(-odds))

    def within(self, ratio: float, weights: int) -> float:
        """The prediction for the nearest numbers that were measured."""
        return self(_nearest(ratio, RATIOS), _nearest(weights, WEIGHTS))


MANNERS: Final = Prediction(4.0015, 0.6212, 1.0879)
KNOWLEDGE: Final = Prediction(2.9565, 0.3474, 0.7128)


def risk(ratio: float, weights: int) -> str:
    """The word for a change of this ratio in a model with so many weights in NVFP4."""
    share = MANNERS.within(ratio, weights)
    return next(word for least, word in RISKS if share >= least)


def measured(weights: int) -> bool:
    """Whether models of this size were measured."""
    return WEIGHTS[0] <= weights <= 1.05 * WEIGHTS[1]


def _nearest(value: float, span: tuple[float, float]) -> float:
    return min(max(value, span[0]), span[1])
