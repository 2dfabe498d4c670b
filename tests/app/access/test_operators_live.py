"""Operators with roles: what each may do, and who stands in the audit."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from fastapi import FastAPI

from app.access.roles import OPEN_ROUTES, Role, role_for
from tests.app.access.test_keys_live import operate
from tests.app.house import GatewayFixture, house

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPERATORS = {Role.WATCH: "wanda", Role.PROMOTE: "pat", Role.ADMINISTER: "bo"}
TOKENS: dict[Role, str] = {}
"""Of the shared gateway's operators."""
PATHS = {"{id}": "1", "{digest}": "sha256:00", "{name}": "nobody"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """A gateway with an operator of each role."""
    async with house(tmp_path_factory.mktemp("state")) as it:
        for role, name in OPERATORS.items():
            made = await operate(it, "POST", "/admin/operators", {"name": name, "role": str(role)})
            TOKENS[role] = made.json["token"]
        yield it


def routes_of(home: GatewayFixture) -> set[tuple[str, str]]:
    """Every route of the operators' listener, by method and template, as its OpenAPI document lists them."""
    application: FastAPI = home.gateway.admin.app  # type: ignore[assignment]
    paths = application.openapi()["paths"]
    return {(method.upper(), path) for path, methods in paths.items() for method in methods}


async def test_a_lower_role_is_refused_by_name_and_a_higher_one_is_not(home: GatewayFixture) -> None:
    """On every route: 403 before anything else is looked at; whoever has the role gets another answer."""
    for method, path in sorted(routes_of(home)):
        if path in OPEN_ROUTES or path.endswith("/events"):
            continue
        needed = role_for(method, path)
        for name, value in PATHS.items():
            path = path.replace(name, value)
        for role in Role:
            answer = await operate(home, method, path, token=TOKENS[role])
            if role < needed:
                assert (answer.status, answer.error["code"]) == (403, f"role_{needed}_required")
                assert str(needed) in answer.error["message"]
            else:
                assert answer.status not in (401, 403), (method, path)


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("GET", "/admin/keys", Role.WATCH),
        ("POST", "/admin/promote", Role.PROMOTE),
        ("POST", "/admin/rollback", Role.PROMOTE),
        ("POST", "/admin/flagger/{hook}", Role.WATCH),
        ("POST", "/admin/keys", Role.ADMINISTER),
        ("DELETE", "/admin/overrides/{id}", Role.ADMINISTER),
        ("POST", "/admin/a-new-one", Role.ADMINISTER),
    ],
)
async def test_a_route_needs_the_role_of_what_it_does(method: str, path: str, role: Role) -> None:
    """And the highest, if nobody said."""
    assert role_for(method, path) == role


@pytest.mark.parametrize("end", ["revoked", "made anew"])
async def test_a_revoked_operators_open_stream_ends_before_the_next_event(
    home: GatewayFixture, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """An operator of the same name with another token is another operator."""
    go_on = asyncio.Event()

    async def follow(id: str, after: int) -> AsyncIterator[tuple[str, int, dict[str, str]]]:
        yield "step", 1, {"phase": "queued"}
        await go_on.wait()
        yield "step", 2, {"phase": "secret"}

    async def operation(id: str) -> None: ...

    monkeypatch.setattr(home.gateway.promotions, "follow", follow)
    monkeypatch.setattr(home.gateway.promotions, "operation", operation)
    eve = {"name": "eve", "role": "watch"}
    made = await operate(home, "POST", "/admin/operators", eve)
    headers = {"authorization": f"Bearer {made.json['token']}"}
    async with home.client.get(home.admin + "/admin/operations/1/events", headers=headers) as response:
        assert b"queued" in await response.content.readuntil(b"\n\n")
        await operate(home, "DELETE", "/admin/operators/eve")
        if end == "made anew":
            await operate(home, "POST", "/admin/operators", eve)
        go_on.set()
        rest = await response.content.read()
    assert b"invalid_api_key" in rest and b"secret" not in rest
    await operate(home, "DELETE", "/admin/operators/eve")


async def test_the_audit_names_who_did_it(home: GatewayFixture) -> None:
    """And not what they hold."""
    await operate(home, "POST", "/admin/keys", {"name": "kitchen", "rpm": 5}, token=TOKENS[Role.ADMINISTER])
    revoke = {"thing": "engine", "id": "sha256:" + "0" * 64, "reason": "it is a test"}
    await operate(home, "POST", "/admin/revoke", revoke)
    events = (await home.operate("/admin/audit?newest=1&limit=2")).json["events"]
    assert [(e["actor"], e["verb"], e["subject"][:7]) for e in events] == [
        ("bo", "api_key.added", "kitchen"),
        ("admin", "engine.revoked", "sha256:"),
    ]
    assert events[0]["detail"] == {"limits": {"rpm": 5}}


async def test_a_revoked_operator_is_out_at_once(home: GatewayFixture) -> None:
    made = await operate(home, "POST", "/admin/operators", {"name": "temp", "role": "watch"})
    held = made.json["token"]
    assert (await operate(home, "GET", "/admin/status", token=held)).status == 200
    assert (await operate(home, "DELETE", "/admin/operators/temp")).status == 200
    answer = await operate(home, "GET", "/admin/status", token=held)
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")


async def test_names_and_roles_that_are_none_are_refused(home: GatewayFixture) -> None:
    """The audit uses some names; `admin` holds the first token, and cannot be revoked by name."""
    for name, role in (("admin", "watch"), ("SIGHUP", "watch"), ("someone", "root")):
        answer = await operate(home, "POST", "/admin/operators", {"name": name, "role": role})
        assert (answer.status, answer.error["code"]) == (400, "invalid_value")
    assert (await home.operate("/admin/operators")).json["operators"][0]["name"] == "admin"
    answer = await operate(home, "DELETE", "/admin/operators/admin")
    assert (answer.status, answer.error["code"]) == (404, "operator_not_found")
