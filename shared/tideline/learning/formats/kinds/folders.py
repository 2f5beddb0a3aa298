"""The kinds of files of which a folder may be a domain, beside images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tideline.learning.formats.kinds.audio import AUDIO
from tideline.learning.formats.kinds.dicom import DICOM
from tideline.learning.formats.kinds.listing import FileKind
from tideline.learning.formats.kinds.nifti import NIFTI

KINDS_OF_FILES: Mapping[str, FileKind] = {"dicom": DICOM, "nifti": NIFTI, "audio": AUDIO}


def kind_of_folder(folder: Path) -> str:
    """The kind of a folder, a key of KINDS_OF_FILES; an empty text for a folder of none."""
    return next((name for name, kind in KINDS_OF_FILES.items() if kind.is_domain(folder)), "")
