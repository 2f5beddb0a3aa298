"""The commands put together. Nothing here loads more than typer."""

from __future__ import annotations

import typer

from tideline.cli import adapting, serving
from tideline.cli.coordinator import access, database, dossiers, links, maintenance, notify, projects, retention, runs, tracking
from tideline.cli.guard import Guarded
from tideline.cli.local import bench, predict, research, tls
from tideline.cli.site import approval, budget, cleaning, data, join, leaving, site, standing

# Plain help: rich would double the time that it takes.
app = typer.Typer(
    cls=Guarded,
    help="Federated learning for data that differ from site to site.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (
    serving.coordinator,
    serving.agent,
    join.join,
    serving.doctor,
    serving.invite,
    access.login,
    access.logout,
    maintenance.restored,
):
    app.command()(command)
groups = {
    "keys": access.keys,
    "sessions": access.sessions,
    "run": runs.app,
    "site": site.app,
    "parts": maintenance.parts,
    "data": data.app,
}
groups |= {"projects": projects.app, "retention": retention.app, "notify": notify.app, "database": database.database}
groups |= {"clients": access.clients, "audit": maintenance.audit, "tls": tls.app, "links": links.app}
groups |= {"dossier": dossiers.app}
runs.app.command("track")(tracking.track)
runs.app.command("dossier")(dossiers.dossier)
approval.add_to(site.app)
budget.add_to(site.app)
cleaning.add_to(site.app)
leaving.add_to(site.app)
standing.add_to(site.app)
for name, group in groups.items():
    app.add_typer(group, name=name)
for command in (
    adapting.adapt,
    research.methods,
    research.contract,
    research.simulate,
    predict.predict,
    bench.bench,
    research.demo,
):
    app.command()(command)
app.command()(research.version)
