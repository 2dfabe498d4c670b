"""Runs an author's function on one reply, in a process of its own, for `gates.run.rulings`.

stdin: {"path", "source", "function", "prompt", "reply"}; without a reply the file is only loaded. The source is what was hashed.
stdout: [good, why]; `good` is null if the function failed. The child sends the function's own output to stderr.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any


def _ruling(given: dict[str, Any]) -> tuple[bool, str]:
    sys.path.insert(0, str(Path(given["path"]).parent))
    names: dict[str, Any] = {"__name__": "checks", "__file__": given["path"]}
    exec(compile(given["source"], given["path"], "exec"), names)
    said = names[given["function"]](given["prompt"], given["reply"]) if "reply" in given else True
    good, why = said if isinstance(said, tuple) and len(said) == 2 else (said, "")
    if not isinstance(good, bool):
        raise TypeError(f"returned {said!r:.80}, which is no bool and no (bool, reason)")
    return good, str(why)


if __name__ == "__main__":
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        ruling: tuple[bool | None, str] = _ruling(json.load(sys.stdin))
    except BaseException as error:
        ruling = None, f"{type(error).__name__}: {error}"
    os.write(answer, json.dumps(ruling).encode())
