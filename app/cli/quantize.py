"""`manners quantize` and `manners data`: the model builder's commands, which live on their own floor."""

import argparse


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The commands' flags. Only here, and only when the command line is read, does this floor touch the quantizer."""
    from quantizer.cli import main

    main.add(commands)
