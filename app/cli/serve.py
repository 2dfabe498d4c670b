"""`manners serve`: run the gateway."""

import argparse
import gc
from functools import partial

from app.cli.exit_codes import CommandError


def run(args: argparse.Namespace) -> int:
    """Run the gateway; its exit code. Garbage collection starts when it listens: until then nothing becomes garbage, and it would
    take a sixth of the start. Raises CommandError: flags do not go together.
    """
    alone = [flag for flag in ("name", "port", "ctx") if getattr(args, flag) is not None]
    if args.models and args.config:
        raise CommandError("MODEL and --config exclude each other")
    if alone and not args.models:
        raise CommandError(f"--{alone[0]} is for a MODEL; the configuration says it otherwise")
    gc.disable()
    from app import server
    from app.config.config import ConfigError, load
    from app.config.served import config_for

    read = partial(load, args.config)
    if args.models:
        read = partial(config_for, args.models, args.name, args.port or 8080, args.ctx)
    try:
        server.run(read(), read)
    except ConfigError as error:
        if not args.models:
            raise
        told = str(error).replace(
            "gateway.listen:", "--port:"
        )  # there is no file that could name another address
        raise ConfigError(told.replace("gateway.admin:", "--port, and the next one:")) from None
    finally:
        gc.enable()
    return 0
