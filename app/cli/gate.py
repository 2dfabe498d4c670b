"""`manners gate run`, `verify` and `seal`: make a report, check one, seal a model folder.

The gate itself is in `gates`; `app.cli.gate_engines` starts engines and identifies them.
"""

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from os import EX_CONFIG, EX_DATAERR, EX_UNAVAILABLE
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.config.config import Config

EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 2}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    gate = commands.add_parser("gate", help="test whether a model still behaves as its baseline does")
    verbs = gate.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=type(gate))
    _add_run(verbs.add_parser("run", help="ask both engines, judge, and write a signed report"))
    _add_verify(verbs.add_parser("verify", help="check a report offline: signature, samples, artefact"))
    _add_seal(verbs.add_parser("seal", help="write the artefact.json of a model folder of your own"))
    gate.set_defaults(run=run)


def _add_run(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("--candidate", required=True, metavar="ENGINE", help="an engine of the configuration")
    option("--baseline", required=True, metavar="ENGINE", help="the same model before quantization")
    option("--control", action="append", default=[], metavar="NAME=ENGINE",
           help="the engine of a negative control (default: [gates.controls])")  # fmt: skip
    option("--suite", metavar="S", help="a shipped suite or a .toml (default: [gates] suite)")
    option("--policy", metavar="P", help="a shipped policy or a .toml (default: [gates] policy)")
    option("--config", type=Path, metavar="FILE", help="TOML; without it, the embedded default")
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


def _add_verify(parser: argparse.ArgumentParser) -> None:
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


def _add_seal(parser: argparse.ArgumentParser) -> None:
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


def run(args: argparse.Namespace) -> int:
    """Run one verb and return its exit code."""
    from app.cli.exit_codes import exit_code
    from app.config.config import ConfigError
    from deploy.core.errors import DeployError
    from gates.contracts.errors import GatesError, ReportError, RunError

    codes = {ReportError: 1, ConfigError: EX_CONFIG, DeployError: EX_CONFIG, RunError: EX_UNAVAILABLE, GatesError: EX_DATAERR}  # fmt: skip
    return exit_code(
        "manners gate",
        lambda: _verb(args),
        codes,
        words=lambda error: f"{error.code}: {error}" if isinstance(error, ReportError) else error,
        stopped="stopped; run the same command again to go on",
    )


def _verb(args: argparse.Namespace) -> int:
    from app.config.config import load

    config = load(args.config)
    if args.verb == "seal":
        return _seal(args)
    if args.verb == "verify":
        return _verify(args, config)
    return asyncio.run(_run(args, config))


async def _run(args: argparse.Namespace, config: "Config") -> int:
    from app.cli import gate_engines
    from gates.report.keys import load_or_make
    from gates.report.write import attach, write_report
    from gates.run.held_files import check_held, hold
    from gates.run.job import run_job
    from gates.run.progress import make_progress
    from gates.run.report_builder import build_statement, reply_texts, summary
    from gates.run.sample_store import SampleStore

    chosen = dict(config.gates.controls) | gate_engines.pairs(args.control)
    attachments = attach(args.out, args.attach)
    key = load_or_make(config.state_dir / "keys")
    async with AsyncExitStack() as stack:
        job = await gate_engines.make_job(
            config,
            stack,
            candidate=args.candidate,
            baseline=args.baseline,
            suite=args.suite or config.gates.suite,
            policy=args.policy or config.gates.policy,
            controls=chosen,
            timed=not args.no_latency,
            full=args.full,
            any_baseline=args.any_baseline,
        )
        if short := gate_engines.short_words(job):
            print(short, file=sys.stderr)
        checked_data = gate_engines.check_contamination(job, args.data)
        args.out.mkdir(parents=True, exist_ok=True)
        with SampleStore(
            args.out / "samples.jsonl", suite=job.suite.digest, arms=gate_engines.identities(job)
        ) as store:
            hold(args.out, job.served_models.values())
            judged = await run_job(job, store, track=make_progress)
            check_held(job.served_models.values())
            now = datetime.now(UTC)
            statement = build_statement(
                job,
                judged,
                store,
                harness=gate_engines.harness(),
                host=gate_engines.host(),
                now=now,
                data=checked_data,
                attachments=attachments,
            )
            written = write_report(args.out, statement, key, reply_texts(store.samples()))
    if args.json:
        print(summary(statement))
    else:
        gate_engines.show(statement, written, short)
    return EXIT_CODES[statement.verdict]


def _seal(args: argparse.Namespace) -> int:
    from gates.artefact.artefact import load, seal
    from gates.artefact.manifest import Provenance

    source = load(args.source) if args.source else None
    base = args.base_model or (source.provenance.base_model if source else None)
    parents = {"source": source.root} if source else {}
    made = seal(args.folder, name=args.name, format=args.format, created=datetime.now(UTC),
                provenance=Provenance(base_model=base, parents=parents))  # fmt: skip
    print(f"{args.folder / 'artefact.json'}: {made.root}")
    return 0


def _verify(args: argparse.Namespace, config: "Config") -> int:
    from gates.artefact.artefact import folder_of
    from gates.report.keys import trusted
    from gates.report.verify import verify_report

    samples = args.report.parent / "samples.jsonl"
    places = args.trust or [config.state_dir / "keys"]
    folder: Path | None = args.artefact
    if folder and not folder.exists() and (engine := config.engines.get(str(folder))) and engine.artefact:
        folder = folder_of(engine.artefact)
    found = verify_report(
        args.report,
        trusted=trusted(places),
        now=datetime.now(UTC),
        samples=samples if samples.exists() else None,
        artefact=folder,
    )
    for line in found.checked:
        print(f"yes  {line}")
    for line in found.unchecked:
        print(f"?    {line}")
    print(f"{found.statement.verdict}: {found.digest}")
    return 0
