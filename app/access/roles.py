"""Operators' roles: three of them, and the one that each admin route needs. Pure.

`watch` reads. `promote` also changes which engine serves, and uploads reports. `administer` also decides who is trusted:
overrides, revocations, keys, operators and the configuration.
"""

from enum import IntEnum
from typing import Final


class Role(IntEnum):
    """Each includes those before it."""

    WATCH = 1
    PROMOTE = 2
    ADMINISTER = 3

    def __str__(self) -> str:
        return self.name.lower()


ROLE_NAMES: Final = tuple(str(role) for role in Role)

_PROMOTES: Final = {"/admin/reports", "/admin/promote", "/admin/rollback", "/admin/operations/{id}/cancel"}
"""Path templates. Any other change needs `administer`: a route that was forgotten is closed."""
OPEN_ROUTES: Final = frozenset(
    {"/metrics", "/healthz", "/admin/ui", "/admin/ui/console.css", "/admin/ui/console.js", "/admin/runbook"}
)
"""Routes of the operators' listener that need no operator."""


def role_for(method: str, path: str) -> Role:
    """The role that a route needs. `path` is its template."""
    if method == "GET" or path == "/admin/flagger/{hook}":  # which only asks
        return Role.WATCH
    return Role.PROMOTE if path in _PROMOTES else Role.ADMINISTER
