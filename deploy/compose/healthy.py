"""Health check of this container's coordinator: ends with 0, or with a line that says what is wrong."""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.request
from pathlib import Path


def main() -> None:
    """Call it at the address that it wrote to its home. Its certificate is not checked: the call stays on this machine."""
    listeners = json.loads((Path(os.environ["TIDELINE_HOME"]) / "coordinator.json").read_text())
    url = listeners["http"].replace("//0.0.0.0", "//127.0.0.1")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with urllib.request.urlopen(f"{url}/health", timeout=4, context=context) as answer:  # a 503 raises
        answer.read()


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"unhealthy: {error}")
