"""`manners state backup FILE | restore FILE`: the registry of the state folder, copied as one consistent database.

A backup may run beside the gateway. A plain copy of the file may not: it can catch half a transaction.
"""

import argparse

from app.config.config import load
from app.promotion.repository import FILE
from app.registry import store


def run(args: argparse.Namespace) -> int:
    """Run one command; its exit code."""
    path = load(args.config).state_dir / FILE
    if args.verb == "backup":
        store.backup(path, args.file)
        print(f"{args.file}: the registry of {path.parent}")
    else:
        replaced = store.restore(args.file, path)
        print(f"{path}: restored" + (f"; what was there is {replaced}" if replaced else ""))
    return 0
