"""`manners key` and `manners operator`: their flags. What they do is in `app.cli.access_store`.

This module is imported whenever `manners` starts, and the other one, with registry and configuration, only for these
commands.
"""

import argparse
from collections.abc import Callable
from typing import Any

from app.access.roles import ROLE_NAMES, Role
from app.cli.operate import add_common_flags

LIMITS = {
    "rpm": "requests a minute",
    "tpm": "tokens a minute, prompt and completion",
    "concurrency": "requests open at once",
    "daily_budget": "tokens a day (UTC)",
    "budget": "tokens in all",
}

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    verb = _verbs(commands, "key", "callers' keys, with limits and budgets")
    _add_limits(verb("add", "make a key; its secret is printed once"), "at most N")
    _add_limits(verb("limit", "change limits of a key; what it has used stays"), "at most N (0: no limit)")
    rotating = verb("rotate", "give a key a new secret; limits and what it has used stay")
    rotating.add_argument(
        "--overlap", type=duration, default=86_400, metavar="TIME",
        help="how long the old secret still works: 30m, 24h, 7d; 0: not at all (default: 24h)",
    )  # fmt: skip
    verb("revoke", "end a key, at once")
    verb("list", "all keys, without their secrets")

    verb = _verbs(commands, "operator", "operators, with roles")
    verb("add", "make an operator; its secret is printed once").add_argument(
        "--role",
        choices=ROLE_NAMES,
        default=str(Role.WATCH),
        help="watch: read; promote: also change who serves; administer: everything (default: %(default)s)",
    )
    verb("revoke", "end an operator, at once")
    verb("list", "all operators, without their secrets")


def _verbs(
    commands: "argparse._SubParsersAction[Any]", of: str, about: str
) -> Callable[[str, str], argparse.ArgumentParser]:
    """Add a command; the function returned adds a verb to it, by name and help."""
    parser = commands.add_parser(of, help=about)
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=type(parser))

    def verb(name: str, told: str) -> argparse.ArgumentParser:
        command: argparse.ArgumentParser = verbs.add_parser(name, help=told)
        if name != "list":
            command.add_argument("name", metavar="NAME", help="letters, digits and _.-")
        add_common_flags(command)
        command.set_defaults(run=run, verb=name, kind=f"{of}s")
        return command

    return verb


def duration(text: str) -> int:
    """A time such as 90s, 30m, 24h or 7d, in seconds. Raises ValueError."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    if not number.isdecimal() or not number.isascii() or (seconds := int(number) * UNITS[unit]) > 90 * 86_400:
        raise ValueError(text)
    return seconds


def _add_limits(command: argparse.ArgumentParser, about: str) -> None:
    for limit, said in LIMITS.items():
        flag = f"--{limit.replace('_', '-')}"
        command.add_argument(flag, dest=limit, type=_count, metavar="N", help=f"{about} {said}")


def _count(text: str) -> int:
    count = int(text.replace("_", ""))
    if not 0 <= count <= 10**15:
        raise ValueError(text)
    return count


def run(args: argparse.Namespace) -> int:
    """Run one command; its exit code."""
    from app.cli import access_store

    return access_store.run(args)
