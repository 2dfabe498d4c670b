"""The page of clients, without any of them."""

from tests.clients.page import Outcome, read, render


def test_lines_that_a_package_prints_by_itself_are_left_out() -> None:
    lines = (
        'Provider List: x\n{"package": "p", "version": "1", "what": "chat", "said": "Hi."}\n\n{"other": 1}\n'
    )
    assert read(lines) == [Outcome("p", "1", "chat", said="Hi.")]


def test_the_page_has_a_row_for_each_package() -> None:
    rows = [
        Outcome("p", "1", "chat", said="Hi."),
        Outcome("p", "1", "n", refused="unsupported_parameter"),
        Outcome("q", "2", "chat", failed="Traceback"),
    ]
    page = render(rows)
    assert "\n| p 1 | chat | n: `unsupported_parameter` |\n" in page
    assert "\n| q 2 |  | chat: FAILED |\n" in page
