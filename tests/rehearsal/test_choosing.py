"""What is chosen from the counts of a rehearsal."""

from __future__ import annotations

from tests.rehearsal.test_false_counts import ANNA, BERT, counted, counts, turn
from tideline.learning.rehearsal import choosing


def test_a_site_is_scored_by_what_the_others_chose() -> None:
    """Try the choice of the other sites, never the one that follows from the site's own labels.

    The candidate gained at anna and lost at bert.
    """
    state = counted(anna=counts(100, 40), bert=counts(100, 0, 40)).state
    found = {name: weights.w.tolist() for name, weights in choosing.votes(state, turn()).items()}
    assert found == {ANNA: [1.0, 0.0], BERT: [0.0, 1.0]}


def test_a_site_that_rehearsed_alone_is_scored_by_its_own_choice() -> None:
    """Use the choice that follows from its own rehearsal where there is no other one."""
    state = counted(anna=counts(100, 40)).state
    (found,) = choosing.votes(state, turn()).values()
    assert found.w.tolist() == [0.0, 1.0]
