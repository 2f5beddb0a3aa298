"""What the coordinator's rules of age delete."""

from __future__ import annotations

from collections.abc import Iterator

from tideline.cli.guard import group_of, output
from tideline.cli.options import Connect, Json, remote
from tideline.client.answers import RetentionShown
from tideline.client.output import clean, counted, day

app = group_of("See what the coordinator's rules of age delete.")


@app.command("show")
@remote
def show(connect: Connect, as_json: Json = False) -> None:
    """Show the rules, and what they delete within the next ten minutes."""
    with connect() as client:
        shown: RetentionShown = client.get("/retention")
    output(shown, as_json, "\n".join(lines(shown)))


def lines(shown: RetentionShown) -> Iterator[str]:
    yield f"Runs are kept {kept(shown['runs_days'])}, their events {kept(shown['events_days'])}."
    for own in shown["projects"]:
        yield f"Those of {clean(own['name'])}: runs {kept(own['runs_days'])}, their events {kept(own['events_days'])}."
    if shown["audit_days"]:
        yield f"Entries of the audit log are archived after {shown['audit_days']:g} days."
    for row in shown["runs"]:
        yield f"{row['run']} ({clean(row['name'])}), over since {day(row['ended'])}, goes next, with what belongs to it"
    if shown["events"]:
        yield f"{counted(shown['events'], 'event')} of runs that are over will go"
    if shown["audit_entries"]:
        yield f"{counted(shown['audit_entries'], 'entry', 'entries')} of the audit log will go into a file"
    if shown["audit_trouble"]:
        yield "Entries of the audit log that are due cannot be archived; the coordinator's log says why"
    if not (shown["runs"] or shown["events"] or shown["audit_entries"]):
        yield "Nothing is due"


def kept(days: float) -> str:
    return f"for {days:g} days after a run's end" if days else "for ever"
