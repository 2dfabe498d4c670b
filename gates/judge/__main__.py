"""`python -m gates.judge [POLICY [SUITE]]`: what each rule of a policy would let pass, as a Markdown table."""

import argparse
import sys

from gates.contracts.errors import GatesError
from gates.judge.context import Measurements
from gates.judge.decide import decide
from gates.policy.load import load_policy
from gates.suite.draw import drawn
from gates.suite.load import load_suite, shipped


def main() -> int:
    """Print the table. Returns 0, or 65 (EX_DATAERR) with one line for a policy or a suite that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m gates.judge", description=__doc__)
    parser.add_argument("policy", nargs="?", default="annie", help="a shipped policy's name, or a .toml file")
    parser.add_argument("suite", nargs="?", help="the suite that is asked (default: the policy's namesake)")
    args = parser.parse_args()
    try:
        sys.stdout.write(operating_table(args.policy, args.suite))
    except GatesError as error:
        sys.stderr.write(f"{error}\n")
        return 65
    return 0


def operating_table(policy: str, suite: str | None = None) -> str:
    """The operating curve of every rule in words, for the prompts that the suite has. Raises PolicyError, SuiteError."""
    rules = load_policy(policy)
    namesakes = [name for name in shipped() if rules.name.startswith(name)]
    cases = drawn(load_suite(suite or max(namesakes, key=len, default="annie")), rules.draw)
    lines = ["| gate | tier | rule | what it would let pass |", "|---|---|---|---|"]
    for r in decide(rules, Measurements(suite=cases, candidate=())).gates:
        if r.curve_words:
            lines.append(f"| {r.gate.removesuffix('[]')} | {r.tier} | {r.rule} | {r.curve_words} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
