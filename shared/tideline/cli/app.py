"""The commands put together. Nothing here loads more than typer."""

from __future__ import annotations

import typer

from tideline.cli import serving
from tideline.cli.coordinator import audit, clients, keys, links, login, parts, runs
from tideline.cli.guard import Guarded
from tideline.cli.local import bench, research, tls
from tideline.cli.site import data, doctor, site

# Plain help: rich would double the time that it takes.
app = typer.Typer(
    cls=Guarded,
    help="Federated learning for data that shift from place to place.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(serving.coordinator)
app.command()(serving.agent)
app.command()(doctor.doctor)
app.command()(serving.invite)
app.command()(login.login)
app.command()(login.logout)
app.add_typer(keys.app, name="keys")
app.add_typer(runs.app, name="run")
app.add_typer(site.app, name="site")
app.add_typer(parts.app, name="parts")
app.add_typer(data.app, name="data")
app.add_typer(clients.app, name="clients")
app.add_typer(audit.app, name="audit")
app.add_typer(tls.app, name="tls")
app.add_typer(links.app, name="links")
for each in (research.methods, research.contract, research.simulate, bench.bench, research.demo, research.version):
    app.command()(each)
