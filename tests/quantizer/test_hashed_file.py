"""A file that is hashed while it is written."""

from __future__ import annotations

import hashlib
import resource
from pathlib import Path

import pytest

from quantizer.core.hashed_file import HashedFile


def test_the_digest_is_the_files(tmp_path: Path) -> None:
    file = HashedFile(tmp_path / "a")
    for piece in (b"one", b"", memoryview(bytes(100_000)), b"last"):
        file.write(piece)
    size, digest = file.finish().result()
    held = (tmp_path / "a").read_bytes()

    assert (size, digest) == (len(held), hashlib.sha256(held).hexdigest())
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


def test_a_full_disk_is_an_error_at_the_end_at_the_latest(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = HashedFile(tmp_path / "a")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))
    try:
        file.write(b"more than four")
        with pytest.raises(OSError, match="too large"):
            file.finish().result()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
