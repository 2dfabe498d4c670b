"""Parts of the documents that a command writes, between `<!-- generated: PART -->` and END."""

from typing import Final

END: Final = "<!-- end of what is generated -->"


def begin(part: str) -> str:
    """The mark before a generated part."""
    return f"<!-- generated: {part} -->"


def rewritten(document: str, part: str, text: str) -> str:
    """The document with this text in a generated part. Raises ValueError where a mark is missing."""
    before, mark, rest = document.partition(begin(part))
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"the document has no part {begin(part)} … {END}")
    return f"{before}{mark}\n\n{text}\n{END}{after}"
