"""A folder of a random model, beside the one that was made, whose every token is text: `python -m quantizer.bench.spoken_folder FOLDER OUT`.

The tokenizer of `random_folder` knows two thousand of 248,320 tokens. Servers decode the others to nothing, so that a client
waits for a first word that does not come. Here they are words that no text is made of. The weights are links.
"""

import argparse
import json
from pathlib import Path
from typing import Any


def speak(folder: Path, out: Path) -> int:
    """Write the folder; returns the number of words that were added."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = pad(tokenizer, config.get("text_config", config)["vocab_size"])
    out.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_file() and path.name != "tokenizer.json" and not (out / path.name).exists():
            (out / path.name).symlink_to(path.resolve())
    (out / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return added


def pad(tokenizer: dict[str, Any], size: int) -> int:
    """Give every id below `size` a text; returns how many had none. No text is split into them: they are in no merge."""
    words = tokenizer["model"]["vocab"]
    # tokenizers gives a special token its id by the number of words, unless it is one of them.
    words |= {one["content"]: one["id"] for one in tokenizer["added_tokens"]}
    taken = set(words.values())
    fresh = {
        f"Ġw{number}": number for number in range(size) if number not in taken
    }  # Ġ: a space, in byte-level BPE
    words |= fresh
    return len(fresh)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m quantizer.bench.spoken_folder", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    print(f"{speak(given.folder, given.out)} words added")


if __name__ == "__main__":
    main()
