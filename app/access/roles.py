"""What each operator may do: three roles, and the role that every admin route needs. Pure.

`watch` reads. `promote` also changes which engine serves, and uploads reports. `administer` also decides who is trusted:
overrides, revocations, keys, operators and the configuration.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from app.errors.tree import RoleRequired


class Role(IntEnum):
    """Each includes those before it."""

    WATCH = 1
    PROMOTE = 2
    ADMINISTER = 3

    @classmethod
    def named(cls, name: str) -> "Role":
        """Raises KeyError."""
        return cls[name.upper()]

    def __str__(self) -> str:
        return self.name.lower()


ROLE_NAMES: Final = tuple(str(role) for role in Role)

ROUTES: Final[Mapping[tuple[str, str], Role]] = MappingProxyType(
    {
        ("GET", "/admin/status"): Role.WATCH,
        ("GET", "/admin/engines"): Role.WATCH,
        ("GET", "/admin/operations"): Role.WATCH,
        ("GET", "/admin/operations/{id}"): Role.WATCH,
        ("GET", "/admin/operations/{id}/events"): Role.WATCH,
        ("GET", "/admin/reports"): Role.WATCH,
        ("GET", "/admin/reports/{digest}"): Role.WATCH,
        ("GET", "/admin/reports/{digest}/reading"): Role.WATCH,
        ("GET", "/admin/reports/{digest}/page"): Role.WATCH,
        ("GET", "/admin/overrides"): Role.WATCH,
        ("GET", "/admin/audit"): Role.WATCH,
        ("GET", "/admin/keys"): Role.WATCH,
        ("GET", "/admin/operators"): Role.WATCH,
        ("POST", "/admin/reports"): Role.PROMOTE,
        ("POST", "/admin/promote"): Role.PROMOTE,
        ("POST", "/admin/rollback"): Role.PROMOTE,
        ("POST", "/admin/operations/{id}/cancel"): Role.PROMOTE,
        ("POST", "/admin/engines/{name}/drain"): Role.PROMOTE,
        ("POST", "/admin/engines/{name}/undrain"): Role.PROMOTE,
        ("POST", "/admin/overrides"): Role.ADMINISTER,
        ("DELETE", "/admin/overrides/{id}"): Role.ADMINISTER,
        ("POST", "/admin/revoke"): Role.ADMINISTER,
        ("POST", "/admin/reload"): Role.ADMINISTER,
        ("POST", "/admin/keys"): Role.ADMINISTER,
        ("PATCH", "/admin/keys/{name}"): Role.ADMINISTER,
        ("POST", "/admin/keys/{name}/rotate"): Role.ADMINISTER,
        ("DELETE", "/admin/keys/{name}"): Role.ADMINISTER,
        ("POST", "/admin/operators"): Role.ADMINISTER,
        ("DELETE", "/admin/operators/{name}"): Role.ADMINISTER,
    }
)
"""By method and path template. A route that is not listed needs `administer`, and a test says that all are listed."""

OPEN_ROUTES: Final = frozenset(
    {"/metrics", "/healthz", "/admin/ui", "/admin/ui/console.css", "/admin/ui/console.js", "/admin/runbook"}
)
"""Routes of the operators' listener that need no operator."""


def check(role: Role, method: str, path: str) -> None:
    """Raises RoleRequired, which names the role that is needed. `path` is a route's template."""
    if path in OPEN_ROUTES:
        return
    needed = ROUTES.get((method, path), Role.ADMINISTER)
    if role < needed:
        raise RoleRequired(
            f"this needs an operator with the role {needed}, and yours is {role}: ask one who may",
            f"role_{needed}_required",
        )
