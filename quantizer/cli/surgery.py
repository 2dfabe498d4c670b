"""`manners quantize surgery DIR (--out DIR | --in-place | --check) [--for vllm-0.24] [--owner UID] [--json]`.

Exit code 0: done, or nothing to do. With --check, 1: something has to be changed or cannot be fixed.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from os import EX_DATAERR
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from quantizer.surgery.operation import NEWEST, TRANSFORMERS_5, WRAPS, Server, parse_server

if TYPE_CHECKING:
    from quantizer.surgery.plan import SurgeryPlan

SOUND, FAULTY = 0, 1
MARKS: Final = {"fine": "ok", "needed": "do", "refused": "NO"}


def add(verbs: Any) -> None:
    """Add the command and its flags. verbs: the result of argparse's `add_subparsers`."""
    parser = verbs.add_parser(
        "surgery",
        help="make a model folder loadable for a server",
        description="Detect, report and fix what keeps a server from loading a folder; never in place unless requested.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="a Hugging Face folder, in BF16 or NVFP4")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=Path, metavar="DIR", help="the folder to write")
    where.add_argument("--in-place", action="store_true", help="replace the folder by the result")
    where.add_argument(
        "--check", action="store_true", help="only report; exit code 1 if something has to be changed"
    )
    parser.add_argument(
        "--for",
        dest="server",
        type=_server,
        default=parse_server(NEWEST),
        metavar="SERVER",
        help=f"vllm-0.19, vllm-0.24, …, or text for the bare text model (default: {NEWEST}); "
        f"vLLM before {WRAPS[0]}.{WRAPS[1]} gets Qwen3.5 wrapped, before {TRANSFORMERS_5[0]}.{TRANSFORMERS_5[1]} a tokenizer of transformers 4",
    )
    parser.add_argument("--owner", type=int, metavar="UID", help="the user id that should own the files")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(part=run)


def run(args: argparse.Namespace) -> int:
    """Report what has to be changed, and change it if asked to. Returns the exit code. Raises QuantizerError."""
    from quantizer.surgery.plan import apply_in_place, apply_plan, make_plan

    found = make_plan(args.folder, args.server, args.owner)
    root = None
    if found.needed and not found.refused and not args.check:
        now = datetime.now(UTC)
        root = (apply_in_place(found, now) if args.in_place else apply_plan(found, args.out, now)).root
    if args.json:
        print(json.dumps(found.as_json() | {"root": root}, indent=2))
    else:
        print(report(found))
        print(_last(args, found, root))
    if args.check:
        return FAULTY if found.needed or found.refused else SOUND
    return EX_DATAERR if found.refused else SOUND


def report(found: SurgeryPlan) -> str:
    """The plan as text: one line for each operation, its changes below."""
    lines = [f"{found.before.path}, for {found.server.name}"]
    for step in found.steps:
        lines.append(f"  {MARKS[step.state]}  {step.operation:<13} {step.why}")
        lines += [f"{'':21}{change}" for change in step.changes]
    if found.before.left:
        lines.append(f"  not part of a model, left behind: {', '.join(found.before.left)}")
    return "\n".join(lines)


def _last(args: argparse.Namespace, found: SurgeryPlan, root: str | None) -> str:
    if found.refused:
        return "refused: nothing was written"
    if not found.needed:
        return "nothing to do: the folder can be served as it is"
    if root is None:
        return f"{len(found.needed)} to do: name --out to do it"
    hint = " (start vLLM with --language-model-only)" if found.after.config["model_type"] == "qwen3_5" else ""
    return f"written: {args.folder if args.in_place else args.out}, {root}{hint}"


def _server(name: str) -> Server:
    try:
        return parse_server(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
