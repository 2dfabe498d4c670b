"""`manners serve`: run the gateway."""

import argparse
import gc
import sys
from functools import partial
from os import EX_CONFIG, EX_USAGE
from typing import Final

PORT: Final = 8080


def run(args: argparse.Namespace) -> int:
    """Run the gateway; its exit code. Garbage collection starts when it listens: until then nothing becomes garbage, and it would
    take a sixth of the start.
    """
    if fault := _misuse(args):
        print(f"manners: {fault}", file=sys.stderr)
        return EX_USAGE
    gc.disable()
    try:
        from app import server
        from app.config.config import ConfigError, load
        from app.config.served import config_for

        read = (
            partial(config_for, args.models, args.name, args.port or PORT, args.ctx)
            if args.models
            else partial(load, args.config)
        )
        try:
            server.run(read(), read)
        except ConfigError as error:
            told = str(error)
            if args.models:  # there is no file that could name another address
                told = told.replace("gateway.listen:", "--port:").replace(
                    "gateway.admin:", "--port, and the next one:"
                )
            print(f"manners: {told}", file=sys.stderr)
            return EX_CONFIG
        return 0
    finally:
        gc.enable()


def _misuse(args: argparse.Namespace) -> str | None:
    """Why these flags do not go together; None: they do."""
    if args.models and args.config:
        return "serve: MODEL and --config exclude each other"
    if not args.models and (
        alone := [flag for flag in ("name", "port", "ctx") if getattr(args, flag) is not None]
    ):
        return f"serve: --{alone[0]} is for a MODEL; the configuration says it otherwise"
    return None
