"""The public listener's OpenAPI document."""

import json
import re

import jsonschema
import pytest

from app.config.version import VERSION
from app.wiring import SURFACES
from tests.app.house import HELLO, GatewayFixture

pytestmark = pytest.mark.asyncio(loop_scope="module")

BODIES = {
    "/v1/chat/completions": {"model": "annie", "messages": HELLO},
    "/v1/messages": {"model": "annie", "messages": HELLO, "max_tokens": 9},
    "/v1/responses": {"model": "annie", "input": [{"role": "user", "content": "Hi."}]},
    "/v1/completions": {"model": "annie", "prompt": "Hi"},
    "/v1/embeddings": {"model": "annie", "input": ["Hi"]},
}


async def test_every_surface_is_listed_with_its_request(home: GatewayFixture) -> None:
    """Each path has a schema that takes a right request, refuses {}, and points at nothing missing."""
    document = (await home.get(f"{home.url}/openapi.json")).json
    assert {s.path for s in SURFACES} == BODIES.keys() <= document["paths"].keys()
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(document))) <= known
    for path, body in BODIES.items():
        schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        validator = jsonschema.Draft202012Validator({**schema, "components": document["components"]})
        validator.validate(body)
        assert not validator.is_valid({})
    assert "/v1/models" in document["paths"]


async def test_every_operation_of_both_listeners_says_that_it_may_fail(home: GatewayFixture) -> None:
    """And what the document is of: this version, and a model that is served."""
    for document in (await home.get(f"{home.url}/openapi.json"), await home.operate("/admin/openapi.json")):
        assert document.json["info"]["version"] == VERSION
        operations = [one for path in document.json["paths"].values() for one in path.values()]
        assert all("default" in operation["responses"] for operation in operations)
    schemas = (await home.get(f"{home.url}/openapi.json")).json["components"]["schemas"]
    assert schemas["ChatCompletions"]["properties"]["model"]["examples"] == ["annie"]


async def test_a_wrong_method_is_told_all_right_ones(home: GatewayFixture) -> None:
    """Not only those of the first route at this path."""
    allowed = (await home.operate("/admin/keys/x")).headers["allow"]
    assert allowed == "DELETE, PATCH"
