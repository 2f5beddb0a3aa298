"""Every way in which bytes can contradict their declaration, by name."""

from __future__ import annotations

from tideline.core.errors import Malformed


class ArchiveBroken(Malformed):
    """The file contradicts itself."""


class TooShort(ArchiveBroken):
    """Fewer than the eight bytes of the header's length."""


class HeaderTooLarge(ArchiveBroken):
    """The header claims more bytes than the limit, or holds more texts, commas, objects or lists."""


class HeaderTruncated(ArchiveBroken):
    """The header claims more bytes than the file holds."""


class HeaderNotJson(ArchiveBroken):
    """The header is not UTF-8, not JSON, or not an object."""


class HeaderTooDeep(ArchiveBroken):
    """The header is nested beyond the limit."""


class DuplicateKey(ArchiveBroken):
    """A name stands twice in one object."""


class BadName(ArchiveBroken):
    """A name is empty, too long, or has a character that names may not have."""


class BadEntry(ArchiveBroken):
    """An entry does not have exactly dtype, shape and data_offsets."""


class UnknownDtype(ArchiveBroken):
    """A dtype that is not in the table."""


class BadShape(ArchiveBroken):
    """An axis is negative or not whole, there are too many, or the size overflows."""


class BadOffsets(ArchiveBroken):
    """Offsets are not two whole numbers in order."""


class SizeMismatch(ArchiveBroken):
    """A buffer's length is not the product of its shape."""


class Misaligned(ArchiveBroken):
    """A buffer does not begin at a multiple of its item's size, or the data not at a multiple of 64 bytes."""


class Overlap(ArchiveBroken):
    """A buffer begins before the last one ended."""


class Hole(ArchiveBroken):
    """Bytes between two buffers belong to none."""


class DataTruncated(ArchiveBroken):
    """A buffer lies beyond the end of the file."""


class TrailingBytes(ArchiveBroken):
    """Bytes follow the last buffer."""


class TooManyTensors(ArchiveBroken):
    """More entries than the limit, or parts named more often."""


class BadMetadata(ArchiveBroken):
    """Metadata are not texts, have an unknown key, or their structure is no record."""


class UnknownLayout(ArchiveBroken):
    """The file was written by another version of the layout."""


class NotBoolean(ArchiveBroken):
    """A BOOL buffer holds a byte other than 0 and 1."""


class DigestMismatch(ArchiveBroken):
    """Bytes that came over a line are not those of the name that they were announced by."""


class SealBroken(ArchiveBroken):
    """A sealed value is not what its holder sealed, signed and named: it was changed, swapped, replayed or cut on its way, or its
    holder sealed it badly. The words say which, and who is to be asked.
    """


class PartMissing(ArchiveBroken):
    """A part that the root names is not there."""


class PartDamaged(PartMissing):
    """A part's bytes have changed where they lay: they are not those of its name any more. They were set aside, so that it can be
    written again.
    """


class PartMismatch(ArchiveBroken):
    """A part's dtype, shape or size is not the one that the root names, or that was announced."""


class BadPacking(ArchiveBroken):
    """A tensor is not in the form that the run's wire gives its field: not packed, packed otherwise, or packed badly."""


class Undeclared(Malformed):
    """A field that the type does not declare."""


class Missing(Malformed):
    """A field that the type declares and the file lacks."""


class WrongType(Malformed):
    """A value of another type than the declared one, or a text that is not Unicode."""


class WrongDims(Malformed):
    """A size contradicts the declared dims, or names and shapes differ from the order's."""


class NotFinite(Malformed):
    """A NaN or an infinity."""


class OutOfRange(Malformed):
    """A number lies below the bound that its field declares, or beyond what any number of a reply may be."""


class TooLarge(Malformed):
    """More bytes than the limit."""
