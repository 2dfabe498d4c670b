"""`manners promote`, `rollback`, `status` and `audit`: what is shown, and the exit code, against a real gateway."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from app.__main__ import main
from app.cli import gateway_client
from app.cli.gateway_client import GatewayClient, GatewayError
from gates.report.statement import format_time
from tests.app.cli.test_access import HEAD
from tests.app.house import TOKEN
from tests.app.promotion.stage import GOOD_WAY, Stage, signed, stage, statement
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


def live(test: Any) -> Any:
    """It needs the gateway and its engines."""
    return pytest.mark.engine(pytest.mark.asyncio(loop_scope="module")(test))


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
    assert "small → large, blue/green; nothing is changed yet" in shown and "stops       small" in shown
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
    assert await command(running, tmp_path, "promote", "annie", "large", *flags, "--json") == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "revoked"
    assert await command(running, tmp_path, "revoke", "no-such-engine", "--reason", "wrong") == 66
    assert await command(running, tmp_path, "revoke", "spare", "--reason", "wrong kernel") == 0
    assert "the engine sha256:" in capsys.readouterr().out


# ----------------------------------------------------------------------- a gateway that is changed


@live
@pytest.mark.usefixtures("quick")
async def test_a_promotion_is_followed_to_its_end_and_rolled_back(tmp_path: Path, capsys: Any) -> None:
    async with stage(tmp_path / "state") as running:
        assert await command(running, tmp_path, "promote", "annie", "large", *report(running, tmp_path)) == 0
        shown = capsys.readouterr().out
        phases = re.findall(r"^ +\d+\.\d\d s  (\w+)$", shown, re.M)
        assert phases == list(GOOD_WAY[1:])
        assert shown.endswith("\nannie is served by large\n")
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
        assert re.search(r"s  baking\n +✗  bake_leak: leak in 5 of 6 replies\n.* s  rolling back\n", shown)
        assert await command(running, tmp_path, "audit") == 0
        told = capsys.readouterr().out
        assert told.count("bake_leak: leak in 5 of 6 replies") == 1 and "route done" in told
        assert "\nrolled back: bake_leak: " in shown


def test_no_token_ends_with_78(tmp_path: Path, capsys: Any) -> None:
    assert main(["status", *settings(tmp_path, 1, token=None)]) == 78
    assert "no admin token" in capsys.readouterr().err


# -------------------------------------------------------------------------- a stream that breaks


STEP = b'data: {"seq": %d}\n\n'
DONE = b'data: {"done": true}\n\n'


class Broken(httpx2.BaseTransport):
    """Gives these streams one after the other, each cut off at its end, and then only empty ones."""

    def __init__(self, *streams: bytes) -> None:
        self.asked: list[str] = []
        self._left = list(streams)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request.headers["Last-Event-ID"])
        return httpx2.Response(200, stream=Cut(self._left.pop(0) if self._left else b""))


class Cut(httpx2.SyncByteStream):
    def __init__(self, part: bytes) -> None:
        self._part = part

    def __iter__(self) -> Iterator[bytes]:
        yield self._part
        raise httpx2.ReadError("cut")


@pytest.mark.parametrize(
    ("streams", "seen", "asked"),
    [
        ((STEP % 4 + STEP % 5 + b"da", STEP % 6 + DONE), [4, 5, 6, None], ["0", "5"]),
        ((STEP % 4, b": alive\n\n"), [4], ["0", "4", "4"]),
    ],
    ids=["taken up behind the last event", "given up"],
)
def test_a_stream_that_breaks(
    streams: tuple[bytes, ...], seen: list[int | None], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_client, "RECONNECT_SECONDS", 0.0)
    monkeypatch.setattr(gateway_client, "RECONNECTS", 2)
    server, found = Broken(*streams), []
    client = GatewayClient("http://localhost", TOKEN, transport=server)
    given_up = pytest.raises(GatewayError, match="the events of op cannot be followed")
    with nullcontext() if None in seen else given_up:
        for event in client.follow("op"):
            found.append(event.get("seq"))
    assert (found, server.asked) == (seen, asked)
