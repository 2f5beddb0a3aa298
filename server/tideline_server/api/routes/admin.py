"""For admins: API keys and the audit log."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response

from tideline.core.errors import ConfigRefused, NotFound
from tideline.core.settings import parse, setting
from tideline.engine.audit import log
from tideline.engine.audit.entries import KINDS
from tideline.engine.coordinator.access.projects import Projects
from tideline.engine.coordinator.api_keys import LONGEST_SECONDS, Caller
from tideline.engine.coordinator.witness import sentence
from tideline.engine.model.access.projects import ALL, DEFAULT, EVERY, within
from tideline.engine.model.accounts import ApiKey, KeyRole
from tideline_server.api.models import AuditEntry, AuditTip, GrantLine, KeyLine, KeyMade, Restored, Whoami
from tideline_server.api.openapi import body_of
from tideline_server.api.requests.access import Asking, Keys, Known
from tideline_server.api.services import LONGEST, NAME, PAGED, After, Given, Limit, Name, Named, link_next

router = APIRouter(tags=["keys"])


@dataclass(frozen=True)
class KeyAsked:
    """Who gets a key, what its holder may do, and for how long."""

    name: str = setting(doc="the name of its owner, in lists and in events of runs")
    role: KeyRole = setting(doc="what its owner may do")
    ttl_seconds: float | None = setting(None, low=1.0, high=LONGEST_SECONDS, doc="seconds until it expires; null: never")
    project: str = setting("", doc="the project that it opens, or all; empty: that of the call, or default. An admin's opens all")


EXAMPLES = {"operator": {"summary": "For a user", "value": {"name": "alice", "role": "operator", "ttl_seconds": 7776000}}}


@router.get("/whoami", summary="Show whose key this is")
def whoami(asking: Asking) -> Whoami:
    """The name, the role and the project of the key that the call was made with. An empty name: this API asks for no key."""
    grants = [GrantLine(role=grant.role.value, project=grant.project or ALL) for grant in asking.grants]
    return Whoami(name=asking.name, role=asking.role.value, project=asking.scope, grants=grants)


@router.get("/keys", summary="List the keys", responses=PAGED)
def list_keys(
    request: Request, response: Response, keys: Keys, asking: Asking, limit: Limit = None, after: After = None
) -> list[KeyLine]:
    """Every key that was ever made here, oldest first, without the keys themselves. A page's mark is an `id`."""
    rows = [row for row in keys.every() if within(asking.scope, row.project)]
    ids = [row.id for row in rows]
    if after is not None and after not in ids:
        raise NotFound(f"There is no key whose id is {after!r}", "See the list of keys")
    begin = 0 if after is None else ids.index(after) + 1
    shown = rows[begin:] if limit is None else rows[begin : begin + limit]
    if begin + len(shown) < len(rows):
        link_next(request, response, shown[-1].id)
    return [line(row) for row in shown]


@router.post("/keys", status_code=201, summary="Make a key", openapi_extra=body_of(KeyAsked, EXAMPLES))
def add_key(keys: Keys, projects: Known, asking: Asking, identity: Named, body: Annotated[dict[str, Any], Body()]) -> KeyMade:
    """Shows the key once; only its hash is stored. Other replicas accept it within a second."""
    asked = parse(KeyAsked, body)
    project = opened(asked, asking, projects)
    key, made = keys.add(asked.name, asked.role, asked.ttl_seconds, asking.name, identity, project)
    return KeyMade(key=key, id=made.id, name=made.name, role=made.role.value, expires=made.expires, project=made.project)


def opened(asked: KeyAsked, asking: Caller, projects: Projects) -> str:
    """The project that a new key opens; empty: all. Raises ConfigRefused, NotFound."""
    if asked.role is KeyRole.ADMIN:
        if asked.project not in ("", ALL):
            what = f"project is {asked.project!r}, and an admin's key opens every project"
            raise ConfigRefused(what, "Leave project out, or give another role", path="project")
        return EVERY
    if asked.project == ALL:
        return EVERY
    project = projects.narrowed(asking, asked.project).scope or DEFAULT
    projects.check_open(project)
    return project


@router.delete("/keys/{name}", summary="Revoke a key")
def revoke_key(keys: Keys, identity: Named, name: Name) -> KeyLine:
    """The key is refused from now on, at other replicas within five seconds. Its name is free again."""
    return line(keys.revoke(name, identity.by))


def line(row: ApiKey) -> KeyLine:
    """A key as it is listed: without its hash, for which a line has no place."""
    return KeyLine(**vars(row) | {"role": row.role.value})


restores = APIRouter(prefix="/restored", tags=["audit"])


@restores.get("", summary="Show what a restored database had forgotten")
def show_restored(services: Given) -> Restored:
    """The revocations, new keys and used tokens that the witness beside the parts had kept, until an admin confirms."""
    return restore_line(services.run_service.enrolment.witness.restored)


@restores.post("/confirm", summary="Confirm a restore")
def confirm_restored(services: Given, identity: Named) -> Restored:
    """Ends the warnings. What is revoked stays so. Where records were lost, agents and keys are let in. 409 if none waits."""
    return restore_line(services.run_service.enrolment.witness.confirm(identity.by))


def restore_line(entry: log.Entry | None) -> Restored:
    if entry is None:
        return Restored(waiting=False)
    shown = {name: entry.details[name] for name in ("lost", "clients", "rotated", "keys", "invites")}
    return Restored(waiting=True, at=entry.at, warning=sentence(entry), **shown)


audit = APIRouter(prefix="/audit", tags=["audit"])
Most = Annotated[int, Query(ge=1, le=LONGEST, description="the most entries to list")]
AfterEntry = Annotated[int, Query(ge=0, le=2**31 - 1, description="list the entries that follow this one")]
About = Annotated[str, Query(pattern=NAME.replace("{1,80}", "{0,80}"), description="those of this one alone; empty: of any")]
Kind = Annotated[str, Query(pattern=f"^({'|'.join(KINDS)}|)$", description="those of this kind alone; empty: of any")]
Since = Annotated[float | None, Query(allow_inf_nan=False, description="those from this moment on, in seconds since the epoch")]


@audit.get("", summary="List the audit log", responses=PAGED)
def list_audit(
    request: Request,
    response: Response,
    services: Given,
    limit: Most = LONGEST,
    after: AfterEntry = 0,
    run: About = "",
    client: About = "",
    kind: Kind = "",
    since: Since = None,
) -> list[AuditEntry]:
    """Entries in the order in which they were written. Each hash follows from the one before and from what the entry says."""
    found = services.journal.audit(after, limit, log.About(run, client, kind, since))
    if len(found) == limit:
        link_next(request, response, found[-1].seq)
    return [AuditEntry(**asdict(entry)) for entry in found]


@audit.get("/tip", summary="Show the last entry of the audit log")
def audit_tip(services: Given) -> AuditTip:
    """Its number and its hash: a list that ends elsewhere is not whole. The list begins behind the last archived entry."""
    base = services.journal.audit_base()
    return AuditTip(**asdict(services.journal.audit_tip()), archived=base.seq, archived_hash=base.hash)
