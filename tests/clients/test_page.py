"""The page of clients, without any of them."""

from tests.clients.page import Outcome, read, render


def test_lines_that_a_package_prints_by_itself_are_left_out() -> None:
    lines = (
        'Provider List: x\n{"package": "p", "version": "1", "what": "chat", "said": "Hi."}\n\n{"other": 1}\n'
    )
    assert read(lines) == [Outcome("p", "1", "chat", said="Hi.")]


def test_the_page_has_a_table_for_each_package() -> None:
    rows = [
        Outcome("p", "1", "chat", said="Hi."),
        Outcome("p", "1", "n", refused="unsupported_parameter"),
        Outcome("q", "2", "chat", failed="Traceback"),
    ]
    page = render(rows)
    assert "## p 1\n\n| | |\n|---|---|\n| chat | works |\n| n | refused: `unsupported_parameter` |\n" in page
    assert "## q 2" in page and "| chat | FAILED |" in page
