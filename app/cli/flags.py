"""Every command: its flags, and the module that does it, which is imported when it runs.

So that `manners --help` and a wrong flag are quick, this module imports little. Operators' commands are rows of
`app.cli.operating`, the quantizer's are in `quantizer`.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

from app.cli import operating
from app.cli.exit_codes import run
from app.cli.operating import Flag, flag
from gates.contracts.dialect import Dialect


@dataclass(frozen=True)
class CommandSpec:
    """One command: its help text, the module of this folder whose `run(args)` carries it out, and its flags."""

    about: str
    module: str
    flags: tuple[Flag, ...] = ()


def _count(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= 1_000_000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1")


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(","))


def _files(name: str, metavar: str, about: str) -> Flag:
    """A flag that may be repeated."""
    return flag(name, action="append", default=[], type=Path, metavar=metavar, help=about)


def _switch(name: str, about: str) -> Flag:
    return flag(name, action="store_true", help=about)


_ADMIN = flag("--admin", metavar="URL", help="the admin listener (default: the configuration's)")
_CONFIG = flag("--config", type=Path, metavar="FILE", help="TOML; without it, the embedded default")
_JSON = _switch("--json", "print JSON on stdout")
_TRUST = _files("--trust", "KEY", "a public key, or a folder of them (default: this host's own)")
_ENGINE = flag("engine", metavar="ENGINE", help="its name in the configuration")
_RUN = flag("folder", type=Path, metavar="DIR", help="the run's: report.json and samples.jsonl")
_STATE = (flag("file", type=Path, metavar="FILE"), _CONFIG)
COMMANDS: Final[Mapping[str, CommandSpec]] = {
    "serve": CommandSpec("run the gateway", "serve", (
        flag("models", nargs="*", metavar="MODEL", help="a .gguf file, a folder, or an engine's URL (default: the configuration's)"),
        flag("--name", metavar="N", help="the public name of the model (default: from its file)"),
        flag("--port", type=_count, metavar="P", help="for MODEL (default: 8080); operators: the next one"),
        flag("--ctx", type=_count, metavar="C", help="the context of MODEL, in tokens (default: the engine's)"),
        _CONFIG,
    )),
    "chat": CommandSpec("talk to a model in the terminal", "chat", (
        flag("message", nargs="?", help="one message; without it, a conversation"),
        flag("--url", help="the gateway (default: the one that runs, or http://127.0.0.1:8080)"),
        flag("--model", help="the public model name (default: the gateway's first)"),
    )),
    "engine list": CommandSpec("the engines of a configuration, and the models that use them", "engine", (_CONFIG, _JSON)),
    "engine check": CommandSpec("run the conformance suite on any engine", "engine", (
        flag("url", metavar="URL", help="the engine's address, with or without /v1"),
        flag("--dialect", choices=get_args(Dialect), default="openai", help="(default: %(default)s)"),
        flag("--model", metavar="NAME", help="the model's name on the engine (default: the first in its list)"),
        flag("--key-file", type=Path, metavar="FILE", help="a file with the engine's API key"),
        flag("--ca-file", type=Path, metavar="FILE", help="a file with the certificate authority of the engine, in PEM"),
        _JSON,
    )),
    "engine up": CommandSpec("start an engine, and wait until it streams a real completion", "engine", (_ENGINE, _CONFIG, _JSON)),
    "engine down": CommandSpec("stop an engine's container, and keep its log", "engine", (_ENGINE, _CONFIG)),
    "engine logs": CommandSpec("the last lines of an engine's log: of its container, or as saved", "engine", (
        flag("-n", "--lines", type=int, default=50, metavar="N", help="(default: %(default)s)"), _ENGINE, _CONFIG,
    )),
    "engine pin": CommandSpec("pin images: write the digests of their tags to engines.lock, NAME.lock.env", "engine", (
        flag("engines", nargs="*", metavar="ENGINE", help="(default: all that run in containers)"),
        flag("--compose", type=Path, metavar="ENV", help="instead: compose.yaml's images, as this env file names them"),
        _switch("--pull", "fetch the images first"), _CONFIG,
    )),
    "gate run": CommandSpec("ask both engines, judge, and write a signed report", "gate", (
        flag("--candidate", metavar="ENGINE", help="an engine of the configuration"),
        flag("--baseline", metavar="ENGINE", help="the same model before quantization"),
        flag("--candidate-url", metavar="URL", help="instead, without a configuration: a running engine"),
        flag("--baseline-url", metavar="URL", help="a running engine; no promotion takes a report of two addresses"),
        flag("--suite", metavar="S", help="a shipped suite, or a file: .yaml, .jsonl or .toml (default: [gates] suite)"),
        flag("--policy", metavar="P", help="a shipped policy, a .toml, or `derived` (default: [gates] policy; of .yaml, .jsonl: derived)"),
        flag("--out", type=Path, default=Path("gate"), metavar="DIR", help="where reports and samples go (default: %(default)s)"),
        _files("--data", "FILE", "training or calibration conversations (JSONL), in which no prompt of the suite may occur"),
        _files("--attach", "FILE", "results of another benchmark, for the report to carry; they decide nothing"),
        flag("--jobs", type=_count, default=1, metavar="N", help="requests at once, to different engines; for latency one by one"),
        _switch("--no-latency", "skip latency; if the policy has latency rules, the verdict is then never a pass"),
        _switch("--any-baseline", "ask whatever the baseline is; if no promotion takes it, the verdict is never a pass"),
        _switch("--full", "ask all of stage 1, even if the candidate has failed already"),
        _switch("--sequential", "ask in random order, and stop when every rule is decided"),
        _CONFIG, _JSON,
    )),
    "gate verify": CommandSpec("check a report offline: signature, samples, artefact", "gate", (
        flag("report", type=Path, metavar="REPORT", help="report.json; samples.jsonl beside it is checked too"),
        flag("--artefact", type=Path, metavar="DIR|ENGINE", help="what it must be about: a folder, or the engine that serves it"),
        _TRUST, _CONFIG,
    )),
    "gate new-suite": CommandSpec("write NAME.yaml: five prompts of your own, to be changed", "gate", (flag("name", metavar="NAME"),)),
    "gate rejudge": CommandSpec("judge the samples of a run again, by another policy", "gate", (
        _RUN,
        flag("--suite", metavar="S", help="the suite that was asked (default: by the report's name)"),
        flag("--policy", metavar="P", help="(default: [gates] policy; of .yaml, .jsonl: derived)"),
        _TRUST, _CONFIG, _JSON,
    )),
    "gate compare": CommandSpec("the rules of several runs side by side", "gate", (
        flag("folders", nargs="+", type=Path, metavar="DIR", help="runs' folders with report.json"), _TRUST, _CONFIG,
    )),
    "gate export": CommandSpec("write a run as logs of inspect_ai, for `inspect view --log-dir LOGS`", "gate", (
        flag("--inspect", type=Path, required=True, metavar="LOGS", help="the folder for one log of each arm"), _RUN, _TRUST, _CONFIG,
    )),
    "gate seal": CommandSpec("write the artefact.json of a model folder of your own", "gate", (
        flag("folder", type=Path, metavar="PATH", help="a folder; or a .gguf file, for which one is made beside it"),
        flag("--name", required=True, help="the model's name, the same for all its forms"),
        flag("--format", required=True, metavar="F", help="hf-bf16, hf-nvfp4, gguf-q4_k_m, gguf-f16, ..."),
        flag("--base-model", metavar="NAME", help="what it was fine-tuned from"),
        flag("--source", type=Path, metavar="DIR", help="the sealed folder that this one was converted from"),
    )),
    "doctor": CommandSpec("check host, images, models, configuration (exit code 1: a fault, 2: unknown)", "doctor", (_CONFIG, _JSON)),
    "bench": CommandSpec("time engines by turns: first content, first sentence, decoding rate", "bench", (
        flag("--engine", action="append", metavar="NAME", help="an engine of the configuration (default: those that models use)"),
        _switch("--matrix", "measure with thinking on and off, streamed and whole"),
        flag("--rounds", type=_count, default=4, metavar="N", help="rounds of two requests per prompt and cell (default: %(default)s)"),
        flag("--length", type=_lengths, default=(500,), metavar="N,N", help="tokens of the prompt (default: 500)"),
        _CONFIG, _JSON,
    )),
    "shadow replay": CommandSpec("compare two engines over recorded requests; it advises", "shadow", (
        flag("--candidate", required=True, metavar="ENGINE", help="an engine of the configuration"),
        flag("--against", metavar="ENGINE", help="the engine to compare with (default: that of the newest record)"),
        flag("--days", type=_count, default=1, metavar="N", help="the last N times 24 hours (default: %(default)s)"),
        flag("--limit", type=_count, metavar="N", help="the newest N records (default: all)"),
        _CONFIG, _JSON,
    )),
    "state backup": CommandSpec("copy the registry to FILE; the gateway may run", "state", _STATE),
    "state restore": CommandSpec("put FILE in the registry's place; the gateway must be stopped", "state", _STATE),
    **{name: CommandSpec(verb.about, "operating", (*verb.flags, _ADMIN, _CONFIG, _JSON)) for name, verb in operating.VERBS.items()},
}  # fmt: skip


def add_all(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add every command but those of the quantizer."""
    groups = {"": commands}
    for name, command in COMMANDS.items():
        group, _, word = name.rpartition(" ")
        if group not in groups:
            words = [one.removeprefix(f"{group} ") for one in COMMANDS if one.startswith(f"{group} ")]
            whole = commands.add_parser(group, help=", ".join(words))
            groups[group] = whole.add_subparsers(metavar="VERB", required=True, parser_class=type(whole))
        parser = groups[group].add_parser(word, help=command.about, description=command.about)
        for names, options in command.flags:
            parser.add_argument(*names, **options)
        verb = name if command.module == "operating" else word
        parser.set_defaults(run=partial(run, name, command.module), verb=verb)
