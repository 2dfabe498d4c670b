"""The reader of JSON Lines that suites, corpora, conversations share."""

from pathlib import Path

import pytest

from gates.contracts.errors import SuiteError
from gates.decode.jsonl import read_objects


def test_blank_lines_count_only_for_the_line_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('\n{"a": "x\u2028y"}\r\n \n{"a": 2}', encoding="utf-8", newline="")
    assert list(read_objects(path)) == [(f"{path}:2", {"a": "x\u2028y"}), (f"{path}:4", {"a": 2})]


@pytest.mark.parametrize(
    "data, message",
    [
        (b"{", "a.jsonl:1: not JSON"),
        (b"{}\n[]", "a.jsonl:2: must be a JSON object"),
        (b'{"a": NaN}', "a.jsonl:1: not JSON (NaN is no JSON)"),
        (b"[" * 100_000, "a.jsonl:1: not JSON (nested too deeply)"),
        (b'{"a": 1, "a": 2}', "a.jsonl:1: not JSON (a key is there twice: a, a)"),
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


def test_a_repeated_key_is_refused_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1, "a": 2}')
    assert [value for _, value in read_objects(tmp_path / "a.jsonl")] == [{"a": 2}]
