"""Write one file of each format, or read such files: `python -m tests.formats FOLDER`, `python -m tests.formats --read FOLDER`.

It runs with the packages that Python finds first: those of this tree, or of a release.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.formats.files import read, write

if __name__ == "__main__":
    os.umask(0o077)  # as coordinators and agents write
    *reading, given = sys.argv[1:]
    if reading == ["--read"]:
        print(json.dumps(read(Path(given)), indent=1, sort_keys=True))
    else:
        write(Path(given))
