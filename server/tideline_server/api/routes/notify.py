"""Targets of notices: who hears of runs and of the coordinator without asking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends

from tideline.core.errors import NotFound
from tideline.core.settings import parse, setting
from tideline.engine.coordinator.notices.targets import Targets, Wanted
from tideline.engine.model.notices import Form, Kind, Target, place_of
from tideline_server.api.notice_models import TargetAdded, TargetLine, TargetTested
from tideline_server.api.openapi import body_of
from tideline_server.api.requests.access import Asking, Known
from tideline_server.api.services import Given, Name, Named

router = APIRouter(prefix="/notify", tags=["notices"])


@dataclass(frozen=True)
class TargetAsked:
    """Where notices go, and which."""

    url: str = setting(doc="https://HOST/PATH of a webhook, or mailto:NAME@HOST")
    on: tuple[Kind, ...] = setting(doc="what is sent")
    form: Form | None = setting(None, doc="how it is written; null: json, or email for mailto:")
    name: str = setting("", doc="its name in the project; empty: its host, or who gets the mail")


EXAMPLES = {
    "webhook": {"summary": "A webhook", "value": {"url": "https://hooks.example/tideline", "on": ["failed", "stalled"]}},
    "mail": {"summary": "E-mail", "value": {"url": "mailto:ann@example.org", "on": ["approval"], "name": "ann"}},
}


def targets_here(services: Given) -> Targets:
    """Raises NotFound where this coordinator notifies nobody."""
    if services.targets is None:
        raise NotFound("This coordinator notifies nobody", "Ask one that tideline coordinator started")
    return services.targets


Here = Annotated[Targets, Depends(targets_here)]


@router.get("", summary="List who is notified")
def list_targets(targets: Here, asking: Asking) -> list[TargetLine]:
    """The targets of your project; of a key of all projects, every one. Addresses are cut off where secrets may begin."""
    return [TargetLine(**facts(each)) for each in targets.every(asking.scope)]


@router.post("", status_code=201, summary="Add a target of notices", openapi_extra=body_of(TargetAsked, EXAMPLES))
def add_target(targets: Here, projects: Known, identity: Named, body: Annotated[dict[str, Any], Body()]) -> TargetAdded:
    """Shows the secret once. Its address is resolved and looked at, now and at each try. What happened before is not sent."""
    asked = parse(TargetAsked, body)
    projects.check_open(identity.scope)
    made = targets.add(Wanted(asked.url, asked.on, asked.form, asked.name), identity)
    return TargetAdded(**facts(made), secret=made.secret)


@router.post("/{name}/test", summary="Test a target of notices")
def test_target(targets: Here, asking: Asking, name: Name) -> TargetTested:
    """Sends a notice that says it is a test, at once and without another try. At most one in ten seconds."""
    found = targets.try_out(name, asking.scope)
    return TargetTested(taken=found.taken, words=found.words)


@router.delete("/{name}", summary="Remove a target of notices")
def remove_target(targets: Here, identity: Named, asking: Asking, name: Name) -> TargetLine:
    """What waits for it is not sent."""
    return TargetLine(**facts(targets.remove(name, identity.by, asking.scope)))


def facts(target: Target) -> dict[str, Any]:
    """A target as it is listed: without its secret, for which a line has no place."""
    shown = ("name", "project", "created", "created_by", "last_sent", "reason", "ended", "left_out")
    made = {name: getattr(target, name) for name in shown}
    return made | {"to": place_of(target.url), "form": target.form.value, "on": [kind.value for kind in target.kinds]}
