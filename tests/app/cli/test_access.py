"""`manners key`, `manners operator` and `manners reload`: with a gateway, and without one."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from app.registry.registry import RegistryReader
from tests.app.house import TOKEN, GatewayFixture, house
from tests.scale import PATIENCE

HEAD = '[engines.e]\ndialect = "vllm"\ndriver = "url"\nurl = "http://127.0.0.1:9"\n[models.annie]\nlive = "e"\n[gateway]\n'


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No keys from outside; the token of the gateway of these tests."""
    monkeypatch.delenv("MANNERS_API_KEYS", raising=False)
    monkeypatch.setenv("MANNERS_ADMIN_TOKEN", TOKEN)


def offline(folder: Path, *words: str) -> int:
    """A command where no gateway runs."""
    file = folder / "manners.toml"
    file.write_text(HEAD + 'state = "state"\n')
    return main([*words, "--config", str(file)])


async def command(home: GatewayFixture, *words: str) -> int:
    """A command beside a running gateway, as from another process."""
    config, admin = home.gateway.config, home.admin.removeprefix("http://")
    file = config.state_dir / "client.toml"
    file.write_text(HEAD + f'state = "{config.state_dir}"\nadmin = "{admin}"\n')
    return await asyncio.to_thread(main, [*words, "--config", str(file)])


def test_keys_and_operators_can_be_made_before_the_first_start(tmp_path: Path, capsys: Any) -> None:
    assert offline(tmp_path, "key", "add", "kitchen", "--rpm", "60", "--daily-budget", "1_000_000") == 0
    out, err = capsys.readouterr()
    assert out.startswith("sk-manners-") and out.count("\n") == 1  # KEY=$(manners key add kitchen)
    assert "not shown again" in err
    assert offline(tmp_path, "operator", "add", "eve", "--role", "promote") == 0
    assert capsys.readouterr().out.startswith("op-manners-")
    assert offline(tmp_path, "key", "list", "--json") == 0
    (key,) = json.loads(capsys.readouterr().out)["keys"]
    assert (key["name"], key["limits"]["rpm"], key["limits"]["daily_budget"]) == ("kitchen", 60, 1_000_000)
    assert offline(tmp_path, "operator", "list") == 0
    assert "eve" in (listed := capsys.readouterr().out) and "promote" in listed
    assert offline(tmp_path, "key", "revoke", "kitchen") == 0
    with RegistryReader(tmp_path / "state" / "registry.db") as reader:
        assert [event.verb for event in reader.events()] == [
            "api_key.added",
            "operator.added",
            "api_key.revoked",
        ]
        assert {event.actor for event in reader.events()} == {"admin"}


async def test_a_spent_budget_is_raised_and_the_key_stays(tmp_path: Path, capsys: Any) -> None:
    """What was used is not forgotten; 0 takes a limit away, and what is not named stays."""
    async with house(tmp_path) as home:
        assert await command(home, "key", "add", "porch", "--budget", "1", "--rpm", "50") == 0
        key = {"authorization": f"Bearer {capsys.readouterr().out.strip()}"}
        assert [(await home.ask(headers=key)).status for _ in range(2)] == [200, 429]
        assert await command(home, "key", "limit", "porch", "--budget", "1000") == 0
        assert "rpm 50" in (told := capsys.readouterr().out)
        assert "budget 1000" in told
        assert (await home.ask(headers=key)).status == 200
        assert await command(home, "key", "limit", "porch", "--rpm", "0", "--json") == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["limits"]["rpm"], said["limits"]["budget"]) == (None, 1000)
        assert said["used"]["total"] > 1
        assert await command(home, "key", "limit", "nobody", "--rpm", "1") == 1
        assert await command(home, "key", "list") == 0
        assert "porch" in capsys.readouterr().out
        assert await command(home, "key", "revoke", "porch") == 0
        assert (await home.ask(headers=key)).status == 401


async def test_an_operators_own_token_is_used_and_a_role_that_is_not_enough_is_code_77(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EX_NOPERM, and one line that names the role; who may stands in the audit."""
    async with house(tmp_path) as home:
        assert await command(home, "operator", "add", "eve", "--role", "administer") == 0
        monkeypatch.setenv("MANNERS_ADMIN_TOKEN", capsys.readouterr().out.strip())
        assert await command(home, "reload") == 0
        assert "reloaded; changed: nothing in the configuration" in capsys.readouterr().out
        event = (await home.operate("/admin/audit?newest=1&limit=1")).json["events"][0]
        assert (event["actor"], event["verb"]) == ("eve", "configuration.reloaded")

        await command(home, "operator", "add", "wanda")
        monkeypatch.setenv("MANNERS_ADMIN_TOKEN", capsys.readouterr().out.strip())
        assert await command(home, "reload") == 77
        assert "role_administer_required" in capsys.readouterr().err


async def test_a_rotated_key_has_two_secrets_until_the_overlap_ends_and_one_budget(
    tmp_path: Path, capsys: Any
) -> None:
    async with house(tmp_path) as home:
        assert await command(home, "key", "add", "porch", "--budget", "1000") == 0
        old = {"authorization": f"Bearer {capsys.readouterr().out.strip()}"}
        assert (await home.ask(headers=old)).status == 200
        assert await command(home, "key", "list", "--json") == 0
        used = json.loads(capsys.readouterr().out)["keys"][0]["used"]["total"]
        assert await command(home, "key", "rotate", "porch", "--overlap", "24h") == 0
        out, err = capsys.readouterr()
        new = {"authorization": f"Bearer {out.strip()}"}
        assert "The old secret works until" in err
        assert [(await home.ask(headers=one)).status for one in (old, new)] == [200, 200]
        assert await command(home, "key", "list", "--json") == 0
        (key,) = json.loads(capsys.readouterr().out)["keys"]
        assert (key["limits"]["budget"], key["used"]["total"]) == (1000, 3 * used)

        assert await command(home, "key", "rotate", "porch", "--overlap", "1s") == 0
        newest = {"authorization": f"Bearer {capsys.readouterr().out.strip()}"}
        assert [(await home.ask(headers=one)).status for one in (old, newest)] == [401, 200]

        async with asyncio.timeout(PATIENCE):
            while (await home.ask(headers=new)).status != 401:
                await asyncio.sleep(0.1)
        assert (await home.ask(headers=newest)).status == 200
