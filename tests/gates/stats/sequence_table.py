"""`python -m tests.gates.stats.sequence_table`: how often a sequential rule is right, simulated; the table of docs/gates.md."""

import random
from collections import Counter
from collections.abc import Callable
from statistics import median, quantiles
from typing import Final, NamedTuple

from gates.contracts.verdict import Verdict
from gates.stats.sequential import judge_mean

SEED: Final = 20261127


class Scenario(NamedTuple):
    """A rule and a model. `draw` gives the values of one conversation, whose mean is `mean`, or, with `by_turn`, of its turns."""

    name: str
    least: float
    mean: float
    draw: Callable[[random.Random], list[float]]
    turns: int = 1
    by_turn: bool = False


class Operating(NamedTuple):
    """The verdicts, the share of runs in which a bound ever excludes the truth (the worse of both), and the prompts: median, 9th decile."""

    verdicts: Counter[Verdict]
    wrong: float
    prompts: tuple[int, int]


def compared(margin: float, lost: float, won: float) -> Scenario:
    """Prompts beside the baseline's: 0 lost, 1 won, 1/2 alike."""
    name = f"margin {100 * margin:.0f}, {100 * (lost - won):.0f} worse"

    def draw(chance: random.Random) -> list[float]:
        return [0.0 if (x := chance.random()) < lost else 1.0 if x < lost + won else 0.5]

    return Scenario(name, (1.0 - margin) / 2.0, (1.0 - lost + won) / 2.0, draw)


def turns(rate: float, by_turn: bool = False) -> Scenario:
    """Five turns; each conversation has a rate of its own, so that its turns are much alike."""

    def draw(chance: random.Random) -> list[float]:
        own = chance.betavariate(rate / 2.0, (1.0 - rate) / 2.0)
        good = [float(chance.random() < own) for _ in range(5)]
        return good if by_turn else [sum(good) / 5]

    name = f"80 %, {100 * rate:.0f} good" + (", by turns" if by_turn else "")
    return Scenario(name, 0.8, rate, draw, 1 if by_turn else 5, by_turn)


SCENARIOS: Final = (
    compared(0.1, 0.02, 0.02),
    compared(0.05, 0.02, 0.02),
    compared(0.1, 0.12, 0.02),
    compared(0.1, 0.5, 0.0),
    *(turns(rate) for rate in (0.95, 0.8, 0.4)),
    turns(0.8, by_turn=True),
)


def simulate(scenario: Scenario, runs: int) -> Operating:
    """The scenario's figures over `runs` suites of 300 conversations."""
    chance = random.Random(f"{SEED} {scenario.name}")
    verdicts, wrong, prompts = Counter[Verdict](), Counter[Verdict](), list[int]()
    for _ in range(runs):
        units = [(value, value) for _ in range(300) for value in scenario.draw(chance)]
        verdict, n = judge_mean(units, scenario.least)
        verdicts[verdict] += 1
        wrong[judge_mean(units, scenario.mean)[0]] += 1
        prompts.append(n * scenario.turns)
    worse = max(wrong[Verdict.PASS], wrong[Verdict.FAIL]) / runs
    return Operating(verdicts, worse, (round(median(prompts)), round(quantiles(prompts, n=10)[-1])))


if __name__ == "__main__":
    for one in SCENARIOS:
        found = simulate(one, 2000)
        passed, failed = (found.verdicts[verdict] / 20 for verdict in (Verdict.PASS, Verdict.FAIL))
        prompts, wrong = f"{found.prompts[0]}, {found.prompts[1]}", 100 * found.wrong
        print(f"| {one.name} | {passed:.1f}, {failed:.1f} | {prompts} | {wrong:.1f} |")
