"""Dossiers: one signed file about a run, and the key that signs it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from tideline.core.errors import NotFound
from tideline.core.run import RunId
from tideline.engine.audit.log import Entry
from tideline_server.api.requests.access import Asking
from tideline_server.api.services import Given, Name, Responses
from tideline_server.dossiers.making import Dossiers, pieces

router = APIRouter(tags=["audit"])
MEDIA_TYPE = "application/zip"
FILE: Responses = {
    200: {"description": "The file", "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}},
}


class SignerShown(BaseModel):
    """The public key that signs dossiers. introduced: when the audit log was told of it, and by which entry; null: not yet."""

    fingerprint: str
    pem: str
    introduced: float | None
    entry: int | None


def dossiers_here(services: Given) -> Dossiers:
    """Raises NotFound where this coordinator signs nothing."""
    if services.dossiers is None:
        raise NotFound("This coordinator signs no dossiers", "Ask one that tideline coordinator started")
    return services.dossiers


Here = Annotated[Dossiers, Depends(dossiers_here)]


@router.get("/runs/{run}/dossier", summary="Make a run's dossier", response_class=StreamingResponse, responses=FILE)
def run_dossier(services: Given, dossiers: Here, asking: Asking, run: Name) -> StreamingResponse:
    """A signed zip archive: contract, policies, what left each site, metrics, digests, the audit log's entries about the run.

    The same state of the run and of the log gives the same bytes. 429 while others are made.
    """
    row = services.run_service.find(RunId(run), asking.scope)
    file, size = dossiers.make(row.id, asking.name)
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="dossier-{row.id}.zip"',
        "Cache-Control": "no-store",
    }
    return StreamingResponse(pieces(file), headers=headers, media_type=MEDIA_TYPE)


@router.get("/signer", summary="Show the key that signs dossiers")
def show_signer(dossiers: Here) -> SignerShown:
    """Give its fingerprint to whoever verifies dossiers, by another way than with the dossier."""
    found = dossiers.introduced()
    return signer_shown(dossiers, found)


def signer_shown(dossiers: Dossiers, found: Entry | None) -> SignerShown:
    signer = dossiers.signer
    at, entry = (None, None) if found is None else (found.at, found.seq)
    return SignerShown(fingerprint=signer.fingerprint, pem=signer.pem.decode("ascii"), introduced=at, entry=entry)
