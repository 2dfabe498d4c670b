"""When and where each shipped profile last ran: `runs.json`, which `python -m deploy.profiles --record RESULT.json` writes.

A profile that was changed since its run has not run.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from deploy.profiles.load import Profile, ProfileError, load_profile, shipped
from gates.decode import decoder
from gates.decode.decoder import DecodeError
from gates.report.codec import canonical

RUNS: Final = Path(__file__).with_name("runs.json")
NOT_RUN: Final = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRun:
    """The last run of a profile. `left` and `added`: what differed from it; `why`: why it did not start, or ended early."""

    digest: str
    at: str
    where: str
    build: str | None
    weights: str
    left: tuple[str, ...]
    added: tuple[str, ...]
    passed: int
    checks: int
    why: str = ""

    def __str__(self) -> str:
        changes = [f"without {word}" for word in self.left]
        changes += [f"with {' '.join(self.added)}"] if self.added else []
        found = f"{self.passed} of {self.checks} checks passed" if self.checks else "no check ran"
        parts = [
            f"{self.at[:10]}, {self.where}",
            self.build or "",
            f"{self.weights} weights",
            found,
            *changes,
        ]
        return ", ".join(part for part in parts if part) + (f"; {self.why}" if self.why else "")


def profile_digest(profile: Profile) -> str:
    """The identity of what a profile starts: its dialect, and every word of its command line."""
    words = [profile.dialect, *profile.command, *profile.args]
    return f"sha256:{hashlib.sha256(canonical(words)).hexdigest()}"


def read_runs(path: Path = RUNS) -> dict[str, ProfileRun]:
    """All recorded runs, by the profile's name. Raises ProfileError."""
    try:
        table = json.loads(path.read_text("utf-8"))
        return {
            name: decoder.read(ProfileRun, {**run, "build": run["build"] or ""}, name)
            for name, run in table.items()
        }
    except (OSError, ValueError, DecodeError, KeyError, AttributeError) as error:
        raise ProfileError(f"{path}: {error}") from None


def last_run(profile: Profile, runs: Mapping[str, ProfileRun]) -> ProfileRun | None:
    """The profile's last run; None if it has none, or was changed since."""
    found = runs.get(profile.name)
    return found if found is not None and found.digest == profile_digest(profile) else None


def told(profile: Profile, runs: Mapping[str, ProfileRun]) -> str:
    """The last run in one line."""
    return str(last_run(profile, runs) or NOT_RUN)


def record(result: Mapping[str, Any], runs: Mapping[str, ProfileRun]) -> dict[str, ProfileRun]:
    """`runs` with those of a result of `manners bench --matrix`; of several variants of a profile, the one with the fewest changes."""
    host, mine = result["host"], {name: load_profile(name) for name in shipped()}
    where = host["gpu"] if host["gpu"] != "none" else f"{host['cores']} cores of {host['machine']}"
    found = dict(runs)
    for one in sorted(result["variants"], key=_worth):
        profile = mine.get(one["profile"])
        if one["at"] is None or profile is None or one["digest"] != profile_digest(profile):
            continue
        found[profile.name] = ProfileRun(
            digest=one["digest"],
            at=one["at"],
            where=where,
            build=one["build"] or "",
            weights=one["weights"],
            left=tuple(one["left"]),
            added=tuple(one["added"]),
            passed=sum(not why for why in one["checks"].values()),
            checks=len(one["checks"]),
            why=one["why"],
        )
    return found


def _worth(one: Mapping[str, Any]) -> tuple[bool, int]:
    """Sorts the most informative variant of a profile last."""
    return one["start_s"] is not None, -len(one["left"]) - len(one["added"])


def write_runs(runs: Mapping[str, ProfileRun], path: Path = RUNS) -> None:
    """Write the runs, sorted by name."""
    table = {name: asdict(runs[name]) for name in sorted(runs)}
    path.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
