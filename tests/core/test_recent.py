"""What was made of a value is made once, and forgotten in the end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tideline.core.recent import Recent


class Made:
    """Counts how often something is made."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> int:
        self.times += 1
        return self.times


def test_made_once_for_a_source_and_what_else_it_depends_on() -> None:
    recent, make = Recent[int](8), Made()
    source = {"rounds": 1}
    assert [recent.of(source, make, "a"), recent.of(source, make, "a"), recent.of(source, make, "b")] == [1, 1, 2]


def test_an_equal_source_is_another_one() -> None:
    recent, make = Recent[int](8), Made()
    assert recent.of({"rounds": 1}, make) != recent.of({"rounds": 1}, make)


def test_the_oldest_is_forgotten() -> None:
    recent, make, sources = Recent[int](2), Made(), [{"n": i} for i in range(3)]
    assert [recent.of(each, make) for each in sources] == [1, 2, 3]
    assert recent.of(sources[2], make) == 3
    assert recent.of(sources[0], make) == 4


def test_a_source_is_held_so_that_none_takes_its_place() -> None:
    recent, make = Recent[int](1000), Made()
    assert [recent.of({"n": i}, make) for i in range(500)] == list(range(1, 501))


def test_any_number_of_threads() -> None:
    """While some make values, others have the oldest forgotten; nobody is disturbed, and no more are kept than may be."""
    recent, sources = Recent[int](3), [{"n": i} for i in range(200)]
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda source: recent.of(source, lambda: source["n"]), sources * 20))
    assert made == [source["n"] for source in sources] * 20
    assert len(recent._made) <= 3
