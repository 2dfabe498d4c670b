"""Every error a caller can get, in one tree; foreign errors are translated by the table below.

    MannersError                      500  server_error
    ├── RequestError                  400  invalid_request_error     the caller can put it right
    │   ├── BadJSON                        invalid_json, nested_too_deeply, number_out_of_range, invalid_unicode, …
    │   ├── BadField                       invalid_value, unsupported_parameter, schema_too_large, …
    │   ├── BodyTooLarge              413  body_too_large
    │   ├── UnknownModel              404  model_not_found
    │   ├── NotForChat                     unsupported_by_model
    │   ├── UnknownRoute              404  not_found
    │   ├── UnknownThing              404  operation_not_found, report_not_found
    │   │   └── UnknownEngine              engine_not_found
    │   ├── Refused                   409  the codes of a promotion: report_missing, busy, …
    │   ├── KeyTaken                  422  idempotency_key_reused
    │   ├── WrongMethod               405  method_not_allowed
    │   ├── BadHTTP                        invalid_http
    │   ├── TooSlow                   408  request_timeout
    │   ├── HeadTooLarge              431  headers_too_large
    │   ├── Forbidden                 403  host_not_allowed, origin_not_allowed
    │   ├── RoleRequired              403  role_promote_required, role_administer_required
    │   ├── UnsupportedMediaType      415  unsupported_media_type, unsupported_content_encoding
    │   └── EngineRefused             4xx  the engine's own code: it refused the request
    │       └── ContextExceeded       400  context_length_exceeded
    ├── Unauthorized                  401  authentication_error      invalid_api_key
    ├── Busy                          429  rate_limit_error          queue_full, queue_timeout
    ├── KeyLimited                    429  rate_limit_error          key_rpm_exceeded, key_tpm_exceeded, key_concurrency_exceeded,
    │                                                                key_daily_budget_exceeded, key_budget_exceeded
    ├── TooManyConnections            503  server_error              too_many_connections
    ├── Draining                      503  server_error              draining
    ├── NotStarted                    503  server_error              not_started
    ├── StateUnavailable              503  server_error              state_unavailable, state_locked, state_missing
    │   └── StateFull                 507                            state_full
    └── UpstreamError                 502  upstream_error            the engine's fault
        ├── EngineDown                503  no_engine, connect_failed
        ├── EngineTimeout             504  first_token_timeout, idle_timeout, total_timeout
        ├── EngineBroke               502  upstream_truncated, upstream_malformed, upstream_status, upstream_too_large,
        │                              upstream_event_too_long, upstream_call_too_long, upstream_too_many_calls, …
        ├── ReplyFiltered             502  reply_fully_filtered
        └── ChoiceNotKept             502  tool_choice_not_kept

`code` is for programs, `message` for people and says what to do. The tree knows no framework:
`app.errors.render` renders it.
"""

from typing import Any


