"""Every error that a caller can get, in one tree.

    MannersError                      500  server_error
    ├── RequestError                  400  invalid_request_error     the caller can correct it
    │   ├── BadJSON                        invalid_json, nested_too_deeply, number_out_of_range, invalid_utf8, …
    │   ├── BadField                       invalid_value, unsupported_parameter, schema_too_large, unsupported_by_model, …
    │   ├── BadHTTP                   4xx  invalid_http, duplicate_header, and the codes of its table
    │   ├── Forbidden                 403  host_not_allowed, origin_not_allowed, role_promote_required, …
    │   ├── UnknownThing              404  not_found, model_not_found, operation_not_found, report_not_found, …
    │   ├── Refused                   409  the codes of a promotion: report_missing, busy, …
    │   │                             422  idempotency_key_reused
    │   └── EngineRefused             4xx  the engine's own code: it refused the request
    │       └── ContextExceeded       400  context_length_exceeded
    ├── Unauthorized                  401  authentication_error      invalid_api_key
    ├── Busy                          429  rate_limit_error          queue_full, queue_timeout
    ├── KeyLimited                    429  rate_limit_error          key_rpm_exceeded, key_tpm_exceeded, key_concurrency_exceeded,
    │                                                                key_daily_budget_exceeded, key_budget_exceeded
    ├── Unavailable                   503  server_error              draining, too_many_connections
    ├── StateUnavailable              503  server_error              state_unavailable, state_locked, state_missing
    │                                 507                            state_full
    └── UpstreamError                 502  upstream_error            the engine's fault
        ├── EngineDown                503  no_engine, connect_failed
        ├── EngineTimeout             504  first_token_timeout, idle_timeout, total_timeout
        └── EngineBroke               502  upstream_truncated, upstream_malformed, upstream_status, upstream_too_large,
                                           upstream_event_too_long, upstream_call_too_long, upstream_too_many_calls,
                                           reply_fully_filtered, tool_choice_not_kept, …

`code` is for programs; `message` is for people and says what to do. `app.errors.render` makes HTTP of it.
"""

from collections.abc import Mapping
from typing import Any, Final

CODES: Final = {"internal_error"}  # those of the classes, filled as they are made
INTERNAL: Final = "something went wrong in the gateway; its log says what"


class MannersError(Exception):
    """The base class; `status` is the HTTP status if no byte has been sent, `retry_after` the seconds for `Retry-After`."""

    status = 500
    type = "server_error"
    code = "internal_error"
    param: str | None = None
    retry_after: int | None = None
    statuses: Mapping[str, int] = {}

    def __init_subclass__(
        cls, status: int = 0, type: str = "", code: str = "", retry_after: int | None = None
    ) -> None:
        """Arguments that a class does not give are inherited. Its table `statuses` has the codes whose status differs."""
        super().__init_subclass__()
        cls.status = status or cls.status
        cls.type, cls.code = type or cls.type, code or cls.code
        cls.retry_after = retry_after or cls.retry_after
        CODES.update((cls.code, *cls.statuses))

    def __init__(self, message: str, code: str | None = None, **own: Any) -> None:  # `own`: other attributes
        super().__init__(message)
        self.message = message
        self.code = self.code if code is None else code
        self.status = self.statuses.get(self.code, self.status)
        self.__dict__.update(own)

    def envelope(self) -> dict[str, Any]:
        """OpenAI's error object."""
        return {"error": {"message": self.message, "type": self.type, "code": self.code, "param": self.param}}


class RequestError(MannersError, status=400, type="invalid_request_error", code="invalid_request"):
    """The request is wrong, and only the caller can correct it."""


class BadJSON(RequestError, code="invalid_json"):
    """The body is no JSON object."""


class BadField(RequestError, code="invalid_value"):
    """One field of the body has a value that cannot be served; `param` names it."""


class BadHTTP(RequestError, code="invalid_http"):
    """A listener takes no such request, whatever its body says; `allow` names the methods that a path has."""

    allow = ""
    statuses = {
        "method_not_allowed": 405, "request_timeout": 408, "body_too_large": 413, "unsupported_media_type": 415,
        "unsupported_content_encoding": 415, "headers_too_large": 431,
    }  # fmt: skip


class Forbidden(RequestError, status=403, code="host_not_allowed"):
    """A website's request to a listener without keys (421 would be repeated); or one that needs the role that the code names."""


class UnknownThing(RequestError, status=404, code="not_found"):
    """No such path on this listener; or the requested object does not exist, and the code names its kind."""

    statuses = {"model_not_found": 404}


class Refused(RequestError, status=409, code="busy"):
    """The operation is not allowed, or not possible, in the present state; the code says why."""

    statuses = {"idempotency_key_reused": 422}


class EngineRefused(RequestError, code="engine_refused"):
    """The engine answered 4xx: it understood the request and will not serve it."""


class ContextExceeded(EngineRefused, code="context_length_exceeded"):
    """The conversation, its tools and its reply exceed the engine's context, or what is left of one that its requests share."""

    shared = False  # the latter


class Unauthorized(MannersError, status=401, type="authentication_error", code="invalid_api_key"):
    """No key, or a wrong one."""


class Busy(MannersError, status=429, type="rate_limit_error", code="queue_full", retry_after=1):
    """The concurrency limit is reached, and the queue is full or too slow."""


class KeyLimited(MannersError, status=429, type="rate_limit_error", code="key_rpm_exceeded", retry_after=1):
    """The caller's key has used up one of its limits or budgets; `retry_after` None: it may never try again."""


class Unavailable(MannersError, status=503, code="draining", retry_after=5):
    """The gateway is shutting down, or `gateway.max_connections` are open: it takes nothing more."""

    statuses = {"too_many_connections": 503}


class StateUnavailable(MannersError, status=503, code="state_unavailable", retry_after=5):
    """The state folder is unusable at present, or its disk is full; only operators see this error."""

    statuses = {"state_full": 507}


class UpstreamError(MannersError, status=502, type="upstream_error", code="upstream_error"):
    """The engine's fault, not the caller's."""


class EngineDown(UpstreamError, status=503, code="no_engine", retry_after=1):
    """No engine is ready, or it does not accept connections."""


class EngineTimeout(UpstreamError, status=504, code="first_token_timeout"):
    """The engine took longer than the model's `timeouts` allow."""


class EngineBroke(UpstreamError, status=502, code="upstream_truncated"):
    """The engine's reply broke the protocol, carried an error, or left nothing that the caller may have."""


_UPSTREAM = """
    connect_failed connect_timeout engine_busy first_token_timeout host_exhausted idle_timeout reply_fully_filtered
    tool_choice_not_kept upstream_call_too_long upstream_disconnected upstream_event_too_long upstream_malformed
    upstream_status upstream_too_large upstream_too_many_calls upstream_truncated
"""
UPSTREAM_CODES: Final = frozenset(_UPSTREAM.split())
"""The gateway's own codes for engines' faults."""

ANTHROPIC_PATH: Final = "/v1/messages"
_ANTHROPIC_TYPES: Final = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip


def envelope_for(path: str, error: MannersError) -> dict[str, Any]:
    """The body of an error reply, in the format of the API at this path."""
    if path == ANTHROPIC_PATH or path.startswith(ANTHROPIC_PATH + "/"):
        return anthropic_error(error.message, error.code, error.status)
    return error.envelope()


def anthropic_error(message: str, code: str, status: int) -> dict[str, Any]:
    """Anthropic's envelope; our code stands where its own codes do."""
    kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message, "details": {"error_code": code}}}
