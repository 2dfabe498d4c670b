"""`manners serve`: run the gateway."""

import argparse
import gc
from functools import partial
from typing import Final

from app.cli.exit_codes import UsageError

PORT: Final = 8080


def run(args: argparse.Namespace) -> int:
    """Run the gateway; its exit code. Garbage collection starts when it listens: until then nothing becomes garbage, and it would
    take a sixth of the start.
    """
    _check(args)
    gc.disable()
    try:
        from app import server
        from app.config.config import ConfigError, load
        from app.config.served import config_for

        if not args.models:
            read = partial(load, args.config)
            server.run(read(), read)
            return 0
        try:
            read = partial(config_for, args.models, args.name, args.port or PORT, args.ctx)
            server.run(read(), read)
        except ConfigError as error:  # there is no file that could name another address
            told = str(error).replace("gateway.listen:", "--port:")
            raise ConfigError(told.replace("gateway.admin:", "--port, and the next one:")) from None
        return 0
    finally:
        gc.enable()


def _check(args: argparse.Namespace) -> None:
    """Raises UsageError: these flags do not go together."""
    if args.models and args.config:
        raise UsageError("MODEL and --config exclude each other")
    alone = [flag for flag in ("name", "port", "ctx") if getattr(args, flag) is not None]
    if alone and not args.models:
        raise UsageError(f"--{alone[0]} is for a MODEL; the configuration says it otherwise")
