"""`python -m tests.gates.stats.sequence_table`: how often a sequential rule is right, simulated; the table of docs/gates.md."""

import random
from collections import Counter
from collections.abc import Callable
from statistics import median, quantiles
from typing import Final, NamedTuple

from gates.contracts.verdict import Verdict
from gates.stats.sequential import judge_mean

CONVERSATIONS: Final = 300
SEED: Final = 20261127


class Scenario(NamedTuple):
    """A rule and a model. `draw` gives one conversation's value, whose mean is `mean`; `turns` is its number of prompts."""

    name: str
    least: float
    mean: float
    draw: Callable[[random.Random], float]
    turns: int = 1
    by_turn: bool = False


class Operating(NamedTuple):
    """The verdicts, the share of runs in which a bound ever excludes the truth (the worse of both), and the prompts: median, 9th decile."""

    verdicts: Counter[Verdict]
    wrong: float
    prompts: tuple[int, int]


def compared(name: str, margin: float, lost: float, won: float) -> Scenario:
    """Prompts beside the baseline's: 0 lost, 1 won, 1/2 alike."""

    def draw(chance: random.Random) -> float:
        return 0.0 if (x := chance.random()) < lost else 1.0 if x < lost + won else 0.5

    return Scenario(
        f"margin {100 * margin:.0f}: {name}", (1.0 - margin) / 2.0, (1.0 - lost + won) / 2.0, draw
    )


def share(rate: float, turns: int = 1, name: str = "", by_turn: bool = False) -> Scenario:
    """Shares of good turns; each conversation has a rate of its own, and its turns are much alike."""

    def draw(chance: random.Random) -> float:
        own = chance.betavariate(rate / 2.0, (1.0 - rate) / 2.0)
        return sum(chance.random() < own for _ in range(turns)) / turns

    of = f", {turns} turns" if turns > 1 else ""
    return Scenario(name or f"at least 80 %{of}: {100 * rate:.0f} % good", 0.8, rate, draw, turns, by_turn)


SCENARIOS: Final = (
    compared("equal, 4 % differ by chance", 0.1, 0.02, 0.02),
    compared("equal, 4 % differ by chance", 0.05, 0.02, 0.02),
    compared("10 points worse", 0.1, 0.12, 0.02),
    compared("50 points worse", 0.1, 0.5, 0.0),
    compared("90 points worse", 0.1, 0.9, 0.0),
    *(share(rate) for rate in (0.95, 0.8, 0.4)),
    *(share(rate, 5) for rate in (0.95, 0.8, 0.4)),
    share(0.8, 5, "the same, 80 % good, if turns were units", by_turn=True),
)


def simulate(scenario: Scenario, runs: int) -> Operating:
    """The scenario's figures over `runs` suites of 300 conversations."""
    chance = random.Random(f"{SEED} {scenario.name}")
    verdicts, wrong, prompts = Counter[Verdict](), Counter[Verdict](), list[int]()
    for _ in range(runs):
        values = [scenario.draw(chance) for _ in range(CONVERSATIONS)]
        if scenario.by_turn:
            values = [float(turn < round(5 * value)) for value in values for turn in range(5)]
        units = [(value, value) for value in values]
        verdict, n = judge_mean(units, scenario.least)
        verdicts[verdict] += 1
        wrong[judge_mean(units, scenario.mean)[0]] += 1
        prompts.append(n * (1 if scenario.by_turn else scenario.turns))
    worse = max(wrong[Verdict.PASS], wrong[Verdict.FAIL]) / runs
    return Operating(verdicts, worse, (round(median(prompts)), round(quantiles(prompts, n=10)[-1])))


if __name__ == "__main__":
    print(
        "| rule: the model | pass | fail | open | prompts: median, 9 in 10 | a bound is ever wrong |\n|---|---|---|---|---|---|"
    )
    for one in SCENARIOS:
        found = simulate(one, 2000)
        shares = " | ".join(f"{found.verdicts[verdict] / 20:.1f} %" for verdict in Verdict)
        print(
            f"| {one.name} | {shares} | {found.prompts[0]}, {found.prompts[1]} | {100 * found.wrong:.1f} % |"
        )
