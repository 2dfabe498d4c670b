"""A file of variants for `manners bench --matrix FILE`: which profiles to start, where, and with what changed. Pure.

A profile says what its flags are for; a variant says how it is tried on this machine. `leave` names flags of the
profile that this machine cannot have (a library that is not installed), `add` what it needs besides. Both are part of
the result, so that nobody takes a changed profile for the profile.

    title, about             for people
    limit                    seconds that one engine may take to its first token
    loads                    how many requests, with how many of them at once
    prompt, reply            tokens of each request's prompt and reply
    vocabulary               prompts are random tokens below this number
    [servers.NAME]           how an engine is started here: driver, command, env, gpu, and the artefact that it serves
    weights                  of a server: "random" where the artefact was never trained, and can answer nothing
    [[variants]]             name, profile, server, leave, add, env
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from deploy.core.errors import DeployError
from deploy.engine.spec import EngineSpec, Gpu
from deploy.profiles.load import Profile, ProfileError, load_profile
from gates.decode import decoder
from gates.decode.decoder import DecodeError
from gates.decode.toml_file import TomlFiles

Weights = Literal["trained", "random"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """So many requests, `streams` of them at once."""

    streams: int
    requests: int

    def __post_init__(self) -> None:
        if not 1 <= self.streams <= self.requests <= 100_000:
            raise DecodeError("requests", "must be at least as many as streams, and both at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantServer:
    """How an engine is started on this machine; as in `[engines.NAME]`."""

    driver: Literal["process", "embedded"]
    artefact: str
    weights: Weights = "trained"
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    gpu: Gpu | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantTable:
    """One `[[variants]]` table, as it is written."""

    name: str
    profile: str
    server: str
    leave: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTable:
    """The whole file, as it is written."""

    title: str
    about: str
    loads: tuple[LoadShape, ...]
    servers: Mapping[str, VariantServer]
    variants: tuple[VariantTable, ...]
    limit: float = 300.0
    prompt: int = 256
    reply: int = 64
    vocabulary: int = 2000

    def __post_init__(self) -> None:
        names = [one.name for one in self.variants]
        if not names:
            raise DecodeError("variants", "must hold at least one")
        for at, one in enumerate(self.variants):
            if one.name in names[:at]:
                raise DecodeError(f"variants[{at}].name", f"{one.name!r} is given twice")
            if one.server not in self.servers:
                hint = decoder.nearest(one.server, self.servers)
                raise DecodeError(f"variants[{at}].server", f"unknown server{hint}")
        if self.limit <= 0 or min(self.prompt, self.reply, self.vocabulary) < 1:
            raise DecodeError("limit", "and prompt, reply and vocabulary must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchVariant:
    """One engine to start. `left` and `added` are its differences from the profile."""

    profile: Profile
    spec: EngineSpec
    weights: Weights
    left: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A checked file of variants, in the order in which they run."""

    table: MatrixTable
    variants: tuple[BenchVariant, ...]


FILES: Final = TomlFiles("file of variants", Path(__file__).parent / "variants", ProfileError)


def load_matrix(name_or_path: str | Path, only: Sequence[str] = ()) -> Matrix:
    """A shipped file by its name, or any by its path; `only` these variants, where some are named. Raises ProfileError."""
    path = FILES.path(name_or_path)
    try:
        table = decoder.read(MatrixTable, FILES.table(FILES.text(path), str(path)))
        known = [one.name for one in table.variants]
        for name in only:
            if name not in known:
                raise DecodeError("variants", f"there is no {name!r}{decoder.nearest(name, known)}")
        chosen = [one for one in table.variants if not only or one.name in only]
        return Matrix(table=table, variants=tuple(_variant(one, table.servers[one.server]) for one in chosen))
    except (DeployError, DecodeError) as error:
        raise ProfileError(f"{path}: {error}") from None


def _variant(one: VariantTable, server: VariantServer) -> BenchVariant:
    """Raises ProfileError, SpecError, DecodeError."""
    profile = load_profile(one.profile)
    left = [flag for flag in profile.flags if flag.flag in one.leave]
    if unknown := set(one.leave) - {flag.flag for flag in left}:
        raise DecodeError(one.name, f"leaves {sorted(unknown)[0]}, which {profile.name} does not have")
    kept = [word for flag in profile.flags if flag not in left for word in flag.words]
    process = server.driver == "process"
    spec = EngineSpec(
        name=one.name,
        dialect=profile.dialect,
        driver=server.driver,
        artefact=Path(server.artefact).absolute(),
        args=(*kept, *one.add),
        command=server.command or None,
        env=tuple({**server.env, **one.env}.items()) if process else None,
        gpu=server.gpu,
    )
    left_words = tuple(" ".join(flag.words) for flag in left)
    return BenchVariant(profile=profile, spec=spec, weights=server.weights, left=left_words, added=one.add)
