"""Images and sounds in a message, as data: an engine would fetch an address from its own network. Pure."""

import binascii
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from deploy.engine.spec import Medium

UNSUPPORTED = "unsupported_content"
SOURCES: dict[str, Medium] = {"image_url": "image", "input_audio": "audio"}
"""Chat's parts that hold a medium."""
WORDS: dict[Medium, str] = {"image": "images", "audio": "sounds"}
_IMAGE = re.compile(r"data:image/[a-z0-9.+-]{1,40};base64,")


def _refused(why: str) -> PydanticCustomError:
    return PydanticCustomError(UNSUPPORTED, "{why}", {"why": why})


def _encoded(data: str) -> str:
    try:
        if binascii.a2b_base64(data, strict_mode=True):
            return data
    except ValueError:  # of binascii, and of text that is not ASCII
        pass
    raise PydanticCustomError("base64", "must be base64, and not empty")


def _image(url: str) -> str:
    head = _IMAGE.match(url)
    if head is None:
        raise _refused("send the image itself, as data:image/…;base64,…: no address is fetched here")
    _encoded(url[head.end() :])
    return url


Base64 = Annotated[str, AfterValidator(_encoded)]
"""Bytes as text."""
ImageData = Annotated[str, AfterValidator(_image)]
"""An image as a `data:` URL."""
ImageType = Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
AudioFormat = Literal["wav", "mp3"]


def image_part(url: str, **more: Any) -> dict[str, Any]:
    """An image, in chat's words."""
    return {"type": "image_url", "image_url": {"url": url, **more}}


def content(parts: Iterable[dict[str, Any]], between: str) -> str | list[dict[str, Any]]:
    """Chat's parts as the content of a message: one text, if all of them are text."""
    listed = list(parts)
    if any(part["type"] != "text" for part in listed):
        return listed
    return between.join(part["text"] for part in listed)
