"""`manners serve`: run the gateway."""

import argparse
import gc
import sys
from functools import partial
from os import EX_CONFIG


def run(args: argparse.Namespace) -> int:
    """Run the gateway; its exit code. Garbage collection starts when it listens: until then nothing becomes garbage, and it would
    take a sixth of the start.
    """
    gc.disable()
    try:
        from app import server
        from app.config.config import ConfigError, load

        try:
            server.run(load(args.config), partial(load, args.config))
        except ConfigError as error:
            print(f"manners: {error}", file=sys.stderr)
            return EX_CONFIG
        return 0
    finally:
        gc.enable()
