"""`manners promote`, `rollback`, `status` and `audit`: thin clients of the admin API."""

import argparse
import json
import sys
import uuid
from collections.abc import Callable
from os import EX_CONFIG, EX_NOINPUT, EX_NOPERM, EX_UNAVAILABLE
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.cli.admin_client import AdminClient


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """The commands' flags."""
    promote = commands.add_parser("promote", help="let an engine that has proved itself serve a model")
    promote.add_argument("model", metavar="MODEL", help="the public model")
    promote.add_argument("engine", metavar="ENGINE", help="the engine that is to serve it")
    promote.add_argument(
        "--report", type=Path, metavar="FILE", help="report.json of its gate run (without it: by an override)"
    )
    rollback = commands.add_parser("rollback", help="back to what served before, at once")
    rollback.add_argument("model", metavar="MODEL", help="the public model")
    for command in (promote, rollback):
        command.add_argument("--dry-run", action="store_true", help="only show the plan")
        command.add_argument("--no-follow", action="store_true", help="begin it, and do not wait for its end")
    status = commands.add_parser("status", help="which engine serves which model, and what is under way")
    audit = commands.add_parser("audit", help="who changed what, and whether the chain of events holds")
    audit.add_argument(
        "--last", type=int, default=20, metavar="N", help="the newest events (default: %(default)s)"
    )
    for command, verb in ((promote, _promote), (rollback, _rollback), (status, _status), (audit, _audit)):
        command.add_argument(
            "--config", type=Path, metavar="FILE", help="whose gateway (default: the embedded)"
        )
        command.add_argument(
            "--admin", metavar="URL", help="the admin listener (default: the configuration's)"
        )
        command.add_argument("--json", action="store_true", help="the same as JSON on stdout")
        command.set_defaults(run=run, verb=verb)


def run(args: argparse.Namespace) -> int:
    """One command; its exit code."""
    from app.cli.admin_client import AdminClientError, GatewayUnreachable, RequestRejected
    from app.config.config import ConfigError

    try:
        verb: Callable[[AdminClient, argparse.Namespace], int] = args.verb
        return verb(_client(args), args)
    except ConfigError as error:
        return _fail(error, EX_CONFIG)
    except GatewayUnreachable as error:
        return _fail(error, EX_UNAVAILABLE)
    except RequestRejected as error:
        if args.json:
            print(json.dumps({"error": {"code": error.code, "message": error.message}}))
        return _fail(error, EX_NOPERM if error.status in (401, 403) else 1)
    except AdminClientError as error:
        return _fail(error, EX_UNAVAILABLE)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}", EX_NOINPUT)
    except KeyboardInterrupt:
        return 130


def _fail(why: object, code: int) -> int:
    print(f"manners: {why}", file=sys.stderr)
    return code


def _client(args: argparse.Namespace) -> "AdminClient":
    from app.cli.admin_client import AdminClient
    from app.config.config import ConfigError, load
    from app.http.keys import read_admin_token

    config = load(args.config)
    token = read_admin_token(config.secrets.admin_token, config.state_dir)
    if token is None:
        raise ConfigError(
            "no admin token: set MANNERS_ADMIN_TOKEN, or run this where the gateway has made one"
        )
    host = f"[{config.admin.host}]" if ":" in config.admin.host else config.admin.host
    return AdminClient(args.admin or f"http://{host}:{config.admin.port}", token)


def _promote(client: "AdminClient", args: argparse.Namespace) -> int:
    report = client.upload(args.report.read_bytes())["digest"] if args.report else None
    key = str(uuid.uuid4())
    begun = client.promote(args.model, args.engine, report, key=key, dry_run=args.dry_run)
    return _see(client, begun, args)


def _rollback(client: "AdminClient", args: argparse.Namespace) -> int:
    return _see(client, client.rollback(args.model, key=str(uuid.uuid4()), dry_run=args.dry_run), args)


def _see(client: "AdminClient", begun: dict[str, Any], args: argparse.Namespace) -> int:
    """A plan, a beginning, or the whole way to the end."""
    from app.cli.show_operation import Progress, show_plan

    if args.dry_run:
        print(json.dumps(begun, indent=1)) if args.json else show_plan(begun)
        return 0
    if args.no_follow:
        print(json.dumps(begun, indent=1) if args.json else begun["id"])
        return 0
    shown = None if args.json else Progress(begun)
    ended = begun
    for name, data in client.follow(begun["id"]):
        if name == "done":
            ended = data
        elif shown:
            shown.step(data)
    if shown:
        shown.end(ended)
    else:
        print(json.dumps(ended, indent=1))
    return 0 if ended["phase"] == "succeeded" else 1


def _status(client: "AdminClient", args: argparse.Namespace) -> int:
    from app.cli.show_operation import show_status

    said = client.status()
    print(json.dumps(said, indent=1)) if args.json else show_status(said)
    return 0


def _audit(client: "AdminClient", args: argparse.Namespace) -> int:
    from app.cli.show_operation import show_audit

    said = client.audit(limit=args.last, newest=True)
    print(json.dumps(said, indent=1)) if args.json else show_audit(said)
    return 0 if said["chain"]["ok"] else 1
