"""Commands by which a site's owner looks at runs that wait, lets them run or not, and reads the ledger. They send nothing."""

from __future__ import annotations

import fnmatch
import json
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tideline.cli.guard import DONE, REFUSED, output, print_json
from tideline.cli.options import REGISTRY, Json, Methods
from tideline.cli.site.site import Home
from tideline.client.output import check_out, clean, counted, day, replace_bytes
from tideline.core.errors import ConfigRefused, Refused
from tideline.core.settings import Plain, nearest, plain

if TYPE_CHECKING:
    from tideline.engine.audit.log import Entry
    from tideline.engine.model.brief import Brief
    from tideline_agent.home.obeyed import Judge
    from tideline_agent.policy_file import SitePolicy

policy = typer.Typer(help="Check the file that says which runs may run here.", no_args_is_help=True, rich_markup_mode=None)
ledger = typer.Typer(help="Read what this site let happen.", no_args_is_help=True, rich_markup_mode=None)
Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, see `tideline site pending`.")]
PolicyFile = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="The policy. [default: the one that the agent obeys]")
]


def list_pending(home: Home, as_json: Json = False) -> None:
    """List the runs that wait for you: what they are, who asks, and what they would send."""
    from tideline.engine.model.orders import Hold
    from tideline.engine.site.admission import facts_of
    from tideline_agent.home.ledger import FileLedger
    from tideline_agent.home.words import waiting

    found = waiting(home)
    if as_json:
        facts = [facts_of(each.run.brief) for each in found]
        head = [{"run": each.run.run, "waits_for": each.run.why.value, "since": each.run.since} for each in found]
        print_json(
            [
                {**one, **fact, "beside": [other.run for other in each.beside]}
                for one, fact, each in zip(head, facts, found, strict=True)
            ]
        )
        return
    entries = FileLedger(home)
    for each in found:
        typer.echo(f"{clean(each.run.run)} waits for {each.run.why.value} since {day(each.run.since)}")
        for line in each.words(entries):
            typer.echo(f"  {clean(line)}")
    if not found:
        typer.echo("Nothing waits.")
    elif any(each.run.why is Hold.APPROVAL for each in found):
        typer.echo("\nLet one run with `tideline site approve RUN`, or decline it.")
    else:
        typer.echo("\nNone waits for your word: these go on by themselves, or you decline them.")


def approve_run(
    run: Run,
    home: Home,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Let a run work at this site, with its reference and its rehearsals."""
    from tideline_agent.home import words

    asked = words.question(home, run)
    if not yes:
        if as_json:
            raise ConfigRefused("--json does not ask for confirmation", "Add --yes to approve the run", path="yes")
        for line in asked.words():
            typer.echo(clean(line))
        confirm(f"Let run {clean(run)} work at this site?")
    words.approve(home, asked)
    output({"run": run, "approved": True}, as_json, f"Run {clean(run)} may work at this site.")


def decline_run(run: Run, home: Home, as_json: Json = False) -> None:
    """Do not let a run work at this site; one that works already answers nothing more."""
    from tideline_agent.home import words

    words.decline(home, words.question(home, run))
    output({"run": run, "approved": False}, as_json, f"Run {clean(run)} may not work at this site.")


def add_to(site: typer.Typer) -> None:
    """Have these commands among those of a site's owner."""
    for name, command in (("pending", list_pending), ("approve", approve_run), ("decline", decline_run)):
        site.command(name)(command)
    site.add_typer(policy, name="policy")
    site.add_typer(ledger, name="ledger")


def confirm(question: str) -> None:
    """Raises Refused for any answer but yes."""
    try:
        wanted = typer.confirm(question, err=True)
    except typer.Abort:
        wanted = False
    if not wanted:
        raise Refused("Nothing was changed: you did not confirm", "Answer y, or add --yes")


@policy.command("check")
def check_policy(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="The policy file. [default: the built-in policy]")] = None,
    project: Annotated[str | None, typer.Option(metavar="NAME", help="Say what holds for the runs of this project.")] = None,
    methods: Methods = REGISTRY,
    as_json: Json = False,
) -> None:
    """Read a policy file as an agent would, and say in words what it lets happen."""
    from tideline_agent.page.policy_words import policy_in_words
    from tideline_agent.policy_file import read_policy

    every = read_policy(file)
    found = every if project is None else every.of(project)
    idle = list(without_effect(found, methods))
    if as_json:
        print_json({**policy_in_facts(found), "without_effect": idle})
        return
    own = [line for name, each in found.projects.items() for line in differences(name, found, each)]
    for line in (*policy_in_words(found), *own, *(f"Without effect: {each}" for each in idle)):
        typer.echo(line)


