"""The reader of JSON Lines that suites, corpora, conversations share."""

from pathlib import Path

import pytest

from gates.contracts import strict_json
from gates.contracts.errors import SuiteError
from gates.contracts.strict_json import read_objects


@pytest.mark.parametrize(
    "data, message",
    [
        (b"{", "a.jsonl:1: not JSON"),
        (b"{}\n[]", "a.jsonl:2: must be a JSON object"),
        (b'{"a": NaN}', "a.jsonl:1: not JSON (NaN is not valid JSON)"),
        (b"[" * 100_000, "a.jsonl:1: not JSON (nested too deeply)"),
        (b'{"a": 1, "a": 2}', "a.jsonl:1: not JSON (a key is there twice: a)"),
        (b'{"a": "\xff"}', "a.jsonl: is not UTF-8 text"),
        (None, "a.jsonl: cannot be read (No such file or directory)"),
    ],
)
def test_an_unusable_file_is_one_line_with_the_place(
    tmp_path: Path, data: bytes | None, message: str
) -> None:
    if data is not None:
        (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(SuiteError) as caught:
        list(read_objects(tmp_path / "a.jsonl", unique_keys=True))
    assert message in str(caught.value) and "\n" not in str(caught.value)


ODD = {
    "NaN": "NaN",
    "minus infinity": "-Infinity",
    "a huge exponent": "1e5200",
    "a huge negative": "-1.5E+400",
    "309 digits": "1" * 309,
    "5,000 digits": "1" * 5000,
    "nested": "[" * 100_000 + "]" * 100_000,
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_json_elsewhere_is_none_here(name: str) -> None:
    for text in (ODD[name], f'{{"a": [{ODD[name]}]}}'):
        with pytest.raises(ValueError, match=r"not valid JSON|too large for a double|nested too deeply"):
            strict_json.loads(text)
