"""The suite of `manners gate`: `new-suite` writes one; `run` and `rejudge` check theirs before they import and start anything else."""

import argparse
from os import EX_DATAERR
from pathlib import Path

from app.cli.exit_codes import exit_code
from gates.contracts.errors import SuiteError
from gates.suite.load import FILES, load_suite


def run(args: argparse.Namespace) -> int:
    """Run one verb and return its exit code."""
    return exit_code("manners gate", lambda: _verb(args), {SuiteError: EX_DATAERR})


def _verb(args: argparse.Namespace) -> int:
    if args.verb == "new-suite":
        return _new_suite(args.name)
    if args.suite:
        load_suite(args.suite)
    from app.cli import gate  # a second of imports, which a wrong suite does not wait for

    return gate.run(args)


def _new_suite(name: str) -> int:
    """Write a suite of five prompts, commented, into the current folder. Raises SuiteError: there is one."""
    path = Path(f"{name.removesuffix('.yaml')}.yaml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write((FILES.folder / "new.yaml").read_text("utf-8").replace("NAME", path.stem))
    except OSError as error:
        raise SuiteError(f"{path}: {error.strerror}") from None
    print(
        f"{path}: five prompts to change; then `manners gate run --suite {path} --candidate ENGINE --baseline ENGINE`"
    )
    return 0
