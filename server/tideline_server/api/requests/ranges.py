"""Which bytes of a file a request asks for (RFC 9110, 14): one range; several, or none that is understood, mean the whole."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tideline.core.errors import FederationError

ONE = re.compile(r"bytes=[ \t]*(\d{0,19})-(\d{0,19})[ \t]*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Span:
    """Bytes from `first` to before `end`, of `size`."""

    first: int
    end: int
    size: int

    @property
    def told(self) -> str:
        """As the header Content-Range has it."""
        return f"bytes {self.first}-{self.end - 1}/{self.size}"


class OutOfRange(FederationError):
    """A range that begins behind the end."""


def span_of(asked: str | None, size: int) -> Span | None:
    """The bytes that a Range header asks for; None for all. Raises OutOfRange."""
    found = ONE.fullmatch(asked or "")
    if found is None or not any(found.groups()):
        return None
    first, last = (int(digits) if digits else None for digits in found.groups())
    if first is None:  # the last so many bytes
        assert last is not None
        first, last = (max(size - last, 0), size - 1) if last else (size, None)
    elif last is not None and last < first:
        return None
    if first >= size:
        raise OutOfRange(
            f"The file has {size} bytes; none of those asked for is among them", "Ask for bytes that it has", size=size
        )
    return Span(first, min(size, (size if last is None else last + 1)), size)
