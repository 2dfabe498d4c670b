"""`manners state backup FILE | restore FILE`: the registry of the state folder, copied as one consistent database.

A backup may run beside the gateway. A plain copy of the file may not: it can catch half a transaction.
"""

import argparse
import sys
from os import EX_CONFIG, EX_TEMPFAIL
from pathlib import Path
from typing import Any


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    state = commands.add_parser("state", help="back up the gateway's registry, and restore it")
    verbs = state.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=type(state))
    for verb, about in (
        ("backup", "copy the registry to FILE; the gateway may run"),
        ("restore", "put FILE in the registry's place; the gateway must be stopped"),
    ):
        command = verbs.add_parser(verb, help=about)
        command.add_argument("file", type=Path, metavar="FILE")
        command.add_argument("--config", type=Path, metavar="FILE", help="the gateway's TOML")
        command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run one command; its exit code."""
    from app.config.config import ConfigError, load
    from app.promotion.repository import FILE
    from app.registry import store
    from app.registry.errors import RegistryError

    try:
        path = load(args.config).state_dir / FILE
        if args.verb == "backup":
            store.backup(path, args.file)
            print(f"{args.file}: the registry of {path.parent}")
        elif replaced := store.restore(args.file, path):
            print(f"{path}: restored; what was there is {replaced}")
        else:
            print(f"{path}: restored")
    except ConfigError as error:
        return _fail(error, EX_CONFIG)
    except RegistryError as error:
        return _fail(error, EX_TEMPFAIL)
    return 0


def _fail(why: object, code: int) -> int:
    print(f"manners state: {why}", file=sys.stderr)
    return code
