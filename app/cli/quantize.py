"""`manners quantize` and `manners data`: the model builder's commands, which are implemented in `quantizer`."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quantizer.plan.machine import HostMemory


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the commands and their flags. This is the only place where `app` imports `quantizer`, and it does so lazily."""
    from quantizer.cli import main

    main.add(commands, read_host)


def read_host() -> "HostMemory | None":
    """The host's memory as the engines' memory guard sees it; None if it is unknown."""
    from deploy.memory.guard import Guard
    from quantizer.plan.machine import HostMemory

    memory = Guard(own_memory=True).memory()
    return None if memory is None else HostMemory(memory.total, memory.available, memory.floor)
