"""The columns of a world's tables: numbers, and categories by a vocabulary that is the same at every site.

What is not declared in advance would differ from site to site: the third category of one is the second of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from unicodedata import normalize

from tideline.core.errors import ConfigRefused
from tideline.core.settings import Plain, parse, setting, show

MOST_CHARS = 1 << 18  # of all names and categories together: every order brings them
NUMBER = "number"
DECLARE = "Write columns: {age: number, sex: [f, m]}; `tideline data check FOLDER` proposes them"


class Coding(StrEnum):
    """How a category is told a network: by an input for each, which is 1 or 0, or by its number in the list."""

    ONE_HOT = "one_hot"
    CODES = "codes"


class Missing(StrEnum):
    """What becomes of a cell that is missing.

    REFUSE     the table is refused
    MEDIAN     it is the median over the labelled sites
    INDICATOR  it is 0, and an input more says so
    """

    REFUSE = "refuse"
    MEDIAN = "median"
    INDICATOR = "indicator"


@dataclass(frozen=True)
class Column:
    """One column. Behind the places of its categories are that of all others and that of missing cells, if it has them."""

    name: str = setting(doc="its name in the first line of a table")
    categories: tuple[str, ...] = setting((), doc="all that it may hold, in order; none: numbers")
    coding: Coding = setting(Coding.ONE_HOT, doc="written as: one_hot, an input for each; or codes, for networks that embed them")
    other: bool = setting(False, doc="whether categories that are not listed have a place together")
    missing: Missing = setting(Missing.REFUSE, doc="what becomes of missing cells: refuse, median or indicator")

    @classmethod
    def unfolded(cls, given: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        """As people write it: `as` for the coding, and whole numbers among the categories."""
        made = {("coding" if key == "as" else str(key)): value for key, value in given.items()}
        if isinstance(listed := made.get("categories"), (list, tuple)):
            made["categories"] = [category_in(each, f"{where}.categories[{i}]") for i, each in enumerate(listed)]
        return made

    @property
    def number(self) -> bool:
        return not self.categories

    @property
    def places(self) -> int:
        """How many values a category may have: those of other and of missing cells among them."""
        return len(self.categories) + self.other + (self.missing is not Missing.REFUSE)

    @property
    def coded(self) -> bool:
        """Whether it is one input that holds the number of a category."""
        return bool(self.categories) and self.coding is Coding.CODES

    @property
    def width(self) -> int:
        """How many inputs it takes."""
        if self.number:
            return 1 + (self.missing is Missing.INDICATOR)
        return 1 if self.coded else self.places

    @property
    def fills(self) -> bool:
        """Whether its missing cells are filled by a median. A category has none: there a missing cell has a place."""
        return self.number and self.missing is Missing.MEDIAN

    @property
    def plain(self) -> dict[str, Plain]:
        """In its shortest form."""
        made: dict[str, Plain] = {"name": self.name}
        made |= {"categories": list(self.categories)} if self.categories else {}
        made |= {"as": self.coding.value} if self.coding is not Coding.ONE_HOT else {}
        made |= {"other": True} if self.other else {}
        return made | ({"missing": self.missing.value} if self.missing is not Missing.REFUSE else {})


Columns = tuple[Column, ...]


def category_in(value: object, path: str) -> object:
    """A category as a text. Raises ConfigRefused for what YAML reads as true or false, or as a number that is not whole."""
    if isinstance(value, (bool, float)) or value is None:
        said = "null" if value is None else str(value).lower()
        what = f"{path} is {said}, which YAML does not read as a text"
        raise ConfigRefused(what, "Put the category in quotes, as it stands in the tables: 'yes', '0.5'", path=path)
    return str(value) if isinstance(value, int) else value


def composed(word: str) -> str:
    """One form of a word: editors write accents in different ways."""
    return normalize("NFC", word.strip())


def unfolded_columns(given: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """A world as people write it, its columns as a list of mappings, its rule for missing cells in each, and its inputs.

    Raises ConfigRefused.
    """
    path = f"{where}.columns" if where else "columns"
    if "columns" not in given:
        if "missing" in given:
            what = f"{path.removesuffix('columns')}missing is a rule for missing cells of columns, and there are no columns"
            raise ConfigRefused(what, DECLARE, path=path)
        return given
    rest = {key: value for key, value in given.items() if key != "missing"}
    rule = given.get("missing")
    listed = [each if rule is None else {"missing": rule, **each} for each in mappings_in(given["columns"], path)]
    if not listed:
        return {**rest, "columns": ()}
    columns = tuple(parse(Column, each, f"{path}.{each.get('name', i)}") for i, each in enumerate(listed))
    return {"inputs": [width_of(columns)], **rest, "columns": listed}


def mappings_in(given: object, path: str) -> Iterator[dict[str, Any]]:
    """Each column as a mapping of its settings, its name among them."""
    if isinstance(given, Mapping):
        pairs: list[tuple[object, object]] = list(given.items())
    elif isinstance(given, (list, tuple)):
        pairs = [(None, {"name": each} if isinstance(each, str) else each) for each in given]
    else:
        raise ConfigRefused(f"{path} is {show(given)}; it should be a mapping of names", DECLARE, path=path)
    for name, said in pairs:
        if said == NUMBER:
            said = {}
        elif isinstance(said, (list, tuple)):
            said = {"categories": list(said)}
        if not isinstance(said, Mapping):
            what = f"{path}.{name} is {show(said)}; it should be number, a list of categories, or a mapping of settings"
            raise ConfigRefused(what, DECLARE, path=f"{path}.{name}")
        yield {**({} if name is None else {"name": str(name)}), **{str(key): value for key, value in said.items()}}


def width_of(columns: Sequence[Column]) -> int:
    """How many inputs all of them take."""
    return sum(column.width for column in columns)


def starts_of(columns: Sequence[Column]) -> Iterator[tuple[Column, int]]:
    """Each column with the place of its first input."""
    start = 0
    for column in columns:
        yield column, start
        start += column.width


def filled_places(columns: Sequence[Column]) -> tuple[int, ...]:
    """The inputs whose missing cells are filled by a median."""
    return tuple(start for column, start in starts_of(columns) if column.fills)


def code_places(columns: Sequence[Column]) -> tuple[int, ...]:
    """The inputs that hold numbers of categories."""
    return tuple(start for column, start in starts_of(columns) if column.coded)


def check_columns(columns: Columns, inputs: tuple[int, ...]) -> None:
    """Raises ConfigRefused for columns that a table cannot have, and for inputs that are not theirs."""
    path, names = "world.columns", [composed(column.name) for column in columns]
    for name, count in Counter(names).items():
        if count > 1 or not name or not name.isprintable():
            raise ConfigRefused(f"The name {name!r} cannot name one column alone", "Give each a name of its own", path=path)
    for column in columns:
        check_column(column, f"{path}.{column.name}")
    if sum(len(column.name) + sum(map(len, column.categories)) for column in columns) > MOST_CHARS:
        what = f"world.columns has more than {MOST_CHARS} characters of names and categories"
        raise ConfigRefused(what, "List the frequent categories, and write other: true for the rest", path=path)
    if inputs != (width_of(columns),):
        what = f"world.inputs is {list(inputs)}, and its columns take {width_of(columns)} inputs"
        raise ConfigRefused(what, "Leave inputs out: they follow from the columns", path="world.inputs")


def check_column(column: Column, path: str) -> None:
    """Raises ConfigRefused for settings that do not fit together."""
    if column.number and (column.other or column.coding is not Coding.ONE_HOT):
        what = f"{path} has settings of categories, and no categories"
        raise ConfigRefused(what, "List them: categories: [...]; or write number", path=path)
    alike = Counter(map(composed, column.categories))
    twice = next((each for each, count in alike.items() if count > 1 or not each or not each.isprintable()), None)
    if twice is not None:
        what = f"{path}: {twice!r} cannot stand for one category alone"
        raise ConfigRefused(what, "List each category once; for empty cells there is the rule missing", path=path)
    if not column.number and column.places < 2:
        raise ConfigRefused(f"{path} has a single category", "List all that sites may have, or add other: true", path=path)
