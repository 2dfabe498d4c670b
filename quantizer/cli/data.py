"""`manners data generate` and `manners data validate`: make conversations with a teacher model, and check them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gates.contracts.case import Suite
    from quantizer.data.generate import TeacherServer
    from quantizer.data.plan import DataPlan

FOUND: Final = 1
"""The exit code when a file was read and has findings."""
TIMEOUT: Final = 300.0
"""Of an answer, in seconds."""
BUSY_RETRIES: Final = 12
"""Of an answer, where a teacher is busy: a hosted one limits by the minute."""


def add(verbs: Any) -> None:
    """Add the commands and their flags. verbs: the result of argparse's `add_subparsers`."""
    words = "generate conversations with tools: with a teacher model behind OpenAI's API"
    _generate(verbs.add_parser("generate", help=words, description=words))
    words = (
        "check conversations for training: the gates' detectors, tool calls, duplicates, overlap with suites"
    )
    _validate(verbs.add_parser("validate", help=words, description=words))


def _generate(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("--url", required=True, metavar="URL", help="the teacher's address, with or without /v1")
    option("--out", type=Path, required=True, metavar="DIR",
           help="for ledger.jsonl, conversations.jsonl and manifest.json; an existing run continues")  # fmt: skip
    option("--plan", default="annie", metavar="P", help="a shipped plan or a .toml (default: %(default)s)")
    option(
        "--model",
        metavar="M",
        help="the model's name on the teacher's server (default: the first that it lists)",
    )
    option("--dialect", choices=("openai", "vllm", "llama-server"), default="openai",
           help="how thinking is switched, for which openai has nothing (default: %(default)s)")  # fmt: skip
    option("--thinking", type=int, default=0, metavar="TOKENS",
           help="let the teacher think for at most this many tokens before each answer, and keep its thoughts (default: off)")  # fmt: skip
    option("--count", action="append", default=[], metavar="CATEGORY=N",
           help="the number of conversations of a category (default: the plan's); may be repeated")  # fmt: skip
    option("--tries", type=int, metavar="N", help="candidates for each conversation (default: the plan's)")
    option("--suite", action="append", default=[], metavar="S",
           help="exclude everything that overlaps with this suite (default: every shipped one); may be repeated")  # fmt: skip
    option(
        "--concurrency", type=int, default=4, metavar="N", help="concurrent requests (default: %(default)s)"
    )
    key = parser.add_mutually_exclusive_group()
    key.add_argument("--key-env", metavar="NAME", help="the environment variable that holds the API key")
    key.add_argument("--key-file", type=Path, metavar="FILE", help="the file that holds the API key")
    option("--json", action="store_true", help="print the manifest as JSON, without progress")
    parser.set_defaults(part=run_generate, needs_torch=False)


def _validate(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("file", type=Path, metavar="FILE", help="conversations, JSONL")
    option(
        "--source",
        type=Path,
        metavar="DIR",
        help="a model folder: every row is rendered and masked as in training",
    )
    option("--template", metavar="T", help="hermes, or a .jinja file, in place of the folder's chat template")
    option("--suite", action="append", default=[], metavar="S",
           help="report prompts of this suite (default: every shipped one); may be repeated")  # fmt: skip
    option("--max-seconds", type=float, default=30.0, metavar="S",
           help="the longest spoken answer (default: %(default)g)")  # fmt: skip
    option("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(part=run_validate, needs_torch=False)


def run_generate(args: argparse.Namespace) -> int:
    """Run `data generate`. Returns the exit code."""
    from gates.run.http import RequestTimeouts
    from gates.run.runner import Pace
    from quantizer.data.generate import GenerationJob, generate

    plan = _plan(args)
    _at_least_one(args.concurrency, "--concurrency")
    timeouts = RequestTimeouts(idle=TIMEOUT, total=TIMEOUT)
    pace = Pace(concurrency=args.concurrency, timeouts=timeouts, busy_retries=BUSY_RETRIES)
    job = GenerationJob(plan, _counts(plan, args.count), _teacher(args), _suites(args.suite), pace)
    manifest = generate(job, args.out, now=datetime.now(UTC), quiet=args.json)
    print(json.dumps(manifest, indent=2, ensure_ascii=False) if args.json else _summary(manifest, args.out))
    return 0


def _teacher(args: argparse.Namespace) -> TeacherServer:
    """The teacher that the flags name. Raises UnavailableError, and RecipeError for flags that do not fit together."""
    from gates.contracts.errors import RunError
    from gates.run.http import first_model, read_key
    from quantizer.core.errors import RecipeError, UnavailableError
    from quantizer.data.generate import make_teacher

    if args.thinking < 0:
        raise RecipeError("--thinking must be a number of tokens, or 0")
    try:
        key = read_key(variable=args.key_env, file=args.key_file)
        base = make_teacher(
            args.url, "", args.dialect
        ).target.url  # an invalid address is told before it is used
        return make_teacher(base, args.model or first_model(base), args.dialect, key, args.thinking)
    except RunError as error:
        raise UnavailableError(str(error)) from None


def run_validate(args: argparse.Namespace) -> int:
    """Run `data validate`. Returns the exit code."""
    from quantizer.data.validate import report_as_json, report_lines, validate

    suites, more = _suites(args.suite), {"source": args.source, "template": args.template}
    report = validate(args.file, suites, **more, max_seconds=args.max_seconds)
    if args.json:
        print(json.dumps(report_as_json(report), indent=2, ensure_ascii=False))
    else:
        print("\n".join(report_lines(report)))
    return FOUND if report.findings else 0


def _plan(args: argparse.Namespace) -> DataPlan:
    """Load the plan and apply the flags that change it. Raises RecipeError."""
    from dataclasses import replace

    from quantizer.data.plan import load_plan

    plan = load_plan(args.plan)
    if args.tries is not None:
        plan = replace(plan, tries=_at_least_one(args.tries, "--tries"))
    return plan


def _at_least_one(value: int, name: str) -> int:
    from quantizer.core.errors import RecipeError

    if value < 1:
        raise RecipeError(f"{name} must be at least 1")
    return value


def _counts(plan: DataPlan, changes: list[str]) -> dict[str, int]:
    """The number of conversations wanted in each category. Raises RecipeError."""
    from quantizer.core.errors import RecipeError

    counts = {category.name: category.count for category in plan.categories}
    for change in changes:
        name, _, number = change.partition("=")
        if not number.isdecimal():
            raise RecipeError(f"--count {change}: write CATEGORY=N, as {plan.categories[0].name}=100")
        counts[plan.category(name).name] = int(number)
    return counts


def _suites(names: list[str]) -> list[Suite]:
    from gates.suite.load import load_suite, shipped

    return [load_suite(name) for name in names or shipped()]


def _summary(manifest: Mapping[str, Any], out: Path) -> str:
    """A summary of a manifest for a person."""
    file = manifest["file"]
    lines = [f"{out / file['name']}: {manifest['conversations']} conversations, {file['digest']}"]
    for name, count in manifest["categories"].items():
        why = ", ".join(f"{reason} {n}" for reason, n in manifest["rejected"][name].items())
        lines.append(f"  {name:12} {count:6} kept   rejected: {why or 'none'}")
    spoken = ", ".join(f"{name} {count}" for name, count in manifest["languages"].items())
    asked = f"; {manifest['answers_asked_for']} answers asked for"
    lines.append(f"  {manifest['with_calls']} with calls; {spoken}{asked}")
    lines.append(f"  clear of the suites {', '.join(manifest['clear_of'])}")
    return "\n".join(lines)
