"""Serving profiles: a server's flags as data, each with its reason, its source and the versions it needs.

A profile is a TOML file beside this module, or any other by its path. With a model it becomes an `EngineSpec`,
which is checked like a table of the configuration. A
profile names an image by its tag; it is pinned by digest after it has been pulled.

    title, about        for people
    dialect, driver     as in [engines.NAME]; with driver "url", the server is started by hand with `command`
    image               NAME:TAG, to be pinned
    run                 what others say of a run of it; what ran here is in docs/engines.md
    command             for "url": the words before the flags; {artefact} stands for the model
    [needs]             "vllm", "cuda", "driver", ... = the oldest version that works
    [[flags]]           flag, value (left out for a switch), why, source, needs. Sources: "notes" (docs/spark.md),
                        "operations" (public issues, named in `why`), "measured", or the server's documentation
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from deploy.core.errors import DeployError
from deploy.engine.dialects import DIALECTS
from deploy.engine.spec import EngineSpec
from gates.contracts.dialect import Dialect
from gates.decode import decoder
from gates.decode.decoder import DecodeError, Text
from gates.decode.files import TomlFiles

Source = Literal["notes", "operations", "vllm", "llama.cpp", "sglang", "tensorrt-llm", "measured"]


class ProfileError(DeployError):
    """A profile cannot be used; the message names the file and the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFlag:
    """One flag. `value` is None for a switch; `source` is where the setting comes from."""

    flag: str
    why: Text
    source: Source
    value: str | None = None
    needs: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str, ...]:
        """As on a command line."""
        return (self.flag,) if self.value is None else (self.flag, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A checked profile; `name` is its file's."""

    title: str
    about: str
    dialect: Dialect
    driver: Literal["docker", "embedded", "url"]  # what a process engine executes is a host's matter
    flags: tuple[ProfileFlag, ...]
    run: str = ""
    image: str | None = None
    command: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        if (self.driver == "url") != bool(self.command):
            raise DecodeError("command", "is only for the driver url, whose server is started by hand")
        if odd := DIALECTS[self.dialect].odd_flag(self.args):
            raise DecodeError("flags", odd)

    @property
    def args(self) -> tuple[str, ...]:
        """All flags, as on a command line."""
        return tuple(word for one in self.flags for word in one.words)


# -------------------------------------------------------------------------------------------- files


FILES: Final = TomlFiles("profile", Path(__file__).parent, ProfileError)
shipped: Final = FILES.shipped


def load_profile(name_or_path: str | Path) -> Profile:
    """Load a shipped profile by its name, or any other by the path of its .toml file. Raises ProfileError."""
    path = FILES.path(name_or_path)
    table = FILES.table(FILES.text(path), str(path))
    try:
        return decoder.read(Profile, {**table, "name": path.stem})
    except (DeployError, DecodeError) as error:
        raise ProfileError(f"{path}: {error}") from None


# ------------------------------------------------------------------------------------------- to use


def engine_spec(
    profile: Profile,
    *,
    name: str,
    artefact: Path | None = None,
    image: str | None = None,
    url: str | None = None,
) -> EngineSpec:
    """The profile as an engine of this name; `image` pins the profile's. Raises SpecError."""
    if profile.driver == "url":
        return EngineSpec(name=name, dialect=profile.dialect, driver="url", artefact=artefact, url=url)
    return EngineSpec(
        name=name,
        dialect=profile.dialect,
        driver=profile.driver,
        artefact=artefact,
        image=(image or profile.image) if profile.driver == "docker" else None,
        args=profile.args,
    )


def command_line(profile: Profile, artefact: str) -> tuple[str, ...]:
    """The command that starts a server of the driver "url"; () for the other drivers."""
    words = (*profile.command, *profile.args) if profile.command else ()
    return tuple(word.replace("{artefact}", artefact) for word in words)
