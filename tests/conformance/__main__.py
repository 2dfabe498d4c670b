"""Ask any engine what the suite asks: `python -m tests.conformance URL --dialect vllm`.

Exit 0 when every row is right, 1 when one is not. The engine's own model is used, whatever it is.
"""

import argparse
import asyncio
import sys
from typing import get_args

from deploy.spec import Dialect
from tests.conformance.report import plain
from tests.conformance.suite import check


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("url", help="the engine's address, without /v1")
    parser.add_argument("--dialect", choices=get_args(Dialect), default="openai")
    asked = parser.parse_args()
    results = asyncio.run(check(asked.url.rstrip("/").removesuffix("/v1"), asked.dialect))
    print(plain(results))
    return 0 if all(result.right for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
