"""What our profiles start vLLM with, read by the parser of a real vLLM: flags and values, without a GPU or weights.

compose.yaml and the docker driver start it with these same words (`tests/ops/test_compose.py`).
"""

import json
import os
import subprocess
from typing import Any

import pytest

from deploy.drivers.container import MODEL, PORT
from deploy.engine.dialect import Launch
from deploy.engine.dialects import server_args
from deploy.engine.spec import EngineSpec
from tests.conformance.conftest import installs
from tests.conformance.engines import Install
from tests.deploy.profiles import NAMES, profile

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
READ = """
import contextlib, io, json, sys
try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
except ImportError:  # vLLM 0.24
    from vllm.entrypoints.openai.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = make_arg_parser(FlexibleArgumentParser())
for words in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            args = parser.parse_args(["--model", *words])
            validate_parsed_serve_args(args)
            found = {"name": args.served_model_name, "quantization": args.quantization}
        except (SystemExit, ValueError, TypeError) as error:
            found = {"error": said.getvalue()[-300:] or str(error)}
    print("read:", json.dumps(found))
"""
"""The model comes first, where `vllm serve` takes it without a flag."""


def read(install: Install, argvs: list[list[str]]) -> list[dict[str, Any]]:
    """What vLLM makes of each command line."""
    environ = {**os.environ, **install.environment, "VLLM_LOGGING_LEVEL": "ERROR", "PYTHONPATH": ""}
    done = subprocess.run(
        [str(install.python), "-c", READ], input=json.dumps(argvs), env=environ, capture_output=True, text=True, timeout=300
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.removeprefix("read: ") for line in done.stdout.splitlines() if line.startswith("read: ")]
    return [json.loads(line) for line in lines]


def shipped() -> dict[str, list[str]]:
    """The command line of each profile's vLLM, as the docker driver gives it, behind `vllm serve`."""
    found = {}
    for name in NAMES:
        if (table := profile(name))["dialect"] == "vllm":
            image, args = f"sha256:{'1' * 64}", tuple(table["args"])
            spec = EngineSpec(name=name, dialect="vllm", driver="docker", image=image, args=args)
            found[name] = list(server_args(spec, Launch(model=MODEL, host="0.0.0.0", port=PORT)))
    return found


@pytest.mark.parametrize("install", installs(), ids=lambda install: install.target)
def test_a_real_vllm_takes_every_flag_of_every_profile_and_refuses_a_wrong_one(install: Install) -> None:
    if install.missing:
        pytest.skip(install.missing)
    profiles = shipped()
    wrong = [["/model", "--no-such-flag"], ["/model", "--max-model-len", "long"]]
    *found, unknown, odd = read(install, [*profiles.values(), *wrong])
    assert {name: one["error"] for name, one in zip(profiles, found, strict=True) if "error" in one} == {}
    assert [one["name"] for one in found] == [[name] for name in profiles]
    assert "--no-such-flag" in unknown["error"] and "--max-model-len" in odd["error"]
