"""How many examples a property test tries: few and always the same in the quick suite, many and new ones in the deep one.

    @settings(max_examples=examples(50))

The number is that of the deep suite, `pytest --hypothesis-profile=deep`; the quick one tries a fifth, and at least five.
"""

from __future__ import annotations

from hypothesis import settings

QUICK, DEEP = "quick", "deep"
SHARE, LEAST = 5, 5

settings.register_profile(QUICK, deadline=None, derandomize=True, database=None, max_examples=100 // SHARE, print_blob=True)
settings.register_profile(DEEP, deadline=None, database=None, print_blob=True)


def examples(deep: int) -> int:
    """A test's examples in the suite that runs."""
    return deep if settings.get_current_profile_name() == DEEP else max(deep // SHARE, min(deep, LEAST))
