"""The controls of what leaves sites, each with what a run shows of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tideline.client.output import counted, size
from tideline.core.asked.private import ROW
from tideline.dossier.layout import AUDIT, CONTRACT, EGRESS, HEADS, POLICIES, PRIVACY, REPLIES, RUN, SIGNATURE
from tideline.dossier.words import number


@dataclass(frozen=True)
class Control:
    """A rule of what may leave, in words, with what shows that it was held."""

    name: str
    rule: str
    shown: str
    file: str


def controls(parts: Mapping[str, Mapping[str, Any]]) -> Iterator[Control]:
    """In the order in which they apply to a run. parts: by the names of their files."""
    yield Control("Purpose", "A run is asked for by a named user, in a project, and never changes.", purpose(parts[RUN]), RUN)
    rule = "A run says before it starts which fields leave a site, how much each exposes, and to whom. Nothing else can leave."
    yield Control("Contract", rule, exposures(parts[CONTRACT]), CONTRACT)
    rule = "Each site holds the contract to its owner's policy before any work, and may hold, decline or end its part."
    yield Control("Owner's policy", rule, answers(parts[POLICIES]), POLICIES)
    rule = "A reply is checked against the contract as it is written at the site, and again as it arrives; else it is refused."
    yield Control("Check of each reply", rule, outcomes(parts[EGRESS]), REPLIES)
    rule = "How much a row of a site, or a unit of several, can change what is sent, at most, if the run is private."
    yield Control("Differential privacy", rule, protection(parts[PRIVACY]), PRIVACY)
    rule = "Each order and each reply stands in the audit log, in a chain of hashes, with digests and sizes."
    yield Control("Record", rule, record(parts[HEADS]), AUDIT)
    rule = "The coordinator signs this file. Every byte of it is covered."
    yield Control("Signature", rule, "see the last section: how to check it", SIGNATURE)


def purpose(run: Mapping[str, Any]) -> str:
    by = f"asked by {run['asked_by']}" if run["asked_by"] else "asked without a key"
    return f"{by}, in the project {run['project']}; {run['method']}, digest {(run['digests']['experiment'] or 'none')[:16]}"


def exposures(contract: Mapping[str, Any]) -> str:
    found = Counter(clause["exposure"] for clause in contract["clauses"])
    words = ", ".join(f"{n} as {name}" for name, n in found.items())
    beyond = contract["beyond_the_default_policy"]
    more = f"; {len(beyond)} beyond what sites let out by default" if beyond else "; within what sites let out by default"
    return f"{counted(len(contract['clauses']), 'field')}: {words}{more}"


def answers(policies: Mapping[str, Any]) -> str:
    sites = policies["sites"]
    found = Counter(site["contract"] for site in sites)
    refusals = sum(len(site["refusals"]) for site in sites)
    words = ", ".join(f"{n} {word}" for word, n in found.items())
    return f"of {counted(len(sites), 'site')}: {words}; {counted(refusals, 'refusal')} by owners"


def outcomes(egress: Mapping[str, Any]) -> str:
    found: Counter[str] = Counter()
    for site in egress["sites"]:
        found.update(site["outcomes"])
    words = ", ".join(f"{n} {word}" for word, n in sorted(found.items())) or "none"
    return f"{counted(egress['replies'], 'reply', 'replies')}: {words}; {size(sum(site['bytes'] for site in egress['sites']))}"


def protection(privacy: Mapping[str, Any]) -> str:
    if not privacy["private"]:
        return "not asked for: the run makes no such promise"
    whose = (privacy["asked"] or {}).get("unit") or ROW
    return f"epsilon {number(privacy['epsilon'])} at delta {privacy['delta']:g}, at most, for each {whose} of each site"


def record(heads: Mapping[str, Any]) -> str:
    whole = "" if heads["whole"] else "; the run's first ones are in the log's archive"
    return f"{counted(heads['entries'], 'entry', 'entries')} about this run{whole}"
