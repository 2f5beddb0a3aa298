"""The command by which a site's owner ends its part in a federation. It sends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tideline.cli.guard import output
from tideline.cli.options import REGISTRY, Json, Methods
from tideline.cli.site.approval import confirm
from tideline.cli.site.site import Home, check_home
from tideline.client.output import check_out, counted, size
from tideline.core.errors import ConfigRefused
from tideline.core.settings import plain


def leave_federation(
    home: Home,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="A .jsonl file outside of the home: the ledger goes there.")],
    runs: Annotated[bool, typer.Option("--runs", help="Also delete what the site has learnt: runs, models, caches.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    methods: Methods = REGISTRY,
    as_json: Json = False,
) -> None:
    """End this site's part: write its ledger to a file, delete the agent's keys, and say what remains. Stop the agent first."""
    from tideline_agent.home.retention.leaving import leave

    check_home(home)
    check_out(out, ".jsonl")
    if out.resolve().is_relative_to(home.resolve()):
        raise ConfigRefused(f"--out {out} is in the home", "Name a place that stays when the home is deleted", path="out")
    if not yes:
        if as_json:
            raise ConfigRefused("--json does not ask for confirmation", "Add --yes to leave", path="yes")
        more = ", and all runs with their models" if runs else ""
        confirm(f"Delete the agent's keys{more}? The site can come back only by a new invitation")
    found = leave(home, out, methods, runs)
    lines = [f"Wrote {out}: {counted(found.entries, 'entry', 'entries')}, the last with hash {found.hash}."]
    lines.append(f"Deleted {', '.join(found.deleted) or 'no keys: there were none'}.")
    if runs:
        lines.append(f"Forgot {counted(found.forgotten, 'run')}, {size(found.bytes)}.")
    remains = f"the ledger, the policy and {counted(found.runs, 'run')}" if found.runs else "the ledger and the policy"
    lines.append(f"In {home} remain {remains}. At the coordinator: tideline clients revoke NAME")
    output(plain(found), as_json, "\n".join(lines))


def add_to(site: typer.Typer) -> None:
    """Have this command among those of a site's owner."""
    site.command("leave")(leave_federation)
