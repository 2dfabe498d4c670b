"""`manners gate`: make reports, check and compare them, seal a model folder.

The gate itself is in `gates`; `app.cli.gate_engines` starts engines and identifies them.
"""

import argparse
import asyncio
import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from app.cli import gate_engines
from app.cli.exit_codes import CommandError
from app.cli.inspect_log import write_logs
from app.cli.terminal import show_rows
from app.config.config import Config, load
from app.config.served import config_for_running
from deploy.doctor.collectors.model import model
from deploy.doctor.model import FILE_TYPES
from gates.artefact import artefact as artefacts
from gates.artefact.artefact import Provenance
from gates.contracts.errors import ManifestError, ReportError, SuiteError
from gates.contracts.verdict import Decision
from gates.report.checks import stated_lineage
from gates.report.files import ATTACHMENTS, attach, open_report, suite_asked, verify_report, write_report
from gates.report.keys import load_or_make, trusted
from gates.report.statement import Statement
from gates.run.job import check_held, judge_samples, run_job
from gates.run.progress import Display
from gates.run.report_builder import build_statement, decision_summary, reply_texts, summary
from gates.run.rulings import FILE as RULINGS
from gates.run.rulings import read_rulings
from gates.run.sample_store import SampleStore, read_samples
from gates.suite.load import FILES, load_suite

EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 2}


def run(args: argparse.Namespace) -> int:
    """Run one verb and return its exit code."""
    if args.verb == "run":
        return asyncio.run(_run(args, _running(args)))
    if args.verb == "seal":
        return _seal(args)
    if args.verb == "new-suite":
        return _new_suite(args)
    verbs = {"verify": _verify, "rejudge": _rejudge, "compare": _compare, "export": _export}
    return verbs[args.verb](args, load(args.config))


def _running(args: argparse.Namespace) -> Config:
    """The configuration; of the two addresses, if there are any. Raises CommandError, ConfigError."""
    if args.full and args.sequential:
        raise CommandError("--full and --sequential exclude each other")
    urls = {"candidate": args.candidate_url, "baseline": args.baseline_url}
    wanted = {"candidate": args.candidate, "baseline": args.baseline}
    if all(wanted.values()) and not any(urls.values()):
        return load(args.config)
    if not all(urls.values()) or any(wanted.values()) or args.config:
        raise CommandError("name --candidate and --baseline, or both addresses and no configuration")
    if args.suite:
        load_suite(args.suite)  # its faults, before any engine is asked
    args.candidate, args.baseline = urls
    return config_for_running(urls)


async def _run(args: argparse.Namespace, config: Config) -> int:
    key = load_or_make(config.state_dir / "keys")
    attach(args.out, args.attach)  # one that cannot be read ends the run before an engine starts
    async with AsyncExitStack() as stack:
        job = await gate_engines.make_job(config, args, stack)
        attachments = attach(args.out, [*args.attach, *job.outside.files])
        data = gate_engines.check_contamination(job, args.data)
        args.out.mkdir(parents=True, exist_ok=True)
        arms = {arm: (one.target.artefact, one.target.engine) for arm, one in job.served_models.items()}
        with SampleStore(args.out / "samples.jsonl", suite=job.suite.digest, arms=arms) as store:
            check_held(args.out, job.served_models.values())
            judged = await run_job(job, store, track=Display)
            check_held(args.out, job.served_models.values())
            if (args.out / RULINGS).is_file():
                attachments += attach(args.out, [args.out / RULINGS])
            harness, host, now = gate_engines.harness(), gate_engines.host(), datetime.now(UTC)
            statement = build_statement(
                job, judged, store, harness=harness, host=host, now=now, data=data, attachments=attachments
            )
            written = write_report(args.out, statement, key, reply_texts(store.samples(), statement.judged))
    if args.json:
        print(summary(statement))
    else:
        _show_decision(statement.decision)
        print(f"{args.out}/report.html  {written.digest}")
    return EXIT_CODES[statement.verdict]


def _seal(args: argparse.Namespace) -> int:
    folder = artefacts.folder_for(args.folder)
    if fault := _other_format(folder, args.format):
        raise ManifestError(f"{folder}: --format {args.format}, but {fault}")
    source = artefacts.load(args.source) if args.source else None
    base = args.base_model or (source.provenance.base_model if source else None)
    origin = Provenance(base_model=base, parents={"source": source.root} if source else {})
    now = datetime.now(UTC)
    made = artefacts.seal(folder, name=args.name, format=args.format, created=now, provenance=origin)
    print(f"{folder / 'artefact.json'}: {made.root}")
    return 0


def _new_suite(args: argparse.Namespace) -> int:
    """Write a suite of five prompts, commented, into the current folder. Raises FileExistsError."""
    path = Path(f"{args.name.removesuffix('.yaml')}.yaml")
    with path.open("x", encoding="utf-8") as file:
        file.write((FILES.folder / "new.yaml").read_text("utf-8").replace("NAME", path.stem))
    print(f"{path}: five prompts to change; then `manners gate run --suite {path}` with two engines")
    return 0


