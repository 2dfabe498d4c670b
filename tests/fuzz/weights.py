"""The target that needs the quantizer's extra: the headers of safetensors files."""

import json
from pathlib import Path

from quantizer.verify.folder import INDEX, FolderError, open_folder
from tests.fuzz.targets import Target, in_temporary_file


def safetensors(data: bytes) -> None:
    """A folder of one shard, and its index behind a NUL byte where there is one."""
    shard, _, index = data.partition(b"\0INDEX\0")

    def read(path: Path) -> None:
        if index:
            (path.parent / INDEX).write_bytes(index)
        try:
            folder = open_folder(path.parent)
        except FolderError:
            return
        json.dumps([finding.code for finding in folder.findings])
        assert len(folder.tensors) <= len(data)

    in_temporary_file(shard, read, ".safetensors")


TARGETS = {
    "safetensors": Target(
        safetensors,
        words=(b'{"', b'":{"dtype":"F32","shape":[', b'],"data_offsets":[0,4]}', b'"weight_map":{'),
    )
}
