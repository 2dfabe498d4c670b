"""Engines for the time of a command: started where they do not run, and left as they were found."""

from contextlib import AsyncExitStack

from app.config.config import Config
from deploy.core.errors import EngineError
from deploy.drivers.factory import make_engine, running
from deploy.engine.engine import EngineState
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import Engine
from gates.contracts.errors import RunError


async def started(config: Config, spec: EngineSpec, stack: AsyncExitStack) -> tuple[Engine, EngineState]:
    """An engine that streams until the stack is closed; then only a container that ran before runs on. Raises RunError."""
    found = await running([spec], state_dir=config.state_dir)
    runs = any(one.engine == spec.name and one.running for one in found)
    engine = make_engine(spec, state_dir=config.state_dir)
    stack.push_async_callback(engine.leave if runs else engine.stop)
    try:
        return engine, await engine.start()
    except EngineError as error:
        raise RunError(f"{spec.name} does not come up: {error}") from None
