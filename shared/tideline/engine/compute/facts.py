"""A method as it is described: the exchanges of its plan, and its settings."""

from __future__ import annotations

import dataclasses

from tideline.core.settings import Settings, plain
from tideline.engine.compute.configured import Configured
from tideline.engine.model.runs import PhaseFact
from tideline.engine.ports import compute


def facts_of(method: Configured) -> tuple[PhaseFact, ...]:
    rounds = zip(method.plan, method.rounds, strict=True)
    return tuple(
        PhaseFact(phase=p.name, step=p.step.name if p.step else "", round=r, floor=p.floor, needs=p.needs) for p, r in rounds
    )


def settings_of(config: type[Settings]) -> tuple[compute.SettingFacts, ...]:
    return tuple(described(f) for f in dataclasses.fields(config))


def described(setting: dataclasses.Field[Settings]) -> compute.SettingFacts:
    default = setting.default if setting.default_factory is dataclasses.MISSING else setting.default_factory()
    meta, choices = setting.metadata, setting.metadata.get("choices")
    return compute.SettingFacts(
        name=setting.name,
        type=str(setting.type),
        default=plain(default),
        low=meta.get("low"),
        high=meta.get("high"),
        choices=None if choices is None else tuple(choices),
        doc=meta.get("doc", ""),
    )
