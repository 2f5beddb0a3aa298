"""The command line: `tideline ...` or `python -m tideline ...`."""

from __future__ import annotations


def main() -> None:
    """Run the command that the arguments name, and end the process with its code."""
    from tideline.cli.app import app

    app(prog_name="tideline")


if __name__ == "__main__":
    main()
