"""`python -m deploy.profiles`: list the profiles, or print one as a table of a configuration.

python -m deploy.profiles
python -m deploy.profiles vllm-nvfp4-9b --name spark-nvfp4 --artefact models/annie-9b-nvfp4
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from os import EX_USAGE

from deploy.profiles.load import Profile, ProfileError, command_line, load_profile, shipped


def main(argv: list[str] | None = None) -> int:
    """List the profiles, or print one; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.profiles", description="serving profiles")
    parser.add_argument("profile", nargs="?", help="a shipped one, or a .toml; without it, all are listed")
    parser.add_argument("--name", help="of the engine (default: the profile's)")
    parser.add_argument(
        "--artefact", default="models/MODEL", help="the model's folder (default: %(default)s)"
    )
    parser.add_argument(
        "--image", help="pinned, NAME@sha256:DIGEST (default: the profile's tag, to be pinned)"
    )
    args = parser.parse_args(argv)
    try:
        lines = (
            _listed()
            if args.profile is None
            else table(load_profile(args.profile), args.name, args.artefact, args.image)
        )
        sys.stdout.write("\n".join(lines) + "\n")
    except ProfileError as error:
        sys.stderr.write(f"profiles: {error}\n")
        return EX_USAGE
    return 0


def _listed() -> Iterator[str]:
    for name in shipped():
        profile = load_profile(name)
        yield f"{name:26} {profile.title}"
        if profile.run:
            yield f"{'':26} {profile.run}"


def table(profile: Profile, name: str | None, artefact: str, image: str | None) -> Iterator[str]:
    """The lines of an `[engines.NAME]` table, every flag with its reason."""
    yield f"# {profile.title}. {profile.about}"
    for program, version in [
        *profile.needs.items(),
        *(need for one in profile.flags for need in one.needs.items()),
    ]:
        yield f"# needs {program} {version} or later"
    yield f"[engines.{name or profile.name}]"
    yield f'dialect  = "{profile.dialect}"'
    yield f'driver   = "{profile.driver}"'
    if profile.driver == "url":
        yield f"# start it yourself: {' '.join(command_line(profile, artefact))}"
        yield 'url      = "http://127.0.0.1:PORT"'
        return
    yield f"artefact = {json.dumps(artefact)}"
    if profile.image:
        hint = "" if image else "  # a tag: manners engine pin"
        yield f"image    = {json.dumps(image or profile.image)}{hint}"
    yield "args     = ["
    for one in profile.flags:
        yield f"  {', '.join(json.dumps(word) for word in one.words)},  # {one.why}"
    yield "]"


if __name__ == "__main__":
    sys.exit(main())
