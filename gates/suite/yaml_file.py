"""YAML as its version 1.2 reads plain words: `no`, `12:30` and dates are texts. A repeated key is an error."""

import re
from typing import Any, Final

import yaml


class YamlError(ValueError):
    """`str()` is the line and what is wrong there."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
    yaml_implicit_resolvers: dict[str, Any] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for i, key in enumerate(keys):
            if not isinstance(key, str) or key in keys[:i]:
                why = f"the key {key!r} is repeated or no text"
                raise yaml.constructor.ConstructorError(None, None, why, node.value[i][0].start_mark)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


_PLAIN: Final = {
    "null": "~|null|",
    "bool": "true|false",
    "int": "[-+]?[0-9]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?",
}
for _tag, _pattern in _PLAIN.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"\A({_pattern})\Z"), None)


def loads(text: str) -> Any:
    """The one document of a text. Raises YamlError."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(
            f"{mark.line + 1 if mark else 1}: not YAML ({error.problem or error.context})"
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlError(f"1: not YAML ({str(error).splitlines()[0]:.120})") from None
