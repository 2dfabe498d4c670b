"""`manners promote`, `rollback`, `status` and `audit`: what is shown, and the exit code, against a real gateway."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.__main__ import main
from app.cli import gateway_client
from app.cli.gateway_client import GatewayClient, GatewayError
from app.promotion.state_machine import PATHS, OperationKind
from gates.report.statement import format_time
from tests.app.cli.test_access import HEAD
from tests.app.house import TOKEN
from tests.app.promotion.stage import Stage, signed, stage, statement
from tests.app.promotion.stage import quick as quick


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One gateway for the tests that leave it as it was: `small` is live."""
    async with stage(tmp_path_factory.mktemp("state")) as found:
        yield found


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that breaks no line."""
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("MANNERS_ADMIN_TOKEN", raising=False)


def settings(state: Path, port: int, token: str | None = TOKEN) -> list[str]:
    """Flags that name a configuration whose gateway keeps this token."""
    state.mkdir(exist_ok=True)
    if token:
        (state / "admin.token").write_text(token)
        (state / "admin.token").chmod(0o600)
    (state / "manners.toml").write_text(f'{HEAD}state = "{state}"\nadmin = "127.0.0.1:{port}"\n')
    return ["--config", str(state / "manners.toml")]


async def command(running: Stage, tmp_path: Path, *words: str, token: str | None = TOKEN) -> int:
    """Its exit code. The command blocks, and the gateway is in this very loop."""
    port = int(running.house.admin.rpartition(":")[2])
    return await asyncio.to_thread(main, [*words, *settings(tmp_path / "own", port, token)])


def report(running: Stage, tmp_path: Path, candidate: str = "large") -> list[str]:
    """Flags that name a sound report of `candidate`."""
    path = tmp_path / "report.json"
    path.write_bytes(signed(running.config, statement(running.config, candidate, "small")))
    return ["--report", str(path)]


LIVE = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]


def live(test: Any) -> Any:
    """It needs the gateway and its engines."""
    for mark in LIVE:
        test = mark(test)
    return test


# ------------------------------------------------------------------------- on one gateway, unchanged


@live
@pytest.mark.parametrize(
    ("word", "told"),
    [("status", r"^ready, 0 in flight$.*annie +small"), ("audit", r"live\.founded.*^the chain holds")],
)
async def test_who_serves_and_who_changed_what_is_shown(
    running: Stage, tmp_path: Path, capsys: Any, word: str, told: str
) -> None:
    assert await command(running, tmp_path, word) == 0
    assert re.search(told, capsys.readouterr().out, re.M | re.S)


@live
async def test_an_audit_whose_chain_is_broken_ends_with_1(
    running: Stage, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"events": [], "head": {"seq": 9, "hash": "0"}, "chain": {"ok": False, "seq": 7, "why": "forged"}}
    monkeypatch.setattr(GatewayClient, "call", lambda *_, **__: said)
    assert await command(running, tmp_path, "audit") == 1
    assert "THE CHAIN IS BROKEN at 7: forged" in capsys.readouterr().out


@pytest.mark.slow  # engines are started and promoted: 1 s
@live
async def test_a_dry_run_shows_the_plan_and_changes_nothing(
    running: Stage, tmp_path: Path, capsys: Any
) -> None:
    wish = ("promote", "annie", "large", *report(running, tmp_path), "--dry-run")
    assert await command(running, tmp_path, *wish) == 0
    shown = capsys.readouterr().out
    assert "small → large, blue/green; nothing is changed yet" in shown and "GiB available" in shown
    assert (await running.get("/admin/operations"))["operations"] == []


@live
@pytest.mark.parametrize(
    "words, code",
    [
        (("rollback", "annie"), "no_previous"),
        (("promote", "annie", "large"), "report_missing"),
        (("promote", "nobody", "large"), "model_not_found"),
    ],
)
async def test_a_refusal_is_one_line_with_its_code_and_ends_with_1(
    running: Stage, tmp_path: Path, capsys: Any, words: tuple[str, ...], code: str
) -> None:
    assert await command(running, tmp_path, *words) == 1
    shown = capsys.readouterr()
    assert (
        shown.out == ""
        and shown.err.startswith(f"manners {words[0]}: {code}: ")
        and shown.err.count("\n") == 1
    )


@live
async def test_an_override_is_granted_listed_and_withdrawn(
    running: Stage, tmp_path: Path, capsys: Any
) -> None:
    words = ("--waive", "report_missing", "--reason", "the gate is down", "--hours", "1")
    assert await command(running, tmp_path, "override", "add", "annie", "large", *words, "--json") == 0
    granted = json.loads(capsys.readouterr().out)
    assert await command(running, tmp_path, "override", "list") == 0
    assert re.search(rf"{granted['id']} +annie +large +report_missing", capsys.readouterr().out)
    assert await command(running, tmp_path, "override", "withdraw", str(granted["id"])) == 0
    assert await command(running, tmp_path, "override", "list", "--json") == 0
    assert capsys.readouterr().out.endswith('{\n "overrides": []\n}\n')


@live
async def test_a_revoked_report_promotes_nothing(running: Stage, tmp_path: Path, capsys: Any) -> None:
    flags, own = report(running, tmp_path), format_time(datetime.now(UTC) - timedelta(hours=1))
    made = statement(running.config, "large", "small", created=own)
    (tmp_path / "report.json").write_bytes(signed(running.config, made))
    assert await command(running, tmp_path, "revoke", flags[1], "--reason", "wrong hardware") == 0
    assert await command(running, tmp_path, "promote", "annie", "large", *flags, "--dry-run") == 1
    assert "manners promote: revoked: report" in capsys.readouterr().err
    assert await command(running, tmp_path, "revoke", "no-such-engine", "--reason", "wrong") == 66
    assert await command(running, tmp_path, "revoke", "spare", "--reason", "wrong kernel") == 0
    assert "the engine sha256:" in capsys.readouterr().out


@live
async def test_a_wrong_token_ends_with_77(running: Stage, tmp_path: Path, capsys: Any) -> None:
    assert await command(running, tmp_path, "status", token="somebody-else's") == 77


# ----------------------------------------------------------------------- a gateway that is changed


@live
@pytest.mark.usefixtures("quick")
async def test_a_promotion_is_followed_to_its_end_and_rolled_back(tmp_path: Path, capsys: Any) -> None:
    async with stage(tmp_path / "state") as running:
        assert await command(running, tmp_path, "promote", "annie", "large", *report(running, tmp_path)) == 0
        shown = capsys.readouterr().out
        phases = re.findall(r"^  ✓ (\w+) +\d+\.\d\d s$", shown, re.M)
        assert phases == list(PATHS[OperationKind.PROMOTE][1:-1])
        assert re.search(r"^✓ succeeded in [\d.]+ s: annie is served by large$", shown, re.M)
        assert await command(running, tmp_path, "rollback", "annie", "--json") == 0
        assert json.loads(capsys.readouterr().out)["result"] == {"live": "small"}
        assert await command(running, tmp_path, "status") == 0
        assert re.search(r"annie +small *$", told := capsys.readouterr().out, re.M)
        assert "annie: small serves ungated" in told


@pytest.mark.slow  # engines are started and promoted: 4 s
@live
@pytest.mark.usefixtures("quick")
async def test_a_promotion_that_goes_wrong_ends_with_1_and_says_why(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.promotion.state_machine import Action, BreachError, FailureReason
    from app.promotion.steps import HANDLERS

    async def heard(*_: Any) -> dict[str, Any]:
        raise BreachError(FailureReason("bake_leak", "leak in 5 of 6 replies"))

    monkeypatch.setitem(HANDLERS, Action.WATCH, heard)
    async with stage(tmp_path / "state") as running:
        assert await command(running, tmp_path, "promote", "annie", "large", *report(running, tmp_path)) == 1
        shown = capsys.readouterr().out
        assert "✗ bake_leak: leak in 5 of 6 replies" in shown
        assert re.search(r"^  ✗ baking +[\d.]+ s$", shown, re.M)
        assert re.search(r"^  ↶ rolling back +[\d.]+ s$", shown, re.M)
        assert await command(running, tmp_path, "audit") == 0
        told = capsys.readouterr().out
        assert told.count("bake_leak: leak in 5 of 6 replies") == 1 and "route done" in told
        assert re.search(r"^✗ rolled back after [\d.]+ s: bake_leak: ", shown, re.M)


def test_no_token_ends_with_78(tmp_path: Path, capsys: Any) -> None:
    assert main(["status", *settings(tmp_path, 1, token=None)]) == 78
    assert "no admin token" in capsys.readouterr().err


# -------------------------------------------------------------------------- a stream that breaks


@contextmanager
def breaking(*streams: bytes) -> Iterator[tuple[GatewayClient, list[str]]]:
    """A server that gives these streams one after the other, each cut off at its end, and then only empty ones."""
    asked: list[str] = []
    left = list(streams)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.headers["Last-Event-ID"])
            part = left.pop(0) if left else b""
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if part:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.close_connection = True  # in the midst of the reply: its last chunk never comes

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield GatewayClient(f"http://127.0.0.1:{server.server_port}", TOKEN), asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause before another attempt."""
    monkeypatch.setattr(gateway_client, "RECONNECT_PAUSES", (0.0, 0.0))


STEP = b'id: %d\nevent: step\ndata: {"seq": %d}\n\n'
DONE = b'id: 9\nevent: done\ndata: {"done": true}\n\n'


@pytest.mark.usefixtures("hasty")
def test_a_stream_that_breaks_is_taken_up_behind_the_last_event() -> None:
    with breaking(STEP % (4, 4) + STEP % (5, 5) + b"id: 6\nevent: st", STEP % (6, 6) + DONE) as (
        client,
        asked,
    ):
        assert [data.get("seq") for _, data in client.follow("op")] == [4, 5, 6, None]
    assert asked == ["0", "5"]


@pytest.mark.usefixtures("hasty")
def test_a_stream_that_only_breaks_is_given_up() -> None:
    cannot = pytest.raises(GatewayError, match="the events of op cannot be followed")
    with breaking(STEP % (4, 4), b": alive\n\n") as (client, asked), cannot:
        list(client.follow("op"))
    assert len(asked) == 3
