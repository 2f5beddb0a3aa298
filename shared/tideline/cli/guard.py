"""What every command ends with: an exit code and, where something is wrong, a sentence instead of a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from tideline.core.errors import Cancelled, ChainBroken, FederationError, Refused, Stalled, StepFailed, Unreachable, problem

DONE, ENDED_BADLY, REFUSED, UNREACHABLE, OTHER, UNSOUND, TAMPERED, INTERRUPTED, UNREAD = 0, 1, 2, 3, 4, 5, 6, 130, 141
# The first row that fits tells the code.
CODES: tuple[tuple[tuple[type[FederationError], ...], int], ...] = (
    ((StepFailed, Stalled, Cancelled), ENDED_BADLY),
    ((Refused,), REFUSED),
    ((Unreachable,), UNREACHABLE),
    ((ChainBroken,), TAMPERED),
    ((FederationError,), OTHER),
)
JSON_WANTED = "tideline.json"


class Guarded(TyperGroup):
    """The root of the commands: turns errors into sentences and exit codes."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except FederationError as error:
            raise typer.Exit(report(error, bool(ctx.meta.get(JSON_WANTED)))) from None
        except KeyboardInterrupt:
            typer.echo("Interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            let_go()
            raise typer.Exit(UNREAD) from None
        except Exception as error:
            if hasattr(error, "exit_code"):  # typer's own, which it tells itself
                raise
            let_go()
            raise typer.Exit(report(unforeseen(error), bool(ctx.meta.get(JSON_WANTED)))) from None


def unforeseen(error: Exception) -> FederationError:
    """What the system refused, in its words; or a mistake of ours, whose trace goes to stderr."""
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return FederationError(
            f"{place}{error.strerror or error}", "See that the place is right, has room, and may be used by you"
        )
    traceback.print_exception(error)
    return FederationError(f"The command failed with {type(error).__name__}", "Report it with the lines above")


def let_go() -> None:
    """What could not be written to stdout is not tried again at the end of the process."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report(error: FederationError, as_json: bool) -> int:
    """Tell an error: in words on stderr and, if JSON is wanted, as data on stdout. Gives the exit code."""
    typer.echo(f"Error: {clean(error.what)}", err=True)
    if error.todo:
        typer.echo(f"What to do: {clean(error.todo)}", err=True)
    if as_json:
        with contextlib.suppress(OSError):  # which may be the very error
            say_json(as_data(error))
    return code_of(error)


def code_of(error: FederationError) -> int:
    """The exit code of an error."""
    return next(code for kinds, code in CODES if isinstance(error, kinds))


def code_of_run(result: Mapping[str, Any]) -> int:
    """The exit code of a run's result: 0 if it completed."""
    return DONE if result["status"] == "completed" else ENDED_BADLY


def as_data(error: FederationError) -> dict[str, Any]:
    """An error in the shape that the coordinator's door uses."""
    told = problem(error)
    plain = {k: v if isinstance(v, (str, int, float, bool, type(None))) else str(v) for k, v in told["context"].items()}
    return told | {"context": plain}


def say_json(value: Any) -> None:
    """A value on stdout, for programs."""
    typer.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None))


def say_line(value: Any) -> None:
    """A value on stdout as one line, at once: one of many that come by and by."""
    typer.echo(json.dumps(value))
    sys.stdout.flush()


def clean(text: str) -> str:
    """A text from elsewhere, without anything that would steer the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
