"""The teacher: a server with OpenAI's chat completions that answers what a plan asks."""

import hashlib
from dataclasses import dataclass

from gates.contracts.dialect import Dialect
from gates.run.target import Target
from quantizer.core.errors import RecipeError


@dataclass(frozen=True, slots=True)
class TeacherServer:
    """A server, and the tokens that it may think before each answer; 0: thinking is off."""

    target: Target
    thinking: int = 0


def make_teacher(url: str, model: str, dialect: Dialect, key: str = "", thinking: int = 0) -> TeacherServer:
    """A teacher, identified by its model name and whether it thinks, not by its address. Raises RunError, RecipeError."""
    if thinking and dialect == "openai":
        raise RecipeError(f"--thinking: the dialect {dialect} has no switch for it; name another --dialect")
    named = f"{model} thinking" if thinking else model
    name = f"sha256:{hashlib.sha256(named.encode()).hexdigest()}"
    headers = {"authorization": f"Bearer {key}"} if key else {}
    base = url.rstrip("/").removesuffix("/v1")
    return TeacherServer(
        Target(url=base, served_model=model, dialect=dialect, artefact=name, engine=name, headers=headers),
        thinking,
    )
