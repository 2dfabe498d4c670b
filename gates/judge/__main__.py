"""`python -m gates.judge [POLICY]`: the operating curves of a policy as a Markdown table."""

import argparse
import sys

from gates.contracts.errors import PolicyError
from gates.judge.operating import markdown, operating_table
from gates.policy.load import load_policy


def main() -> int:
    """Print the table. Returns 0, or 65 (EX_DATAERR) with one line for a policy that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m gates.judge", description=__doc__)
    parser.add_argument("policy", nargs="?", default="annie", help="a shipped policy's name, or a .toml file")
    try:
        table = markdown(operating_table(load_policy(parser.parse_args().policy)))
    except PolicyError as error:
        sys.stderr.write(f"{error}\n")
        return 65
    sys.stdout.write(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
