"""What a dossier says of a run beside its egress and its audit log: plain data, one part for each question that is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from tideline.client.answers import RunResult, SiteResult
from tideline.core.asked.world import plain_world
from tideline.core.privacy import DEFAULT_POLICY, contract_digest, refused, to_json
from tideline.core.run import ClientId
from tideline.core.settings import Plain, plain
from tideline.core.signing import PROTOCOL
from tideline.dossier.egress import SiteOut
from tideline.dossier.layout import FORMAT, Part
from tideline.dossier.words import moment
from tideline.engine.audit.entries import shown
from tideline.engine.audit.log import Entry
from tideline.engine.model.accounts import Client
from tideline.engine.model.joins import LABELLED
from tideline.engine.model.orders import OrderRow, OrderStatus
from tideline.engine.model.runs import FINAL, JOIN, RunRow
from tideline.engine.model.said.disclosed import disclosed_in
from tideline.engine.model.totals import newest
from tideline.engine.ports.journal import Journal
from tideline.report.meaning import gained, held_to, worth

OWNERS = ("PolicyRefused", "ContractRefused", "RosterRefused")  # kinds by which an owner says no
UNKNOWN = "unknown"
NOT_SENT = (
    "A site holds every order of a run to its owner's policy before any work, and answers the join only if the policy allows the"
    " contract. The policy's text is sent where its owner lets it be told, and not else: then the lines that apply to this run"
    " are here. Its digest stands in the site's own ledger, whose last entry is named here."
)
AT_MOST = "what each site was asked for costs a {whose} of it so much at most, whether it answered or not"
DATA = "Sites send a digest of their data where their owners let it be told. Else they report numbers of rows (metrics.json)."


def run_part(run: RunRow, result: RunResult, head: Entry | None, at: float, version: str) -> Part:
    """What ran, how far it is, and as of when this is said."""
    spec = run.spec
    return {
        "format": FORMAT,
        "as_of": {"at": at, "utc": moment(at), "entry": None if head is None else head.seq},
        "made_by": {"tideline": version, "protocol": PROTOCOL},
        "run": run.id,
        "name": run.name,
        "project": run.project,
        "asked_by": spec.by,
        "status": run.status.value,
        "finished": run.status in FINAL,
        "cause": run.cause,
        "created": moment(run.created),
        "started": moment(run.started),
        "ended": moment(run.ended),
        "exchanges": {"closed": max(run.cursor, 0), "of": len(run.plan)},
        "method": run.method,
        "config": dict(spec.config),
        "world": plain_world(spec.world),
        "seed": spec.seed,
        "roster": {name: role.value for name, role in run.roster.items()},
        "waiting": plain(spec.waiting),
        "sample": plain(spec.sampling),
        "shares": plain(spec.shares),
        "computing": plain(spec.computing),
        "wire": plain(spec.wire) if spec.wire.on else None,
        "notes": list(result["notes"]),
        "belongs_to": run.parent,
        "has_runs": list(run.serving),
        "digests": {
            "experiment": spec.experiment or None,
            "contract": spec.contract,
            "state": run.state_digest,
            "initial_weights": spec.initial_weights,
        },
        "data": DATA,
        "software": run.fingerprint,
    }


def contract_part(run: RunRow) -> Part:
    """The contract in words and as data, and what of it the default policy of sites would not let out."""
    return {
        "digest": run.spec.contract,
        "digest_of_these_clauses": contract_digest(run.contract),
        "in_words": [clause.sentence() for clause in run.contract],
        "clauses": to_json(run.contract),
        "beyond_the_default_policy": [clause.sentence() for clause in refused(run.contract, DEFAULT_POLICY)],
    }


def policies_part(journal: Journal, run: RunRow, awaited: Mapping[ClientId, float]) -> Part:
    """What each site said of the run. awaited: when it was first told that a site's owner is to approve it."""
    joins = {order.client: order for order in newest(journal.orders(run.id, JOIN))}
    missed: dict[ClientId, list[dict[str, Plain]]] = {}
    for line in journal.missed(run.id):
        if line.failure and line.failure.kind in OWNERS:
            fact = run.fact(line.cursor)
            said: dict[str, Plain] = {"kind": line.failure.kind, "what": line.failure.what, "at": moment(line.answered)}
            missed.setdefault(line.client, []).append(said | {"phase": fact.phase, "round": fact.round})
    sites = [
        site_policy(name, run, joins.get(name), known(journal, run, name))
        | {"refusals": missed.get(name, []), "approval_awaited": moment(awaited.get(name))}
        for name in run.roster
    ]
    return {"meaning": NOT_SENT, "contract": run.spec.contract, "sites": sites}


