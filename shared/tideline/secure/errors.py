"""Why a secure sum is not made. Whatever is refused here would tell more than a sum, or a wrong one."""

from __future__ import annotations

from tideline.core.errors import ConfigRefused, FederationError, Malformed, PeerRefused, Refused


class RangeRefused(ConfigRefused):
    """So many sites, with values of such a size, could add up to more than the integers of the sum hold."""


class ValuesRefused(Malformed):
    """Numbers that have no place on a sum's grid: not finite, of another type or length, or beyond what was agreed."""


class SharesRefused(Malformed):
    """Shares that make no secret: too few of them, one twice, or some that do not belong together."""


class ParcelBroken(Malformed):
    """What one site sealed for another does not open, is not signed by it, or is not what it says. The words say whose it is."""


class KeysRefused(PeerRefused):
    """A site is shown with keys that it has not signed for this round, twice, or though it is none of the round's."""


class RoundReplayed(Refused):
    """A site is asked to begin a round again that it has already been part of."""


class MaskSpent(Refused):
    """A second message under a mask that has hidden one: the difference of the two would show what the mask hides."""


class SurvivorsRefused(Refused):
    """A set of survivors that would tell more than one sum of enough sites: a second one, too small, or of other sites."""


class TooFewSites(FederationError):
    """Fewer sites have answered than a sum needs. Nothing of what they sent can be read."""
