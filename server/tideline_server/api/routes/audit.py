"""The audit log, to be read and checked from outside."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tideline.engine.audit.entries import KINDS
from tideline.engine.audit.log import About
from tideline_server.api.models import AuditEntry, AuditTip
from tideline_server.api.pages import LONGEST, PAGED, link_next
from tideline_server.api.services import NAME, Given

router = APIRouter(prefix="/audit", tags=["audit"])
Limit = Annotated[int, Query(ge=1, le=LONGEST, description="the most entries to list")]
After = Annotated[int, Query(ge=0, le=2**31 - 1, description="list the entries that follow this one")]
Named = Annotated[str, Query(pattern=NAME.replace("{1,80}", "{0,80}"), description="those of this one alone; empty: of any")]
Kind = Annotated[str, Query(pattern=f"^({'|'.join(KINDS)}|)$", description="those of this kind alone; empty: of any")]
Since = Annotated[float | None, Query(allow_inf_nan=False, description="those from this moment on, in seconds since the epoch")]


@router.get("", summary="List the audit log", responses=PAGED)
def list_audit(
    request: Request,
    response: Response,
    services: Given,
    limit: Limit = LONGEST,
    after: After = 0,
    run: Named = "",
    client: Named = "",
    kind: Kind = "",
    since: Since = None,
) -> list[AuditEntry]:
    """Entries in the order in which they were written. Each hash follows from the one before and from what the entry says."""
    found = services.journal.audit(after, limit, About(run, client, kind, since))
    if len(found) == limit:
        link_next(request, response, found[-1].seq)
    return [AuditEntry(**asdict(entry)) for entry in found]


@router.get("/tip", summary="Show the last entry of the audit log")
def audit_tip(services: Given) -> AuditTip:
    """Its number and its hash: a list that ends elsewhere is not whole."""
    return AuditTip(**asdict(services.journal.audit_tip()))
