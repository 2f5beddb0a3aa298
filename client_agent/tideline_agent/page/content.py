"""What the owner's page shows, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tideline.core.errors import FederationError
from tideline.core.settings import Plain, plain
from tideline.engine.model.orders import Hold
from tideline_agent.home.budget.shown import shown
from tideline_agent.home.held import HeldRun, held_runs
from tideline_agent.home.ledger import FileLedger
from tideline_agent.home.obeyed import in_force
from tideline_agent.home.words import Waiting, waiting
from tideline_agent.machine.use import Machine
from tideline_agent.page.egress import Egress, Search
from tideline_agent.page.policy_words import policy_in_words
from tideline_agent.page.sent import Sent
from tideline_agent.page.work import Work
from tideline_agent.policy_file import read_policy
from tideline_agent.vault import FolderVault

MOST_ROWS = 200  # that a page of the table has
MOST_SUMS = 50


@dataclass(frozen=True)
class Site:
    """machine: what it computes on, and how busy that is. policy: the file. works: what is at work now."""

    name: str
    home: Path
    machine: Machine
    policy: Path | None
    works: Callable[[], Sequence[Work]]


def now_of(site: Site, ledger: FileLedger, egress: Egress) -> dict[str, Plain]:
    """What changes: it is asked for again and again, and reads little."""
    held = held_runs(site.home)
    return {
        "site": site.name,
        "paused": ledger.paused_since(),
        "waiting": [waits(each, ledger) for each in waiting(site.home) if each.run.why is Hold.APPROVAL],
        "next": [comes(each) for each in held if each.why is not Hold.APPROVAL],
        "works": [{**each._asdict(), "phase": seen(each.phase), "step": seen(each.step)} for each in site.works()],
        "standing": [plain(replace(each, words=seen(each.words), by=seen(each.by))) for each in ledger.standing()],
        "chain": plain(egress.chain()),
        "sent": egress.size(),
    }


def waits(each: Waiting, ledger: FileLedger) -> dict[str, Plain]:
    run, intent = each.run, each.run.brief.intent
    return {
        "run": run.run,
        "since": run.since,
        "by": intent.by,
        "method": run.brief.method,
        "work": list(map(seen, each.work(ledger))),
        "leaves": list(map(seen, each.question.leaving())),
        "words": list(map(seen, each.words(ledger))),
        "shown": [*each.question.intents],
    }


def seen(text: str) -> str:
    """A sentence whose every character is seen: one that turns its text around would turn ours, too, on which an owner decides.

    >>> seen("alice" + chr(0x202E) + ", 3 sites")
    'alice\\\\u202e, 3 sites'
    """
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)


def comes(each: HeldRun) -> dict[str, Plain]:
    return {"run": each.run, "since": each.since, "method": each.brief.method, "why": each.why.value}


def egress_of(egress: Egress, search: Search, skip: int) -> dict[str, Plain]:
    """A page of what left, and sums of all that was found."""
    found = egress.found(search)
    return {
        "rows": [row(each) for each in found.read(skip, MOST_ROWS)],
        "found": len(found.at),
        "bytes": found.bytes,
        "page": MOST_ROWS,
        "runs": [list(each) for each in found.by_run()[:MOST_SUMS]],
        "exposures": [list(each) for each in found.by_exposure()],
    }


def row(sent: Sent) -> dict[str, Plain]:
    return {
        **sent._asdict(),
        "fields": [list(each) for each in sent.fields],
        "digests": list(sent.digests),
        "sizes": [list(each) for each in sent.sizes],
        "exposure": sent.exposure,
    }


def results_of(home: Path) -> list[dict[str, Plain]]:
    """The site's runs, each with the metrics of its last answer."""
    vault = FolderVault(home / "runs")
    found: list[dict[str, Plain]] = []
    for run in vault.runs():
        try:
            head, brief = vault.head(run), vault.brief(run)
        except FederationError as error:
            found.append({"run": run, "method": "", "role": "", "metrics": {}, "error": error.what})
            continue
        metrics = dict(head.metrics) if head else {}
        found.append({"run": run, "method": brief["method"], "role": brief["role"], "metrics": metrics, "error": ""})
    return found


def budget_of(home: Path, ledger: FileLedger) -> dict[str, Plain]:
    """What private runs cost the site's rows, and what is left."""
    found = shown(home, ledger)
    columns = ("population", "unit", "spent", "reserved", "stated", "epsilon", "delta", "left", "lost")
    rows = [{name: getattr(each, name) for name in columns} for each in found.budgets]
    return {"rows": list[Plain](rows), "uncharged": found.uncharged, "behind": found.behind}


def policy_of(site: Site) -> dict[str, Plain]:
    """The policy in force in words, where its file is, and what is wrong with that."""
    file = "" if site.policy is None else str(site.policy)
    error = ""
    try:
        read_policy(site.policy)
    except FederationError as found:
        error = f"{found.what}. {found.todo}"
    try:
        judge = in_force(site.home)
    except FederationError as found:
        return {"file": file, "words": "", "lines": [], "error": f"{found.what}. {found.todo}"}
    return {"file": file, "words": judge.words, "lines": list(policy_in_words(judge.policy)), "error": error}