def _rejudge(args: argparse.Namespace, config: Config) -> int:
    """Judge a run's stored samples by another policy. Sends no request to an engine, and signs nothing."""
    statement = _opened(args.folder, args.trust, config)
    args.suite = args.suite or suite_asked(args.folder, statement)
    suite = load_suite(args.suite)
    if suite.digest != statement.suite.digest:
        raise SuiteError(f"suite {suite.name} has changed since {args.folder} was asked: run the gate again")
    policy, cases = gate_engines.judged_by(args, config, suite)
    samples = read_samples(args.folder / "samples.jsonl", suite=statement.suite.digest)
    rulings = read_rulings(args.folder / ATTACHMENTS / RULINGS)
    lineage, order = stated_lineage(statement), statement.sequential
    found = judge_samples(policy, cases, samples, lineage, order=order, rulings=rulings)
    if args.json:
        print(json.dumps(decision_summary(found.decision), indent=2, ensure_ascii=False))
    else:
        _show_decision(found.decision)
        print(
            f"judged again by {policy.name} {policy.version}; only what `manners gate run` signs is promoted"
        )
    return EXIT_CODES[found.decision.verdict]


def _compare(args: argparse.Namespace, config: Config) -> int:
    """Print a table with a row for each fact and rule, and a column for each run."""
    runs = [_cells(_opened(folder, args.trust, config)) for folder in args.folders]
    rows = [(*row, *(run.get(row, "") for run in runs)) for row in dict.fromkeys(chain(*runs))]
    show_rows(("gate", "rule", *map(str, args.folders)), rows)
    return 0


def _cells(run: Statement) -> dict[tuple[str, str], str]:
    """The cells of a run: models, suite and policy, then each rule's mark with the first part of its sentence."""
    models = {"candidate": run.candidate.model, "baseline": run.baseline.model}
    chosen = {"suite": run.suite, "policy": run.policy}
    return {
        **{(name, ""): f"{model.name} {model.format}" for name, model in models.items()},
        **{(name, ""): f"{one.name} {one.version}" for name, one in chosen.items()},
        ("judged", ""): run.judged or "engine",
        ("verdict", ""): _MARKS[run.verdict],
        **{
            (r.gate, r.rule): f"{_MARKS[r.verdict]} {r.sentence.partition(' (')[0]}"
            for r in run.decision.gates
        },
    }


def _export(args: argparse.Namespace, config: Config) -> int:
    """The logs of a run for inspect_ai."""
    statement = _opened(args.folder, args.trust, config)
    samples = read_samples(args.folder / "samples.jsonl", suite=statement.suite.digest)
    for path in write_logs(args.inspect, statement, samples):
        print(path)
    return 0


def _opened(folder: Path, trust: list[Path], config: Config) -> Statement:
    """The report in a folder. Raises ReportError: its signature is no trusted one's."""
    try:
        return open_report(folder / "report.json", trusted(trust or [config.state_dir / "keys"])).statement
    except ReportError as error:
        raise ReportError(error.code, f"{folder}: {error}") from None


def _other_format(folder: Path, format: str) -> str | None:
    """The reason why a folder's files are not of this format; None: they may be."""
    found = model(folder)
    if (holds := any(name.endswith(".gguf") for name in found.files or ())) != format.startswith("gguf-"):
        return f"it holds {'a' if holds else 'no'} .gguf file"
    if found.gguf and found.gguf.file_type is not None and (kind := FILE_TYPES.get(found.gguf.file_type)):
        return None if format == f"gguf-{kind.lower()}" else f"its file is a GGUF of type gguf-{kind.lower()}"
    algorithm = found.quant_algo or found.config_quant_algo or found.quant_format or ""
    if "nvfp4" in algorithm.lower() and "nvfp4" not in format:
        return f"its configuration says {algorithm}"
    return "its configuration says nothing of NVFP4" if format == "hf-nvfp4" and not algorithm else None


def _verify(args: argparse.Namespace, config: Config) -> int:
    samples = args.report.parent / "samples.jsonl"
    folder: Path | None = args.artefact
    if folder and not folder.exists() and (engine := config.engines.get(str(folder))) and engine.artefact:
        folder = artefacts.folder_of(engine.artefact)
    found = verify_report(
        args.report,
        trusted=trusted(args.trust or [config.state_dir / "keys"]),
        now=datetime.now(UTC),
        samples=samples if samples.exists() else None,
        artefact=folder,
    )
    lines = [*(f"yes  {line}" for line in found.checked), *(f"?    {line}" for line in found.unchecked)]
    print(*lines, f"{found.statement.verdict}: {found.digest}", sep="\n")
    return 0


_MARKS = {"pass": "pass", "fail": "FAIL", "inconclusive": "inconclusive"}


def _show_decision(decision: Decision) -> None:
    """Print every rule and every control, and the verdict with its reasons."""
    tiers = {"critical": ""}
    rows: list[tuple[str, ...]] = [
        (_MARKS[one.verdict], one.gate, one.rule, one.sentence + tiers.get(one.tier, f" ({one.tier})"))
        for one in decision.gates
    ]
    rows += [("holds" if one.holds else "BROKEN", "control", "", one.sentence) for one in decision.controls]
    show_rows(("", "gate", "rule", "what was found"), rows)
    print(f"{_MARKS[decision.verdict]}: {'; '.join(decision.reasons)}")
