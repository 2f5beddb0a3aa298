"""How every command ends: with an exit code and, where something is wrong, a sentence instead of a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from tideline.client.answers import RunResult
from tideline.client.output import clean
from tideline.core.errors import Cancelled, ChainBroken, FederationError, Refused, Stalled, StepFailed, Unreachable, problem

DONE, ENDED_BADLY, REFUSED, UNREACHABLE, OTHER, UNSOUND, TAMPERED, INTERRUPTED, UNREAD = 0, 1, 2, 3, 4, 5, 6, 130, 141
# The first kind that fits has the code.
CODES: dict[type[FederationError], int] = {
    **dict.fromkeys((StepFailed, Stalled, Cancelled), ENDED_BADLY),
    Refused: REFUSED,
    Unreachable: UNREACHABLE,
    ChainBroken: TAMPERED,
    FederationError: OTHER,
}
JSON_WANTED = "tideline.json"


def group_of(words: str) -> typer.Typer:
    """A group of commands. Plain help: rich would double the time that it takes."""
    return typer.Typer(help=words, no_args_is_help=True, rich_markup_mode=None)


class Guarded(TyperGroup):
    """The root of the commands, which turns errors into sentences and exit codes."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except FederationError as error:
            raise typer.Exit(report(error, bool(ctx.meta.get(JSON_WANTED)))) from None
        except KeyboardInterrupt:
            typer.echo("Interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            drop_stdout()
            raise typer.Exit(UNREAD) from None
        except Exception as error:
            if hasattr(error, "exit_code"):  # typer's own, which it prints itself
                raise
            drop_stdout()
            raise typer.Exit(report(unexpected(error), bool(ctx.meta.get(JSON_WANTED)))) from None


def unexpected(error: Exception) -> FederationError:
    """The system's refusal, in its words; or a mistake of ours, whose traceback goes to stderr."""
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        todo = "Check that the path is right, has room, and that you may use it"
        return FederationError(f"{place}{error.strerror or error}", todo)
    traceback.print_exception(error)
    return FederationError(f"The command failed with {type(error).__name__}", "Report it with the lines above")


def drop_stdout() -> None:
    """Discard what could not be written to stdout, so that the end of the process does not try again."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report(error: FederationError, as_json: bool) -> int:
    """Print an error: as text on stderr and, if JSON is wanted, as JSON on stdout. Returns the exit code."""
    typer.echo(f"Error: {clean(error.what)}", err=True)
    if error.todo:
        typer.echo(f"What to do: {clean(error.todo)}", err=True)
    if as_json:
        with contextlib.suppress(OSError):  # stdout may be the cause of the error
            print_json(as_data(error))
    return code_of(error)


def code_of(error: FederationError) -> int:
    return next(code for kind, code in CODES.items() if isinstance(error, kind))


def code_of_run(result: RunResult) -> int:
    return DONE if result["status"] == "completed" else ENDED_BADLY


def as_data(error: FederationError) -> dict[str, object]:
    context = {k: v if isinstance(v, (str, int, float, type(None))) else str(v) for k, v in error.context.items() if k != "path"}
    return problem(error) | {"context": context}


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None))


def print_line(value: object) -> None:
    """Print a value on stdout as one line, at once: one of many."""
    typer.echo(json.dumps(value))
    sys.stdout.flush()


def output(value: object, as_json: bool, text: str) -> None:
    """Print a command's result: as JSON for programs, or as text."""
    print_json(value) if as_json else typer.echo(text)
