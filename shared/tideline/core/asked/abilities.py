"""What the agents of sites must be able to do for a run, by name. An agent that does not know a part of a run ignores it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from tideline.core.asked.computing import Computing
from tideline.core.asked.private import Privacy
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.wire import Format, Wire
from tideline.core.rows import Augment


class Asking(Protocol):
    """A run as the coordinator has it, or as its sites read it."""

    @property
    def augment(self) -> Augment: ...
    @property
    def computing(self) -> Computing | None: ...
    @property
    def wire(self) -> Wire: ...
    @property
    def privacy(self) -> Privacy | None: ...
    @property
    def secure_sums(self) -> SecureSums | None: ...


def packs(form: Format, run: Asking) -> bool:
    return form in run.wire.asks


# All that this version can do, with when a run asks for it.
ABILITIES: Mapping[str, Callable[[Asking], bool]] = {
    "augment": lambda run: run.augment.on,
    "computing": lambda run: run.computing is not None,
    "privacy": lambda run: run.privacy is not None,
    "secure_sums": lambda run: run.secure_sums is not None,
    **{f"wire {form.value}": partial(packs, form) for form in Format if form is not Format.FLOAT32},
}


def abilities_for(run: Asking) -> tuple[str, ...]:
    """Those that a run asks for; most ask for none."""
    return tuple(name for name, asked in ABILITIES.items() if asked(run))
