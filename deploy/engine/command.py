"""The command line of an engine's server: the flags that a driver sets, and the `args` of the spec. Pure."""

from typing import Final

from deploy.core.errors import FlagError
from deploy.engine.dialect import Launch
from deploy.engine.dialects import DIALECTS
from deploy.engine.spec import EngineSpec

SILENT: Final = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
"""Environment variables that keep an engine off the network."""


def server_args(spec: EngineSpec, launch: Launch) -> tuple[str, ...]:
    """What follows the name of the server's program. Raises FlagError: one of the `args` is set by the driver."""
    dialect = DIALECTS[spec.dialect]
    for word in spec.args:
        if word.partition("=")[0] in dialect.reserved:
            raise FlagError(spec.name, f"{word} is set by the driver and cannot be given")
    return dialect.arguments(spec, launch)
