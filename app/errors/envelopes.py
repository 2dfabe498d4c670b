"""An error in the format of the API that the caller uses. Pure."""

from typing import Any

from app.errors.tree import MannersError

ANTHROPIC_PATH = "/v1/messages"

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def envelope_for(path: str, error: MannersError) -> dict[str, Any]:
    """The body of an error reply at this path."""
    if path == ANTHROPIC_PATH or path.startswith(ANTHROPIC_PATH + "/"):
        return anthropic_error(error.message, error.code, error.status)
    return error.envelope()


def anthropic_error(message: str, code: str, status: int) -> dict[str, Any]:
    """Anthropic's envelope; our code stands where its own codes do."""
    kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")
    details = {"error_code": code}
    return {"type": "error", "error": {"type": kind, "message": message, "details": details}}
