"""Of how many sites a sum can be, and for how many rounds at once keys can be made."""

from __future__ import annotations

from tideline.core.asked.secure import LEAST_SITES, SecureSums
from tideline.core.errors import RosterRefused
from tideline.secure.rounds.terms import MOST_SITES

MOST_KEYS = 12_000  # adverts that one message can have: each is 16 texts of its header


def check_number(phase: str, sites: int, rounds: int, asked: SecureSums) -> None:
    """Raises RosterRefused where so many sites, for as many rounds as keys are made for at once, make no sum. An exchange that
    asks nobody is left out, and needs none.
    """
    if 0 < sites < asked.sites:
        asks = f"{sites} site{'s are' if sites > 1 else ' is'} asked in {phase}"
        what = f"{asks}, and a sum of {asked.sites} is the least that is made"
        more = ", or lower secure_sums.sites" if asked.sites > LEAST_SITES else ""
        raise RosterRefused(what, f"Have more sites join that it asks{more}, or leave secure_sums out", path="secure_sums.sites")
    if sites > MOST_SITES:
        what = f"{sites} sites are asked in {phase}, and a secure sum is of {MOST_SITES} at most"
        raise RosterRefused(what, "Name fewer sites, or leave secure_sums out", path="roster")
    if sites * rounds > MOST_KEYS:
        what = f"Keys of {sites} sites for {rounds} rounds at once, before {phase}, are more than a message can have"
        raise RosterRefused(what, f"Write ahead: {MOST_KEYS // sites} in secure_sums", path="secure_sums.ahead")