class MannersError(Exception):
    """Base of all; `status` is the HTTP status while no byte has gone out."""

    status = 500
    type = "server_error"
    code = "internal_error"
    retry_after: int | None = None
    """Seconds for `Retry-After`."""

    def __init__(self, message: str, code: str | None = None, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code

    def envelope(self) -> dict[str, Any]:
        """OpenAI's error object."""
        body = {"message": self.message, "type": self.type, "code": self.code, "param": self.param}
        return {"error": body}


class RequestError(MannersError):
    """The request is wrong, and only the caller can put it right."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class BadJSON(RequestError):
    """The body is no JSON object."""

    code = "invalid_json"


class BadField(RequestError):
    """One field of the body has a value that cannot be served; `param` names it."""

    code = "invalid_value"


class BodyTooLarge(RequestError):
    """The body is over the limit."""

    status = 413
    code = "body_too_large"


class UnknownModel(RequestError):
    """No such model in the configuration."""

    status = 404
    code = "model_not_found"


class NotForChat(RequestError):
    """The model is there, and gives embeddings only."""

    code = "unsupported_by_model"

    def __init__(self, message: str) -> None:
        super().__init__(message, param="model")


class UnknownRoute(RequestError):
    """No such path on this listener."""

    status = 404
    code = "not_found"


class UnknownThing(RequestError):
    """What an operator asked for is not there; the code says what."""

    status = 404
    code = "operation_not_found"


class UnknownEngine(UnknownThing):
    """No such engine in the configuration."""

    code = "engine_not_found"


class Refused(RequestError):
    """As things stand it must not, or cannot, be done; the code says why."""

    status = 409
    code = "busy"


class KeyTaken(RequestError):
    """The idempotency key came with another request before."""

    status = 422
    code = "idempotency_key_reused"


class WrongMethod(RequestError):
    """The path exists, the method does not."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, allow: str) -> None:
        super().__init__(message)
        self.allow = allow


class BadHTTP(RequestError):
    """What came is no HTTP/1.1 that has one meaning only."""

    code = "invalid_http"


class TooSlow(RequestError):
    """The request did not come in, in time."""

    status = 408
    code = "request_timeout"


class HeadTooLarge(RequestError):
    """All that is not body is over the limit."""

    status = 431
    code = "headers_too_large"


class Forbidden(RequestError):
    """A listener without keys serves this machine's programs; the request is a website's.

    403 and not 421 (Misdirected Request): a client may repeat a 421 on another connection, where it fails again.
    """

    status = 403
    code = "host_not_allowed"


class RoleRequired(RequestError):
    """The operator is known, and has not the role that this needs; the code names it."""

    status = 403
    code = "role_administer_required"


class UnsupportedMediaType(RequestError):
    """The body is not declared as JSON, or is compressed."""

    status = 415
    code = "unsupported_media_type"


class EngineRefused(RequestError):
    """The engine answered 4xx: it understood the request and will not serve it."""

    code = "engine_refused"

    def __init__(self, message: str, code: str | None = None, *, status: int = 400) -> None:
        super().__init__(message, code)
        self.status = status


class ContextExceeded(EngineRefused):
    """The conversation, its tools and its reply are more than the engine's context holds.

    `shared`: more than was left of a context that all of an engine's requests share.
    """

    code = "context_length_exceeded"

    def __init__(self, message: str, *, shared: bool = False) -> None:
        super().__init__(message)
        self.shared = shared


class Unauthorized(MannersError):
    """No key, or a wrong one."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class Busy(MannersError):
    """Every place is taken, and the queue is full or too slow."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"

    def __init__(self, message: str, code: str | None = None, *, seconds: int = 1) -> None:
        super().__init__(message, code)
        self.retry_after = seconds


class KeyLimited(MannersError):
    """The caller's key has used up one of its limits or budgets; `seconds` until it may try again, None: never."""

    status = 429
    type = "rate_limit_error"
    code = "key_rpm_exceeded"

    def __init__(self, message: str, code: str | None = None, *, seconds: int | None = 1) -> None:
        super().__init__(message, code)
        self.retry_after = seconds


class TooManyConnections(MannersError):
    """As many connections are open as `gateway.max_connections` allows."""

    status = 503
    code = "too_many_connections"
    retry_after = 1


class Draining(MannersError):
    """The gateway is going down and takes nothing new."""

    status = 503
    code = "draining"
    retry_after = 5


class NotStarted(MannersError):
    """The gateway has not opened its registry yet, or has closed it."""

    status = 503
    code = "not_started"
    retry_after = 1


class StateUnavailable(MannersError):
    """The state folder cannot be used now; only operators meet it."""

    status = 503
    code = "state_unavailable"
    retry_after = 5


class StateFull(StateUnavailable):
    """The state folder's disk is full."""

    status = 507
    code = "state_full"


class UpstreamError(MannersError):
    """The engine's fault, not the caller's."""

    status = 502
    type = "upstream_error"
    code = "upstream_error"


class EngineDown(UpstreamError):
    """No engine is ready, or it does not take connections."""

    status = 503
    code = "no_engine"
    retry_after = 1


class EngineTimeout(UpstreamError):
    """The engine took longer than the model's `timeouts` allow."""

    status = 504
    code = "first_token_timeout"


class EngineBroke(UpstreamError):
    """The engine's reply broke the protocol or carried an error."""

    status = 502
    code = "upstream_truncated"


class ReplyFiltered(UpstreamError):
    """All of the reply was a thought or an invalid tool call, and nothing is left for the caller.

    Another engine may do better. It says nothing of the engine's health: a caller can provoke it.
    """

    status = 502
    code = "reply_fully_filtered"


class ChoiceNotKept(UpstreamError):
    """The model did not call what `tool_choice` asks for; nothing else of its reply is shown.

    It says nothing of the engine's health, as above.
    """

    status = 502
    code = "tool_choice_not_kept"
