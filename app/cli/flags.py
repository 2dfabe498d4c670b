"""The flags of every command. What a command does is in the module that it names here, which is imported when it runs.

So that `manners --help` and a wrong flag are quick, this module imports little.
"""

import argparse
import importlib
import re
from pathlib import Path
from typing import Any, get_args

from app.cli import operating
from gates.contracts.dialect import Dialect

DEFAULT_CONFIG = "TOML; without it, the embedded default"


def _runs(parser: argparse.ArgumentParser, module: str, **defaults: object) -> None:
    """Let the command be done by `run(args)` of a module of this folder."""

    def run(args: argparse.Namespace) -> int:
        return int(importlib.import_module(f"app.cli.{module}").run(args))

    parser.set_defaults(run=run, **defaults)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} must be a port from 1 to 65534")
    return int(text)


def _file_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", text):
        raise argparse.ArgumentTypeError(f"{text!r} must be a name of letters, digits, `.`, `_` and `-`")
    return text


def add_all(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add every command but those of the quantizer."""
    server = commands.add_parser(
        "serve",
        help="run the gateway",
        description="Without MODEL, the configuration's models; without that, too, the nano models of the package.",
    )
    server.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="a .gguf file, a model's folder, or the URL of a running engine",
    )
    server.add_argument("--name", metavar="N", help="the public name of the model (default: from its file)")
    server.add_argument(
        "--port", type=_port, metavar="P", help="for MODEL (default: 8080); operators: the next one"
    )
    server.add_argument(
        "--ctx", type=_count, metavar="C", help="the context of MODEL, in tokens (default: the engine's)"
    )
    server.add_argument("--config", type=Path, metavar="FILE", help=DEFAULT_CONFIG)
    _runs(server, "serve")
    chat = commands.add_parser("chat", help="talk to a model in the terminal")
    chat.add_argument("message", nargs="?", help="one message; without it, a conversation")
    chat.add_argument("--url", help="the gateway (default: the one that runs, or http://127.0.0.1:8080)")
    chat.add_argument("--model", help="the public model name (default: the gateway's first)")
    chat.add_argument("--think", action="store_true", help="ask the model to think first")
    _runs(chat, "chat")
    for add in (_engine, _gate, _operate, _doctor, _bench, _shadow, _state):
        add(commands)


def _engine(commands: "argparse._SubParsersAction[Any]") -> None:
    engine = commands.add_parser("engine", help="list, check, start, stop and pin engines")
    verbs = engine.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=type(engine))
    lists = verbs.add_parser("list", help="the engines of a configuration, and the models that use them")
    check = verbs.add_parser("check", help="run the conformance suite on any engine")
    check.add_argument("url", metavar="URL", help="the engine's address, with or without /v1")
    check.add_argument(
        "--dialect", choices=get_args(Dialect), default="openai", help="(default: %(default)s)"
    )
    check.add_argument(
        "--model", metavar="NAME", help="the model's name on the engine (default: the first in its list)"
    )
    check.add_argument("--key-file", type=Path, metavar="FILE", help="a file with the engine's API key")
    check.add_argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="a file with the certificate authority of the engine, in PEM",
    )
    up = verbs.add_parser("up", help="start an engine, and wait until it streams a real completion")
    down = verbs.add_parser("down", help="stop an engine's container, and keep its log")
    logs = verbs.add_parser("logs", help="the last lines of an engine's log: of its container, or as saved")
    for verb in (up, down, logs):
        verb.add_argument("engine", metavar="ENGINE", help="its name in the configuration")
    logs.add_argument("-n", "--lines", type=int, default=50, metavar="N", help="(default: %(default)s)")
    pin = verbs.add_parser(
        "pin", help="pin images: write the digests of their tags to engines.lock, NAME.lock.env"
    )
    pin.add_argument("engines", nargs="*", metavar="ENGINE", help="(default: all that run in containers)")
    pin.add_argument("--pull", action="store_true", help="fetch the images first")
    pin.add_argument(
        "--check", action="store_true", help="with --compose: only check whether the lock is up to date"
    )
    source = pin.add_mutually_exclusive_group()
    source.add_argument(
        "--compose", type=Path, metavar="ENV", help="compose.yaml's images, as this env file names them"
    )
    for verb in (lists, up, down, logs, source):
        verb.add_argument("--config", type=Path, metavar="FILE", help=DEFAULT_CONFIG)
    for verb in (lists, check, up, down, pin):
        verb.add_argument("--json", action="store_true", help="print JSON on stdout")
    _runs(engine, "engine")


def _gate(commands: "argparse._SubParsersAction[Any]") -> None:
    gate = commands.add_parser("gate", help="test whether a model still behaves as its baseline does")
    verbs = gate.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=type(gate))
    _gate_run(verbs.add_parser("run", help="ask both engines, judge, and write a signed report"))
    _gate_verify(verbs.add_parser("verify", help="check a report offline: signature, samples, artefact"))
    new = verbs.add_parser("new-suite", help="write NAME.yaml: five prompts of your own, to be changed")
    new.add_argument("name", metavar="NAME", type=_file_name)
    _gate_seal(verbs.add_parser("seal", help="write the artefact.json of a model folder of your own"))
    _runs(gate, "gate")


def _gate_run(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("--candidate", required=True, metavar="ENGINE", help="an engine of the configuration")
    option("--baseline", required=True, metavar="ENGINE", help="the same model before quantization")
    option("--control", action="append", default=[], metavar="NAME=ENGINE",
           help="the engine of a negative control (default: [gates.controls])")  # fmt: skip
    option(
        "--suite",
        metavar="S",
        help="a shipped suite, or a file: .yaml, .jsonl or .toml (default: [gates] suite)",
    )
    option(
        "--policy",
        metavar="P",
        help="a shipped policy, a .toml, or `derived` from the suite (default: [gates] policy; of a .yaml or .jsonl: derived)",
    )
    option("--config", type=Path, metavar="FILE", help=DEFAULT_CONFIG)
    option("--out", type=Path, default=Path("gate"), metavar="DIR",
           help="report.json, report.html, report.md, samples.jsonl (default: %(default)s)")  # fmt: skip
    option("--data", action="append", default=[], type=Path, metavar="FILE",
           help="training or calibration conversations (JSONL), in which no prompt of the suite may occur")  # fmt: skip
    option("--no-latency", action="store_true",
           help="skip latency; if the policy has latency rules, the verdict is then never a pass")  # fmt: skip
    option("--full", action="store_true",
           help="ask all of stage 1, even if the candidate has failed already")  # fmt: skip
    option("--any-baseline", action="store_true",
           help="ask although the baseline is another model or not the configured one; the verdict is then never a pass")  # fmt: skip
    option("--attach", action="append", default=[], type=Path, metavar="FILE",
           help="results of another benchmark (lm-eval, bfcl-eval, ...) for the report to carry; they decide nothing")  # fmt: skip
    option("--json", action="store_true", help="the verdict and every rule as JSON on stdout")


def _gate_verify(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("report", type=Path, metavar="REPORT", help="report.json; samples.jsonl beside it is checked too")
    option("--artefact", type=Path, metavar="DIR|ENGINE",
           help="what the report must be about: a model folder, or the configured engine that serves it")  # fmt: skip
    option("--trust", action="append", default=[], type=Path, metavar="KEY",
           help="a public key, or a folder of them (default: this host's own)")  # fmt: skip
    option(
        "--config",
        type=Path,
        metavar="FILE",
        help="the configuration whose state folder holds this host's key",
    )


def _gate_seal(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option(
        "folder",
        type=Path,
        metavar="DIR",
        help="every file in it is hashed; a .gguf needs a folder of its own",
    )
    option("--name", required=True, help="the model's name, the same for all its forms")
    option("--format", required=True, metavar="F", help="hf-bf16, hf-nvfp4, gguf-q4_k_m, gguf-f16, ...")
    option("--base-model", metavar="NAME", help="what it was fine-tuned from")
    option("--source", type=Path, metavar="DIR", help="the sealed folder that this one was converted from")
    option("--config", type=Path, help=argparse.SUPPRESS)


def _operate(commands: "argparse._SubParsersAction[Any]") -> None:
    for verb, parser in operating.parsers(commands):
        _runs(parser, "operating", verb=verb)


def _doctor(commands: "argparse._SubParsersAction[Any]") -> None:
    doctor = commands.add_parser(
        "doctor",
        help="check the host, the images, the models and the configuration",
        description="Exit code 0: nothing worse than a warning. 1: something is wrong. 2: something is not known.",
    )
    option = doctor.add_argument
    option("--config", type=Path, metavar="FILE", help=DEFAULT_CONFIG)
    option(
        "--probe",
        action="store_true",
        help="start each image once to see what is inside (by digest, then kept)",
    )
    option("--hashes", action="store_true", help="compare every byte of the models with their artefact.json")
    option(
        "--save", type=Path, metavar="FILE", help="write the collected facts to a file, for another machine"
    )
    option("--evidence", type=Path, metavar="FILE", help="check saved facts instead of this machine")
    option("--problems", action="store_true", help="show only what is not ok")
    option("--json", action="store_true", help="every finding as JSON on stdout")
    _runs(doctor, "doctor")


def _bench(commands: "argparse._SubParsersAction[Any]") -> None:
    bench = commands.add_parser(
        "bench",
        help="time serving configurations against each other",
        description="Measures time to first content, time to first sentence and decoding rate; the engines take turns.",
    )
    option = bench.add_argument
    option("--config", type=Path, metavar="FILE", help=DEFAULT_CONFIG)
    option("--engine", action="append", default=[], metavar="NAME",
           help="an engine of the configuration (default: those that models use)")  # fmt: skip
    option("--profile", action="append", default=[], metavar="NAME=WHERE[,IMAGE]",
           help="a serving profile for an artefact, or for the address of a running server")  # fmt: skip
    option("--matrix", action="store_true", help="measure with thinking on and off, streamed and whole")
    option(
        "--prompts", type=_count, default=3, metavar="N", help="prompts of the suite (default: %(default)s)"
    )
    option("--rounds", type=_count, default=4, metavar="N",
           help="rounds of two requests per prompt and cell (default: %(default)s)")  # fmt: skip
    option(
        "--length", type=_lengths, default=(500,), metavar="N,N", help="tokens of the prompt (default: 500)"
    )
    option("--regime", choices=("steady", "cold"), default="steady",
           help="steady: the conversation so far is in the prefix cache (default); cold: nothing is")  # fmt: skip
    option(
        "--pause", type=float, default=0.5, metavar="SECONDS", help="silence before a request (default: 0.5)"
    )
    option("--max-tokens", type=_count, default=96, metavar="N", help="of an answer (default: %(default)s)")
    option("--suite", metavar="S", help="the suite that the prompts are from (default: [gates] suite)")
    option(
        "--apart",
        action="store_true",
        help="run one engine at a time, for engines that do not fit into memory together",
    )
    option("--out", type=Path, metavar="DIR", help="keep every raw reply there; the same command resumes")
    option("--json", action="store_true", help="the table as JSON on stdout")
    _runs(bench, "bench")


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(","))


def _shadow(commands: "argparse._SubParsersAction[Any]") -> None:
    shadow = commands.add_parser("shadow", help="replay recent requests through a candidate, and compare")
    verbs = shadow.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=type(shadow))
    replay = verbs.add_parser(
        "replay",
        help="recorded requests through the candidate and the live engine",
        description="Tool calls, breaches, lengths and times of two engines over the same requests. Advisory.",
    )
    option = replay.add_argument
    option("--candidate", required=True, metavar="ENGINE", help="an engine of the configuration")
    option(
        "--against", metavar="ENGINE", help="the engine to compare with (default: that of the newest record)"
    )
    option("--model", metavar="NAME", help="only requests to this public model")
    option(
        "--days", type=_count, default=1, metavar="N", help="the last N times 24 hours (default: %(default)s)"
    )
    option("--limit", type=_count, metavar="N", help="the newest N records (default: all)")
    option("--config", type=Path, metavar="FILE", help=DEFAULT_CONFIG)
    option("--json", action="store_true", help="print JSON on stdout")
    _runs(shadow, "shadow")


def _state(commands: "argparse._SubParsersAction[Any]") -> None:
    state = commands.add_parser("state", help="back up the gateway's registry, and restore it")
    verbs = state.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=type(state))
    for verb, about in (
        ("backup", "copy the registry to FILE; the gateway may run"),
        ("restore", "put FILE in the registry's place; the gateway must be stopped"),
    ):
        command = verbs.add_parser(verb, help=about)
        command.add_argument("file", type=Path, metavar="FILE")
        command.add_argument("--config", type=Path, metavar="FILE", help="the gateway's TOML")
        _runs(command, "state")
