"""A .csv file by pyarrow's reader, block after block, where it surely reads what Python's does: else `Unsure` is raised.

Whoever meets that goes on with the slow reader, which finds line and column of what is wrong, or reads what this one does not.
So both give equal values, to the bit, and equal refusals.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from pyarrow import Table

BLOCK = 1 << 22  # bytes that are read at once
LONGEST = 1 << 17  # bytes of a line that cells may have without a limit of Python's reader being near
BOM = b"\xef\xbb\xbf"
# A cell that is missing, in the spellings that are frequent; others are left to the slow reader.
NULLS = ["", "NA", "na", "N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "Null"]


class Unsure(Exception):
    """The fast reader cannot read a file, or might read it otherwise than the slow one."""


def tables(path: Path, separator: str, width: int, numbers: Sequence[int], texts: Sequence[int]) -> Iterator[Table]:
    """Some rows at a time of columns by their places from 0, each named by its place: float64 with NaN for nulls, or texts.

    Raises Unsure, also where pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv
    except ImportError:
        raise Unsure from None
    types = {str(place): pyarrow.float64() for place in numbers} | {str(place): pyarrow.string() for place in texts}
    convert = ConvertOptions(
        column_types=types,
        include_columns=list(types),
        null_values=NULLS,
        strings_can_be_null=False,
        quoted_strings_can_be_null=True,
    )
    parse = ParseOptions(delimiter=separator)
    quoted = quotes_of(separator)
    with path.open("rb") as file:
        check_head(file, separator, width)
        for block in blocks(file, quoted):
            read = ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=[str(i) for i in range(width)])
            try:
                yield read_csv(pyarrow.BufferReader(block), read, parse, convert)
            except (pyarrow.ArrowInvalid, pyarrow.ArrowKeyError) as error:
                raise Unsure from error


def check_head(file: BinaryIO, separator: str, width: int) -> None:
    """Read the names, so that the rows come next. Raises Unsure where they are not on a line of their own."""
    line = file.readline(LONGEST).removeprefix(BOM)
    while line and not line.strip(b"\r\n"):
        line = file.readline(LONGEST)
    try:
        rows = list(csv.reader([plain_text(line)], delimiter=separator, strict=True))
    except csv.Error as error:
        raise Unsure from error
    if not line.endswith(b"\n") or len(rows) != 1 or len(rows[0]) != width:
        raise Unsure


def blocks(file: BinaryIO, quoted: re.Pattern[bytes]) -> Iterator[bytes]:
    """The rest of a file in whole lines. Raises Unsure for what another reader may take for other lines or cells."""
    left = b""
    while more := file.read(BLOCK):
        whole, newline, rest = more.rpartition(b"\n")
        if newline:
            yield from checked(left + whole + newline, quoted)
            left = rest
        else:
            left += rest
        if len(left) > LONGEST:
            raise Unsure
    yield from checked(left, quoted)


def checked(block: bytes, quoted: re.Pattern[bytes]) -> Iterator[bytes]:
    """A block, if it has any line that is not blank."""
    if not block.strip(b"\r\n"):
        return
    plain_text(block)
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    if len(block) > LONGEST and np.diff(ends, prepend=-1, append=len(block)).max() > LONGEST:
        raise Unsure
    if b'"' in block and block.count(b'"') != 2 * sum(1 for _ in quoted.finditer(block)):
        raise Unsure
    yield block


def plain_text(block: bytes) -> str:
    """Text whose lines end in one way. Raises Unsure for other bytes."""
    if b"\0" in block or (b"\r" in block and block.count(b"\r") != block.count(b"\r\n")):
        raise Unsure
    try:
        return block.decode()
    except UnicodeDecodeError as error:
        raise Unsure from error


def quotes_of(separator: str) -> re.Pattern[bytes]:
    """A whole cell in quotes that has no quotes and no line end within: any other use of quotes is left to the slow reader."""
    between = re.escape(separator.encode())
    return re.compile(rb'(?:(?<=[\n%b])|\A)"[^"\r\n]*"(?=[%b\r\n]|\Z)' % (between, between))
