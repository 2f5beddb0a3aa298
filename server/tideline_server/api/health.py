"""Whether the coordinator is well."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from tideline_server.api.answers import jsonable
from tideline_server.api.models import ErrorBody, Health
from tideline_server.api.services import Given

router = APIRouter(tags=["health"])


@router.get("/health", summary="Whether the coordinator is well; needs no key", responses={503: {"model": ErrorBody}})
def health(services: Given) -> Health:
    """Answers 503 when a store does not answer."""
    facts: dict[str, Any] = jsonable(services.health())
    return Health(**(facts | {"status": "ok", "version": services.version}))
