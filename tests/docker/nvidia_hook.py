"""A stand-in for `nvidia-container-runtime-hook`: the one seam at which a GPU is missing here.

dockerd has its device driver `nvidia` if this program is in its PATH, turns device requests into environment variables,
and has runc call the program before each container that asks for GPUs. NVIDIA's own puts devices and libraries of the
driver into the container; this one a device that is /dev/null, and writes down what it was given.
"""

import json
import subprocess
import sys
from pathlib import Path

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
DEVICE = "nvidia0"


def main() -> None:
    state = json.load(sys.stdin)
    spec = json.loads((Path(state["bundle"]) / "config.json").read_text("utf-8"))
    process = spec["process"]
    given = dict(word.partition("=")[::2] for word in process["env"])
    record = {"verb": sys.argv[1:], "argv": process["args"], "env": given}
    with Path(__file__).with_name("called.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    if given.get(VISIBLE) not in (None, "", "void", "none"):
        node = ["mknod", "-m", "666", f"{spec['root']['path']}/dev/{DEVICE}", "c", "1", "3"]
        subprocess.run(["nsenter", f"--target={state['pid']}", "--mount", *node], check=True)


if __name__ == "__main__":
    main()
