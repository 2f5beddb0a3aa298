"""A rehearsal's verdict in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from tideline.cli.tables import table
from tideline.client.answers import RunResult
from tideline.report.verdict_rows import sentences_of, table_of, verdict_of


def verdict_table(result: RunResult) -> Table | None:
    """What each candidate gained where it was rehearsed, and how much it counts at each target; None of other runs."""
    made = table_of(result)
    return None if made is None else table(made.title, made.heads, map(list, made.rows), right=range(1, len(made.heads)))


def verdict_lines(result: RunResult) -> Iterator[str]:
    """For each target what to expect and what was found, and where the model is."""
    yield from sentences_of(result)
    said = verdict_of(result)
    for each in said["targets"] if said and said["runs"] else ():
        yield f"The model for {each['name']}: tideline run export {result['run']} --site {each['name']} --out model.safetensors"
