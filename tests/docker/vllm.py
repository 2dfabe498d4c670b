"""What `vllm` and `llama-server` are in the image of the GPU tests: it says how it was started, and answers as a small server.

It takes any flag: whether vLLM has one is asked elsewhere.
"""

import argparse
import json
import os
import resource
import sys

from tests.deploy.server import Handler, Server


def found() -> dict[str, object]:
    """What the container gave to this process."""
    return {
        "argv": sys.argv,
        "env": dict(os.environ),
        "cwd": os.getcwd(),
        "user": os.getuid(),
        "devices": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),
        "opens": [
            name for name in os.listdir("/dev") if name.startswith("nvidia") and _opens(f"/dev/{name}")
        ],
        "model": sorted(os.listdir("/model")),
        "writes": [path for path in ("/", "/model", "/cache", "/tmp") if os.access(path, os.W_OK)],
        "shm": os.statvfs("/dev/shm").f_frsize * os.statvfs("/dev/shm").f_blocks,
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "stack": resource.getrlimit(resource.RLIMIT_STACK)[0],
    }


def _opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError:
        return False
    return True


def main() -> None:
    print("started:", json.dumps(found()), flush=True)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--served-model-name", "--alias", dest="served_model_name", required=True)
    parser.add_argument("--model", default="/model")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    Handler.given, _ = parser.parse_known_args()
    Server((Handler.given.host, Handler.given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
