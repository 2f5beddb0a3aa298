"""The command line: `tideline ...` or `python -m tideline ...`."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command that the arguments name, and end the process with its code."""
    try:
        from tideline.cli.app import app

        app(prog_name="tideline")
    except KeyboardInterrupt:  # while modules are loaded: no command is there yet to say so
        sys.stderr.write("Interrupted\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
