"""`manners quantize` and `manners data`: the model builder's commands, which are implemented in `quantizer`."""

import argparse


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands and their flags. This is the only place where `app` imports `quantizer`, and it does so lazily."""
    from quantizer.cli import main

    main.add(commands)
