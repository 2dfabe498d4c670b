"""The child process of the embedded engine: llama.cpp's own HTTP server.

    python -m deploy.drivers.llama_child --life FD --report FD --config JSON

`--life` is the read end of a pipe: at its end of file, when the parent has ended, this process ends. `--report` gets one
line of JSON: `{"url": …}` once the model is loaded, or `{"error": …}` for an error that another attempt would repeat.
SIGTERM ends the process at once: llama.cpp has nothing to save, and the gateway drains streams before.
"""

import argparse
import ctypes
import importlib
import json
import os
import select
import sys
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any

from deploy.drivers.keeper import EX_CONFIG, die_with_parent, tell_parent
from deploy.engine.flags import USER_BITS, Settings


def build_params(
    xllamacpp: Any, model: str, alias: str, settings: Settings, projector: str | None = None
) -> Any:
    """llama.cpp's `common_params` for these settings, on a loopback port of the kernel's choice. Raises OSError."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    if projector is not None:
        params.mmproj.path = projector
    params.model_alias = {alias}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    rest = dict(settings)
    template = rest.pop("chat_template_file", None)
    if template is not None:
        params.chat_template = Path(str(template)).read_text(encoding="utf-8")
    for word in str(rest.pop(USER_BITS, "")).split():
        bits = xllamacpp.common_params_sampling_config
        params.sampling.user_sampling_config |= bits[f"COMMON_PARAMS_SAMPLING_CONFIG_{word}"]
    for field, value in rest.items():
        *path, last = field.split(".")
        target = params
        for step in path:
            target = getattr(target, step)
        now = getattr(target, last)
        setattr(target, last, type(now)[str(value)] if isinstance(now, IntEnum) else value)
    return params


def start_server(config: dict[str, Any]) -> Any:
    """Load the model and listen. Raises ImportError: no wheel; OSError: no such file; RuntimeError: llama.cpp refused."""
    xllamacpp = importlib.import_module("xllamacpp")
    projector = config.get("projector")
    params = build_params(xllamacpp, config["model"], config["alias"], config["settings"], projector)
    print(f"# xllamacpp {xllamacpp.__version__}", file=sys.stderr, flush=True)
    return xllamacpp.Server(params)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="deploy.drivers.llama_child")
    for name in ("--life", "--report"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--config", type=json.loads, required=True)
    given = parser.parse_args(argv)
    die_with_parent(given.life)
    try:
        server = start_server(given.config)
    except ImportError as error:
        return refuse(given.report, f"{error}; install it with: pip install xllamacpp==2026.10.11549")
    except (OSError, RuntimeError, KeyError, AttributeError, TypeError) as error:
        return refuse(given.report, str(error))
    tell_parent(given.report, {"url": server.listening_address})
    os.close(given.report)  # the parent need not wait for more
    select.select([given.life], [], [])
    os._exit(1)  # not by returning: the server's destructor waits for streams in flight, possibly without end


def refuse(report: int, why: str) -> int:
    """Report to the parent that this configuration cannot work."""
    flush_log()
    tell_parent(report, {"error": why})
    return EX_CONFIG


def flush_log() -> None:
    """Write what llama.cpp's log thread still holds, for the last lines say why it ends.

    The two functions are C++ (common/log.h); a wheel without these mangled names flushes nothing.
    """
    with suppress(AttributeError, ImportError, OSError):
        library = ctypes.CDLL(importlib.import_module("xllamacpp.xllamacpp").__file__)
        library._Z15common_log_mainv.restype = ctypes.c_void_p
        library._Z16common_log_flushP10common_log(ctypes.c_void_p(library._Z15common_log_mainv()))


if __name__ == "__main__":
    sys.exit(main())
