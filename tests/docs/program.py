"""Run a page's program as `python FILE` does; a module, so that the suite can fork it.

python -m tests.docs.program FILE
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    runpy.run_path(sys.argv[1], run_name="__main__")
