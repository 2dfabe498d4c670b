"""What an engine computes with, from its arguments and from what it logs before its first request. Pure.

A later line of the log could quote a caller, so it is not read.
"""

from deploy.engine.dialects import DIALECTS
from deploy.engine.spec import EngineSpec
from gates.contracts.numerics import Numerics


def from_arguments(spec: EngineSpec) -> Numerics:
    """What the configuration alone says, before a start; for an engine that somebody else runs, what was stated."""
    return from_start(spec, "", "")


def from_start(spec: EngineSpec, log: str, host_gpu: str) -> Numerics:
    """What runs, from its log until the first request; `host_gpu` is the GPU of the machine that it runs on."""
    if spec.driver == "url":
        return Numerics(**dict(spec.numerics or ()))
    return DIALECTS[spec.dialect].numerics(spec, log, host_gpu)
