"""Clocks and certificates, in words: what nobody looks at until it stops everything."""

from __future__ import annotations

SKEW_SECONDS = 60.0  # between two machines' clocks, beyond which somebody is told
RENEW_SECONDS = 14 * 86400.0  # before its end a certificate should be renewed


def ending(until: float, now: float) -> str:
    """How a certificate's end is told, where it is near or past; nothing where it is far. Seconds since the epoch.

    >>> ending(86400 * 3.5, 0), ending(25, 0), ending(0, 86400 * 2), ending(86400 * 30, 0)
    ('ends in 3 days', 'ends within the hour', 'ended 2 days ago', '')
    """
    left = until - now
    if left > RENEW_SECONDS:
        return ""
    if left < 0:
        return "has ended" if left > -86400 else f"ended {counted(-left, 86400, 'day')} ago"
    if left < 3600:
        return "ends within the hour"
    return f"ends in {counted(left, 86400, 'day') if left >= 86400 else counted(left, 3600, 'hour')}"


def counted(seconds: float, unit: float, name: str) -> str:
    number = int(seconds // unit)
    return f"{number} {name}{'' if number == 1 else 's'}"


def off(seconds: float) -> str:
    """How a clock that is so many seconds ahead is told, beside the other one's; nothing where both agree.

    >>> off(120.2), off(-86400.0), off(3.0)
    ('120 s ahead of', '86400 s behind', '')
    """
    if abs(seconds) <= SKEW_SECONDS:
        return ""
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"