def known(journal: Journal, run: RunRow, name: ClientId) -> Client | None:
    """A site's agent; None of one that serves other projects, which a run may name and is told nothing of."""
    client = journal.client(name)
    return client if client is not None and run.project in client.projects else None


def site_policy(name: ClientId, run: RunRow, join: OrderRow | None, client: Client | None) -> Part:
    """Whether a site took the contract, and how its agent was known then or is now."""
    status = None if join is None else join.status
    answer = "not asked" if status is None else JOINED[status]
    labelled = None if join is None else join.facts.get(LABELLED)
    disclosed = None if join is None else disclosed_in(join.facts)
    agent = None
    if client is not None:
        ledger = {"entries": client.ledger_entries, "hash": client.ledger_hash, "shown_to_lack_it": client.ledger_now is not None}
        agent = {"tideline": client.version, "keys": shown(client.keys), "standing": client.standing.value, "ledger": ledger}
    return {
        "site": name,
        "role": run.roster[name].value,
        "contract": answer,
        "answered": None if join is None else moment(join.answered),
        "labels": labelled,
        "disclosed": None if disclosed is None else dict(vars(disclosed)),
        "agent": agent,
    }


JOINED = {
    OrderStatus.ANSWERED: "accepted",
    OrderStatus.FAILED: "declined or failed",
    OrderStatus.OPEN: "awaited",
    OrderStatus.EXPIRED: "not answered in time",
    OrderStatus.CANCELLED: "withdrawn before an answer",
}


def metrics_part(run: RunRow, result: RunResult) -> Part:
    """Scores with their intervals, and whether adaptation paid or did harm."""
    parts = ("scores", "recall", "selection", "generalization", "verdict", "curve", "prior")
    return {
        "sites": [transfer_of(result, each) for each in result["clients"]],
        "in_words": [{"kind": kind, "sentence": words} for kind, words in (*worth(result), *held_to(result))],
        **{name: plain(result.get(name)) for name in parts},
    }


def transfer_of(result: RunResult, client: SiteResult) -> Part:
    """One site's numbers; of a target, how its accuracy differs from that of the labelled sites' model alone."""
    gain = gained(result, client) if client["role"] == "target" else None
    facts = ("name", "role", "samples", "accuracy", "source_only", "metrics", "failures", "spent")
    transfer = None if client["role"] != "target" else {"verdict": UNKNOWN}
    if gain is not None:
        transfer = {"verdict": gain.verdict, **asdict(gain)}
    return {**{name: plain(client.get(name)) for name in facts}, "transfer": plain(transfer)}


def privacy_part(run: RunRow, result: RunResult, found: Mapping[ClientId, SiteOut]) -> Part:
    """What the run cost a row, or unit, of each site, if it protects them."""
    asked, spent = run.spec.privacy, {each["name"]: each["epsilon"] for each in result["clients"]}
    sites = [{"site": name, "epsilon": spent.get(name), "steps": steps_of(found.get(name))} for name in run.roster]
    return {
        "private": asked is not None,
        "asked": None if asked is None else plain(asked),
        "epsilon": run.spec.epsilon,
        "delta": None if asked is None else asked.delta,
        "meaning": AT_MOST.format(whose=asked.whose)
        if asked is not None
        else "This run makes no promise of differential privacy.",
        "sites": sites if asked is not None else [],
    }


def steps_of(out: SiteOut | None) -> int:
    """How many orders after the join a site answered, whatever became of the answers."""
    return 0 if out is None else out.steps
