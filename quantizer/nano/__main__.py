"""The nano models, from nothing: `python -m quantizer.nano build`.

learn   conversations, tokenizer, the base (stranger), annie, a first score; wants a GPU (minutes)
ship    the sealed folders in models/ out of what `learn` wrote
build   learn, then ship
"""

from __future__ import annotations

import argparse
from pathlib import Path

from quantizer.nano.recipe import NANO, TINY


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m quantizer.nano", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("command", choices=("learn", "ship", "build"))
    parser.add_argument("--learned", type=Path, default=Path(".work/nano"), help="weights in between")
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--tiny", action="store_true", help="the same path in seconds, for a test")
    given = parser.parse_args()
    recipe = TINY if given.tiny else NANO
    if given.command in ("learn", "build"):
        from quantizer.nano.learn import learn

        learn(recipe, given.learned, score_each=3 if given.tiny else 60)
    if given.command in ("ship", "build"):
        from quantizer.nano.ship import ship

        for artefact in ship(recipe, given.learned, given.models):
            print(artefact.name, artefact.format, artefact.root)


if __name__ == "__main__":
    main()
