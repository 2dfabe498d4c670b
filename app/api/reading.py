"""Strict reading of a request whose API is not the engine's; fields that are dropped are named. Pure."""

from typing import Any, TypeVar

from pydantic import ValidationError

from app.api.chat_request import Part, field_error, json_object, refuse_too_many
from app.api.strict_json import Budget


class Read(Part):
    """A part of a request whose API is not the engine's."""

    @property
    def extra(self) -> dict[str, Any]:
        """Undeclared fields that are not null."""
        return {name: value for name, value in (self.model_extra or {}).items() if value is not None}

    @property
    def dropped(self) -> tuple[str, ...]:
        """The names of those, each once, also in its objects and lists of objects: `text.verbosity`, `messages.content.cache_control`."""
        fields = [(name, getattr(self, name)) for name in type(self).model_fields]
        inner = (f"{name}.{one}" for name, field in fields for part in _parts(field) for one in part.dropped)
        return tuple(dict.fromkeys((*self.extra, *inner)))


def _parts(field: Any) -> list[Read]:
    """The objects of a field that were read: itself, or the items of a list."""
    return [part for part in (field if isinstance(field, list) else (field,)) if isinstance(part, Read)]


Model = TypeVar("Model", bound=Read)


def read(kind: type[Model], raw: bytes, turns: str = "", most: int = 0) -> Model:
    """The checked request; `turns` names its list of turns, of which there may be `most`.

    Raises BadJSON or BadField.
    """
    body = json_object(raw)
    if turns:
        refuse_too_many(body, turns, most)
    try:
        return kind.model_validate(body, context=Budget())
    except ValidationError as error:
        raise field_error(error, body) from None


def present(fields: dict[str, Any]) -> dict[str, Any]:
    """Without those that say nothing."""
    return {name: value for name, value in fields.items() if value is not None}