def policy_in_facts(found: SitePolicy) -> dict[str, Plain]:
    """A policy as plain data, with those of projects."""
    allowed = sorted(" to ".join(each) for each in found.allowed)
    own = {name: policy_in_facts(each) for name, each in found.projects.items()}
    return {"allowed": allowed, "notes": found.notes, **plain(found.rules), **({"projects": own} if own else {})}


def differences(project: str, found: SitePolicy, own: SitePolicy) -> Iterable[str]:
    """What is other for a project, a line each."""
    from tideline_agent.page.policy_words import policy_in_words

    same = set(policy_in_words(found))
    lines = [line for line in policy_in_words(own) if line not in same]
    yield from (f"in the project {project}, {line}" for line in lines or ("all as above",))


@policy.command("explain")
def explain_run(run: Run, home: Home, file: PolicyFile = None, as_json: Json = False) -> None:
    """Say what a run is, and whether the policy lets it work at this site. RUN waits here, or has worked here."""
    from tideline.core.privacy import refused
    from tideline.engine.site.admission import brief_in_words, objections
    from tideline_agent.home.words import brief_of

    brief, judge = brief_of(home, run), judge_of(home, file)
    owners = judge.policy.of(brief.intent.project)
    against = [f"{words} ({line})" for words, line in objections(owners.rules, brief)]
    against += [f"{clause.sentence()} ([allow] {clause.exposure.value})" for clause in refused(brief.contract, owners.allowed)]
    if as_json:
        is_run = list(brief_in_words(brief))
        print_json({"run": run, "allowed": not against, "against": against, "is": is_run, "judged_by": judge.words})
    else:
        show_explained(brief, judge, against)
    raise typer.Exit(REFUSED if against else DONE)


def judge_of(home: Path, file: Path | None) -> Judge:
    """The policy of a file, or the one that the home's agent obeys. Raises ConfigRefused."""
    from tideline_agent.home.obeyed import Judge, in_force
    from tideline_agent.policy_file import read_policy

    return in_force(home) if file is None else Judge(read_policy(file), f"the policy {file}")


def show_explained(brief: Brief, judge: Judge, against: list[str]) -> None:
    from tideline.engine.site.admission import brief_in_words

    for line in brief_in_words(brief):
        typer.echo(clean(line))
    typer.echo(f"\nJudged by {clean(judge.words)}.")
    if against:
        typer.echo("The policy does not let it run here:")
        for line in against:
            typer.echo(f"  {clean(line)}")
        return
    waits = {"never": "without asking you", "new": "once you have approved a run that asks for the same"}
    word = waits.get(judge.policy.of(brief.intent.project).rules.runs.approve.value, "once you have approved it")
    typer.echo(f"The policy lets it run here, {word}.")


