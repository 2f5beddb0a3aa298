"""The file in which a site's owner says what may leave, and which runs may run.

[allow]
features = ["coordinator"]
[forbid]
weights = ["peers"]
[runs]
approve = "new"
[projects.cardio.runs]
approve = "never"
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import cast

from tideline.core.errors import ConfigRefused
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure, Policy
from tideline.core.settings import EMPTY, Plain, nearest, parse, plain
from tideline.engine.model.access.projects import ALL, NAME
from tideline.engine.model.orders import hashed
from tideline.engine.site.owner import Said
from tideline.engine.site.rules import RATES, Disclosure, PrivacyRules, SiteRules

NOTES = "notes"  # beside the exposures: what an agent tells of its work (core.notes)
EXPOSURES = ("allow", "forbid")
RETAIN = "retain_days"  # of no table
RULES = tuple(each.name for each in fields(SiteRules))
TABLES = (*EXPOSURES, *(name for name in RULES if name != RETAIN))
# Of policies from before there were such tables: their digests stay as they are.
UNSAID: Mapping[str, object] = {"privacy": PrivacyRules(), "disclose": Disclosure()}
PROJECTS = "projects"  # of which each has tables of its own
# What counts for the agent as a whole, and so stands in no project's section: a table, or a table's key.
WHOLE = {"quotas": None, "runs": "projects", "forbid": NOTES}


@dataclass(frozen=True)
class SitePolicy:
    """What may leave a site in replies, whether its agent tells the coordinator of its work, and which runs may run there.

    projects: what holds for the runs of some projects, whole, in the place of all of it. text: the lines that apply, as they may
    be told: without names of users and projects.
    """

    allowed: Policy = DEFAULT_POLICY
    notes: bool = True
    rules: SiteRules = field(default_factory=SiteRules)
    projects: Mapping[str, SitePolicy] = field(default_factory=lambda: EMPTY)
    text: str = field(default="", compare=False)

    def of(self, project: str) -> SitePolicy:
        """What holds for the runs of a project."""
        return self.projects.get(project, self)

    @property
    def said(self) -> dict[str, Said]:
        """What holds for projects that have a section."""
        return {name: Said(own.allowed, own.rules) for name, own in self.projects.items()}


MASKED = f"{Exposure.MASKED} to {Audience.COORDINATOR}"


def policy_digest(policy: SitePolicy) -> str:
    """What stands in the ledger for the policy by which the entries that follow were made."""
    allowed = sorted(f"{exposure} to {audience}" for exposure, audience in policy.allowed if audience is not Audience.SUM)
    allowed = [line for line in allowed if line != MASKED]
    # What version 0.2.0 did not know is named only where it does not follow from what it knew.
    unlike = {pair for pair in policy.allowed if pair[1] is Audience.SUM} ^ in_sums(policy.allowed)
    allowed += sorted(f"{exposure} to {audience}, otherwise" for exposure, audience in unlike)
    allowed += [] if (Exposure.MASKED, Audience.COORDINATOR) in policy.allowed else [f"not {MASKED}"]
    own = {name: policy_digest(each) for name, each in sorted(policy.projects.items())}
    rules = {name: value for name, value in plain(policy.rules).items() if getattr(policy.rules, name) != UNSAID.get(name)}
    if not policy.rules.least.trusted and isinstance(least := rules["least"], dict):
        rules["least"] = {name: value for name, value in least.items() if name != "trusted"}
    return hashed("policy", allowed, policy.notes, rules, *([own] if own else []))


def read_policy(path: Path | None) -> SitePolicy:
    """The default policy, changed by the file. Raises ConfigRefused with the place of what is wrong."""
    return policy_in(path, policy_text(path))


def policy_text(path: Path | None) -> str:
    """What a policy file says; nothing where there is none. Raises ConfigRefused."""
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigRefused(f"The policy file {path} does not exist", "Create it, or leave --policy out") from None
    except OSError as cause:
        raise ConfigRefused(f"The policy file {path} cannot be read: {cause.strerror}", "Let the agent's user read it") from None
    except UnicodeDecodeError as cause:
        raise ConfigRefused(f"The policy file {path} is not TOML: {cause}", "Correct the file") from None


def policy_in(path: Path | None, text: str) -> SitePolicy:
    """The default policy, changed by a file's text. Raises ConfigRefused with the place of what is wrong."""
    if path is None:
        return SitePolicy()
    raw = toml_in(path, text)
    sections = {name: table(path, table(path, raw, PROJECTS), name) for name in table(path, raw, PROJECTS)}
    base = {name: rows for name, rows in raw.items() if name != PROJECTS}
    found = policy_of(path, base)
    return replace(found, projects={name: policy_in_project(path, base, name, own) for name, own in sections.items()})


