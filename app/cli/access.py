"""`manners key` and `manners operator`: their flags. What they do is in `app.cli.access_store`.

This module is imported whenever `manners` starts, and the other one, with registry and configuration, only for these
commands.
"""

import argparse
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
    for kind, singular, about in (
        ("keys", "key", "callers' keys, with limits and budgets"),
        ("operators", "operator", "operators, with roles"),
    ):
        verbs = commands.add_parser(singular, help=about).add_subparsers(
            metavar="VERB", required=True, parser_class=type(commands.choices[singular])
        )
        adding = verbs.add_parser("add", help=f"make a {singular}; its secret is printed once")
        revoking = verbs.add_parser("revoke", help=f"end a {singular}, at once")
        listing = verbs.add_parser("list", help=f"all {kind}, without their secrets")
        for command in (adding, revoking):
            command.add_argument("name", metavar="NAME", help="letters, digits and _.-")
        if kind == "keys":
            _add_limits(adding, "at most N")
            limiting = verbs.add_parser("limit", help="change limits of a key; what it has used stays")
            limiting.add_argument("name", metavar="NAME")
            _add_limits(limiting, "at most N (0: no limit)")
            add_common_flags(limiting)
            limiting.set_defaults(run=run, verb="limit", kind=kind)
            rotating = verbs.add_parser(
                "rotate", help="give a key a new secret; limits and what it has used stay"
            )
            rotating.add_argument("name", metavar="NAME")
            rotating.add_argument(
                "--overlap", type=duration, default=86_400, metavar="TIME", help="how long the old secret still works: "
                "30m, 24h, 7d; 0: not at all (default: 24h)",
            )  # fmt: skip
            add_common_flags(rotating)
            rotating.set_defaults(run=run, verb="rotate", kind=kind)
        else:
            adding.add_argument(
                "--role",
                choices=ROLE_NAMES,
                default=str(Role.WATCH),
                help="watch: read; promote: also change who serves; administer: everything (default: %(default)s)",
            )
        for command, verb in ((adding, "add"), (revoking, "revoke"), (listing, "list")):
            add_common_flags(command)
            command.set_defaults(run=run, verb=verb, kind=kind)


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