def without_effect(found: SitePolicy, methods: str) -> Iterable[str]:
    """Names in a policy that no installed method has: a slip of the pen, or a method that is not installed here."""
    from tideline.core.algorithm import load_methods, resolve
    from tideline.engine.site.rules import BATCH_SHARE, EVERY

    known = load_methods(methods)
    names = [name for name, _ in known]
    for name in found.rules.runs.methods:
        if name not in names:
            yield f"[runs] methods names {name}, and there is no such method here{nearest(name, names)}"
    for name in found.rules.privacy.require:
        if name not in (*names, EVERY):
            yield f"[privacy] require names {name}, and there is no such method here{nearest(name, (*names, EVERY))}"
    settings = sorted({each.name for name in names for each in fields(resolve(known, name).config)})
    for bound in found.rules.bounds:
        if bound != BATCH_SHARE and not fnmatch.filter(settings, bound):
            yield f"[bounds] {bound}: no method here has such a setting{nearest(bound, settings)}"


@ledger.command("list")
def list_entries(
    home: Home,
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="Of this run alone.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Of this kind alone, such as reply.")] = None,
    last: Annotated[int, typer.Option("--last", min=1, help="So many of the newest.")] = 50,
    as_json: Json = False,
) -> None:
    """List entries of the ledger, the newest last."""
    fits = (each for each in entries_of(home) if (run is None or each.run == run) and (kind is None or each.kind == kind))
    found = deque(fits, maxlen=last)
    if as_json:
        print_json([vars(each) for each in found])
        return
    for each in found:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.at))
        facts = " ".join(f"{name}={short(value)}" for name, value in each.details.items() if name not in ("config", "files"))
        typer.echo(clean(f"{each.seq:>6}  {at}  {each.kind:<9}  {each.run}  {facts}"))


def short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def entries_of(home: Path) -> Iterable[Entry]:
    from tideline_agent.home.ledger import entries
    from tideline_agent.home.words import check_home

    check_home(home)
    return entries(home)


@ledger.command("verify")
def verify_ledger(home: Home, as_json: Json = False) -> None:
    """Check that no entry was changed, taken out or put in, and none cut off the end. Keep the last hash elsewhere, too."""
    from tideline.engine.audit.log import Tip
    from tideline_agent.home.ledger import check_whole
    from tideline_agent.home.ledger_head import remembered

    before, last, seen = remembered(home), Tip(0, ""), ""
    for each in entries_of(home):
        last = Tip(each.seq, each.hash)
        seen = each.hash if each.seq == before.seq else seen
    check_whole(home, last, before, seen)
    text = f"{counted(last.seq, 'entry', 'entries')}, all as they were written; the last hash is {last.hash}"
    output({"entries": last.seq, "hash": last.hash}, as_json, text)


@ledger.command("accept")
def accept_ledger(
    home: Home,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Go on with a ledger that was cut, or begin another in place of one that is gone. The agent does not start before."""
    import getpass

    from tideline_agent.home.ledger import FILE, accept
    from tideline_agent.home.ledger_head import HEAD

    if not (home / FILE).is_file() and not (home / HEAD).is_file():
        raise ConfigRefused(f"{home} is not an agent's home, or its agent has not started yet", "Correct --home", path="home")
    if not yes:
        if as_json:
            raise ConfigRefused("--json does not ask for confirmation", "Add --yes to accept the ledger", path="yes")
        confirm("What was approved and declined in the entries that are gone is forgotten. Go on without them?")
    cut = accept(home, getpass.getuser())
    facts = {"entries": cut.now.seq, "entries_before": cut.before.seq, "hash_before": cut.before.hash}
    text = f"The ledger goes on after entry {cut.now.seq}; it had {cut.before.seq}. Start the agent."
    output(facts, as_json, text)


@ledger.command("export")
def export_ledger(
    home: Home, out: Annotated[Path, typer.Option("--out", metavar="FILE", help="A .jsonl file to write.")], as_json: Json = False
) -> None:
    """Write all entries to a file, a line each, once they are verified."""
    check_out(out, ".jsonl")
    lines = [json.dumps(vars(each)) + "\n" for each in entries_of(home)]
    replace_bytes(out, "".join(lines).encode())
    output({"file": str(out), "entries": len(lines)}, as_json, f"Wrote {out}: {counted(len(lines), 'entry', 'entries')}")