def policy_in_project(path: Path, base: Mapping[str, Plain], name: str, own: Mapping[str, Plain]) -> SitePolicy:
    """The policy for a project: its section's lines stand in the place of the same lines of the file."""
    place = f"{PROJECTS}.{name}"
    if name == ALL or not NAME.fullmatch(name):
        raise ConfigRefused(f"{path}: [{place}] names no project", "Use the project's name: small letters, digits and dashes")
    known = table(path, base, "runs").get("projects")
    if isinstance(known, list) and known and name not in known:
        raise ConfigRefused(f"{path}: [{place}] stands there, and [runs] projects does not name {name}", "Name it there, too")
    for each, rows in own.items():
        if each not in TABLES or not isinstance(rows, Mapping):
            what = f"{path}: {place}.{each} is no table of a policy"
            raise ConfigRefused(what, f"Write [{place}.TABLE], such as [{place}.runs]{nearest(each, TABLES)}")
        key = WHOLE.get(each, "")
        if key is None or key in rows:
            what = f"{path}: {place}.{each}{f'.{key}' if key else ''} counts for the agent as a whole"
            raise ConfigRefused(what, f"Write it below [{each}]")
    merged = {each: {**table(path, base, each), **table(path, own, each)} for each in TABLES if each in base or each in own}
    try:
        return policy_of(path, {**base, **merged})
    except ConfigRefused as error:
        raise ConfigRefused(f"{error.what}, in [{place}]", error.todo, **error.context) from None


def policy_of(path: Path, raw: Mapping[str, Plain]) -> SitePolicy:
    """The default policy, changed by tables. Raises ConfigRefused with the place of what is wrong."""
    for name in raw:
        if name not in (*EXPOSURES, *RULES):
            tables = ", ".join(f"[{each}]" for each in (*TABLES, f"{PROJECTS}.NAME"))
            todo = f"Use {tables}, and above them retain_days{nearest(name, (*EXPOSURES, *RULES, PROJECTS))}"
            raise ConfigRefused(f"{path}: [{name}] is not known", todo)
        if isinstance(raw[name], Mapping) and RETAIN in table(path, raw, name):
            raise ConfigRefused(
                f"{path}: {RETAIN} stands below [{name}]", "Write it above the first table, or it is one of its settings"
            )
    named = frozenset(pairs(path, raw, "allow"))
    forbidden = frozenset(pairs(path, raw, "forbid"))
    allowed = ((DEFAULT_POLICY | in_sums(named)) - in_sums(forbidden)) | named
    quiet = bool(table(path, raw, "forbid").get(NOTES))
    return SitePolicy(allowed - forbidden, not quiet, rules_in(path, raw), text="\n".join(lines_of(raw)))


NAMES = ("users", "projects")  # of [runs]: names of others, which are nobody's business
BARE = re.compile(r"[A-Za-z0-9_-]+")


def lines_of(raw: Mapping[str, Plain]) -> Iterator[str]:
    """The lines of tables, as TOML: values alone, no comment."""
    if RETAIN in raw:
        yield f"{RETAIN} = {json.dumps(raw[RETAIN])}"
    for name in (each for each in TABLES if isinstance(raw.get(each), Mapping)):
        yield f"[{name}]"
        for key, value in cast("Mapping[str, Plain]", raw[name]).items():
            if name == "runs" and key in NAMES:
                yield f"# {key}: some are named, and not told"
            else:
                yield f"{key if BARE.fullmatch(key) else json.dumps(key)} = {json.dumps(value)}"


def in_sums(pairs: Policy) -> Policy:
    """What may go to the coordinator may be in a sum for it, and what is kept from it may not, unless that is said by name."""
    return frozenset((exposure, Audience.SUM) for exposure, audience in pairs if audience is Audience.COORDINATOR)


def toml_in(path: Path, text: str) -> dict[str, Plain]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        raise ConfigRefused(f"The policy file {path} is not TOML: {cause}", "Correct the file") from None


def rules_in(path: Path, raw: Mapping[str, Plain]) -> SiteRules:
    """Which runs may run. Bounds of one's own stand beside the default ones; to lift one of these, write a larger number."""
    given = {name: raw[name] for name in RULES if name in raw}
    if "bounds" in given:
        given["bounds"] = {**RATES, **table(path, raw, "bounds")}
    try:
        return parse(SiteRules, given)
    except ConfigRefused as error:
        raise ConfigRefused(f"{path}: {error.what}", error.todo, **error.context) from None


def table(path: Path, raw: Mapping[str, Plain], name: str) -> Mapping[str, Plain]:
    rows = raw.get(name, {})
    if not isinstance(rows, Mapping):
        lines = "lines such as features = ['coordinator']" if name in EXPOSURES else "lines such as rate = 0.5"
        raise ConfigRefused(f"{path}: {name} is not a table", f"Write [{name}] and {lines}")
    return rows


def pairs(path: Path, raw: Mapping[str, Plain], name: str) -> Iterator[tuple[Exposure, Audience]]:
    for exposure, audiences in table(path, raw, name).items():
        words = [*(e.value for e in Exposure), NOTES]
        if exposure not in words:
            todo = f"Use one of: {', '.join(words)}{nearest(exposure, words)}"
            raise ConfigRefused(f"{path}: {name}.{exposure} is no exposure", todo)
        for audience in audiences if isinstance(audiences, list) else [audiences]:
            if audience not in [a.value for a in Audience]:
                raise ConfigRefused(f"{path}: {name}.{exposure} names {audience!r}", "Use 'coordinator', 'peers' and 'sum'")
            if exposure != NOTES:
                yield Exposure(exposure), Audience(audience)
            elif audience != Audience.COORDINATOR:
                raise ConfigRefused(f"{path}: {name}.{exposure} names {audience!r}", "Notes go to the 'coordinator' alone")
