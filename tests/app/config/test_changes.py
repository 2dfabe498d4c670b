"""What a reload may change, and what it says of the rest."""

from pathlib import Path
from typing import Any

import pytest

from app.config.changes import changed_keys
from app.config.config import Config, Secrets, parse

BASE: dict[str, Any] = {
    "gateway": {"state": "state"},
    "engines": {"far": {"dialect": "vllm", "driver": "url", "url": "http://127.0.0.1:9"},
                "b.1": {"dialect": "vllm", "driver": "url", "url": "http://127.0.0.1:8"},
                "down": {"dialect": "vllm", "driver": "url", "url": "http://127.0.0.1:5"}},
    "models": {"annie": {"live": "far"}, "m.2": {"live": "b.1"}},
}  # fmt: skip


def settings(**tables: Any) -> Config:
    """The base with these tables instead."""
    return parse({**BASE, **tables}, Path("/"))


def found(new: Config) -> tuple[list[str], list[str]]:
    """What has changed, and what of that needs a restart."""
    return changed_keys(settings(), new, {"far", "b.1"})


CHANGES: dict[str, tuple[dict[str, Any], list[str], bool]] = {
    "a limit of the gateway": ({"gateway": {"state": "state", "max_messages": 3}}, ["gateway.max_messages"], False),
    "an address": ({"gateway": {"state": "state", "listen": "127.0.0.1:1"}}, ["gateway.listen"], True),
    "the state folder": ({"gateway": {"state": "other"}}, ["gateway.state"], True),
    "a cap": ({"models": {**BASE["models"], "annie": {"live": "far", "concurrency": 3}}}, ["models.annie.concurrency"], False),
    "a timeout": (
        {"models": {**BASE["models"], "annie": {"live": "far", "timeouts": {"total": 9.0}}}}, ["models.annie.timeouts.total"], False,
    ),
    "who is live": ({"models": {**BASE["models"], "annie": {"live": "b.1"}}}, ["models.annie.live"], True),
    "of a model with a dot": ({"models": {**BASE["models"], "m.2": {"live": "far"}}}, ["models.m.2.live"], True),
    "one model less": ({"models": {"annie": {"live": "far"}}}, ["models.m.2"], True),
    "one model more": ({"models": {**BASE["models"], "new": {"live": "far"}}}, ["models.new"], False),
    "an engine's flag": (
        {"engines": {**BASE["engines"], "far": {**BASE["engines"]["far"], "url": "http://127.0.0.1:7"}}}, ["engines.far.url"], True,
    ),
    "of an engine that is down": (
        {"engines": {**BASE["engines"], "down": {**BASE["engines"]["far"], "url": "http://127.0.0.1:7"}}}, ["engines.down.url"], False,
    ),
    "one engine less": ({"engines": {"far": BASE["engines"]["far"]}, "models": {"annie": {"live": "far"}}},
                        ["engines.b.1", "engines.down", "models.m.2"], True),
    "an engine more": ({"engines": {**BASE["engines"], "new": BASE["engines"]["far"]}}, ["engines.new"], False),
    "the bake": ({"promotion": {"bake_seconds": 1.0}}, ["promotion.bake_seconds"], False),
    "the log": ({"log": {"level": "debug"}}, ["log.level"], True),
    "the recorder": ({"shadow": {"record": True}}, ["shadow.record"], True),
    "the collector": ({"telemetry": {"otlp_endpoint": "http://127.0.0.1:1"}}, ["telemetry.otlp_endpoint"], True),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_is_named_as_in_the_file_and_known_to_need_a_restart_or_not(case: str) -> None:
    tables, keys, restart = CHANGES[case]
    assert found(settings(**tables)) == (keys, keys if restart else [])


def test_secrets_are_named_and_not_shown() -> None:
    new = settings().model_copy(update={"secrets": Secrets(api_keys=("a-secret",), admin_token="another")})
    assert found(new) == (["secrets.admin_token", "secrets.api_keys"], [])
