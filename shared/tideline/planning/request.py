"""The request for a plan of links: devices by name, what is known of them, and the weights of the plan.

Symbols and defaults are those of Wang, Hosseinalipour, Brinton, IEEE TCCN 2024 (arXiv 2304.12422). Shapes: N devices; matrices
(N, N) in the order of `devices`, row i sends and column j receives; null on the diagonal, and where there is no link.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tideline.core.errors import ConfigRefused
from tideline.core.settings import Plain, parse, setting

MOST = {"exact": 200, "sca": 40}  # devices that a solver is given
MOST_SWEPT = 32
LARGEST = 1e9  # of numbers that are added up, so that no sum leaves what a float can hold
LONGEST = 80  # characters of a name
MATRICES = ("d", "T", "K", "rates")
PLACE = re.compile(r"(?:devices\[(\d+)\]|(?:d|T|K|rates)\[(\d+)\](?:\[(\d+)\])?)")
Matrix = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Device:
    """A device: its error, count and labelled items, of which S follows; or S."""

    name: str = setting(doc="its name; each device has its own")
    error: float | None = setting(None, low=0.0, high=1.0, doc="of its model on its own items, unlabelled ones counted as wrong")
    count: int | None = setting(None, low=1, high=10**15, doc="its items")
    labelled: int | None = setting(None, low=0, high=10**15, doc="its items with labels; with none it is a target")
    S: float | None = setting(
        None, low=0.0, high=LARGEST, doc="in place of error and count: the bound on a source's error, eq. 17"
    )
    watts: float | None = setting(None, low=0.0, high=1e6, doc="its transmit power, P; goes with rates")


@dataclass(frozen=True)
class PhiWeights:
    """Weights of the objective, eq. 11."""

    source: float = setting(1.0, low=0.0, high=LARGEST, doc="of sources' errors, phi_S")
    target: float = setting(0.5, low=0.0, high=LARGEST, doc="of targets' errors, phi_T")
    energy: float = setting(1.0, low=0.0, high=LARGEST, doc="of energy, phi_E")


@dataclass(frozen=True)
class LinksRequest:
    """Who should be a source, who a target, and which source sends its model to which target."""

    devices: tuple[Device, ...] = setting(doc=f"2 to {MOST['exact']} devices; with the solver sca {MOST['sca']} at most")
    d: Matrix = setting((), low=0.0, high=2.0, doc="divergences in [0, 2], a row and a column for each device; goes with errors")
    T: Matrix = setting((), low=0.0, high=LARGEST, doc="in place of d: the bound on each link's part of a target's error, eq. 18")
    rates: Matrix = setting((), low=0.0, high=1e15, doc="bit/s from row to column; 0 or null: no link; goes with watts")
    bits: float = setting(1e9, low=1.0, high=1e15, doc="size of a model in bits, M; goes with rates")
    K: Matrix = setting((), low=0.0, high=1e12, doc="in place of rates: joules of one transfer; null: no link")
    phi: PhiWeights = setting(PhiWeights(), doc="weights of the objective")
    delta: float = setting(1e-3, low=1e-12, high=0.999, doc="failure probability of each bound")
    complexity: str = setting(
        "published", choices=("natural", "published", "early"), doc="Rademacher bound: 1.177, 0.776, or of the count"
    )
    divergence_scale: float = setting(100.0, choices=(1.0, 100.0), doc="scale of d / 2 in T: 1 in theory, 100 as published")
    energy_mode: str = setting("ratio", choices=("ratio", "linear"), doc="K a / (a + 0.001), eq. 14, or K a")
    solver: str = setting("exact", choices=("exact", "sca"), doc="facility location, or successive approximation (algorithm 2)")
    weights: str = setting(
        "single", choices=("single", "power", "solver"), doc="each target's cheapest source, T^-n over all, or as the solver left"
    )
    exponent: float = setting(1.0, low=0.0, high=1000.0, doc="n of power")
    sweep: tuple[float, ...] = setting((), low=0.0, high=LARGEST, doc=f"up to {MOST_SWEPT} other phi_E to plan with as well")
    pins: tuple[str, ...] = setting((), doc="names of devices that have to be targets, beside those without labels")
    seconds: float = setting(10.0, low=0.1, high=3600.0, doc="for which is searched; then the best plan so far is the answer")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.devices)

    @property
    def pinned(self) -> tuple[bool, ...]:
        """Which devices have to be targets, (N,)."""
        return tuple(device.labelled == 0 or device.name in self.pins for device in self.devices)


def read_links(given: Mapping[str, Plain]) -> LinksRequest:
    """The request, checked without formulas. Raises ConfigRefused with the path and the device's name."""
    with naming_devices(names_in(given)):
        request = parse(LinksRequest, given)
        check_devices(request)
        check_bounds(request)
        check_energy(request)
        for name in MATRICES:
            check_shape(name, getattr(request, name), len(request.devices))
    return request


def names_in(given: Plain) -> tuple[str, ...]:
    """The devices' names in an unchecked request; an empty one for each device without a name."""
    devices = given.get("devices") if isinstance(given, Mapping) else None
    found = [each.get("name") if isinstance(each, Mapping) else None for each in devices] if isinstance(devices, list) else []
    return tuple(name if isinstance(name, str) else "" for name in found)


@contextmanager
def naming_devices(names: Sequence[str]) -> Iterator[None]:
    """Add names to refusals raised inside whose path leads to a device or a pair of devices."""
    try:
        yield
    except ConfigRefused as error:
        who = at_fault(str(error.context.get("path", "")), names)
        if not all(who) or not who:
            raise
        words = who[0] if len(who) == 1 else f"from {who[0]} to {who[1]}"
        raise ConfigRefused(f"{error.what} ({words})", error.todo, **{**error.context, "devices": list(who)}) from None


def at_fault(path: str, names: Sequence[str]) -> tuple[str, ...]:
    """The devices that a path leads to: one, sender and receiver, or none."""
    found = PLACE.match(path)
    places = [int(each) for each in found.groups() if each is not None] if found else []
    return tuple(names[i][:LONGEST] if i < len(names) else "" for i in places)


def check_devices(request: LinksRequest) -> None:
    """Names, numbers of devices, and pins. Raises ConfigRefused."""
    most = MOST[request.solver]
    if not 2 <= len(request.devices) <= most:
        fewer = f"Name fewer{', or use the solver exact' * (most == MOST['sca'])}"
        what = f"devices names {len(request.devices)}; the solver {request.solver} takes 2 to {most}"
        raise ConfigRefused(what, "Name at least two" if len(request.devices) < 2 else fewer, path="devices")
    for i, name in enumerate(request.names):
        if not (0 < len(name) <= LONGEST and name.isprintable()):
            what = f"devices[{i}].name is no text of 1 to {LONGEST} characters that can be shown on a line"
            raise ConfigRefused(what, "Give it a name", path=f"devices[{i}].name")
    (name, times), *_ = Counter(request.names).most_common(1)
    if times > 1:
        at = [i for i, each in enumerate(request.names) if each == name][1]
        raise ConfigRefused(f"devices[{at}].name is another's", "Give each device a name of its own", path=f"devices[{at}].name")
    for i, pin in enumerate(request.pins):
        if pin not in request.names:
            raise ConfigRefused(f"pins[{i}] is {pin[:LONGEST]!r}, which is no device", "Name one of devices", path=f"pins[{i}]")
    if len(request.sweep) > MOST_SWEPT:
        raise ConfigRefused(f"sweep has {len(request.sweep)} values; {MOST_SWEPT} are taken", "Give fewer", path="sweep")


def check_bounds(request: LinksRequest) -> None:
    """S and T are there, or what they follow from, and nothing is given twice. Raises ConfigRefused."""
    direct = request.devices[0].S is not None
    for i, device in enumerate(request.devices):
        wanted, instead = (("S",), ("error", "count")) if direct else (("error", "count", "labelled"), ("S",))
        for key in wanted:
            if getattr(device, key) is None:
                raise missing(f"devices[{i}].{key}", "Give each device error, count and labelled, or each S")
        for key in instead:
            if getattr(device, key) is not None:
                raise twice(f"devices[{i}].{key}", f"{' and '.join(wanted)} of the devices")
    if request.T and request.d:
        raise twice("d", "T")
    if direct and not request.T:
        raise missing("T", "Give T with S; or give d, and of each device error, count and labelled")
    if not request.T and not request.d:
        raise missing("d", "Give the divergences d, or T")


def check_energy(request: LinksRequest) -> None:
    """Watts with rates, or K, or neither. Raises ConfigRefused."""
    if request.rates and request.K:
        raise twice("rates", "K")
    for i, device in enumerate(request.devices):
        if request.rates and device.watts is None:
            raise missing(f"devices[{i}].watts", "Give each device its transmit power, or K in place of rates")
        if not request.rates and device.watts is not None:
            raise ConfigRefused(
                f"devices[{i}].watts says nothing without rates", "Give rates too, or leave watts out", path=f"devices[{i}].watts"
            )


def check_shape(name: str, matrix: Matrix, N: int) -> None:
    """A row and a column for each device, if there is a matrix at all. Raises ConfigRefused."""
    todo = "Give a row for each device, and in it a number for each device; null on the diagonal"
    if matrix and len(matrix) != N:
        raise ConfigRefused(f"{name} has {len(matrix)} rows; there are {N} devices", todo, path=name)
    for i, row in enumerate(matrix):
        if len(row) != N:
            raise ConfigRefused(f"{name}[{i}] has {len(row)} numbers; there are {N} devices", todo, path=f"{name}[{i}]")


def missing(path: str, todo: str) -> ConfigRefused:
    return ConfigRefused(f"{path} is missing", todo, path=path)


def twice(path: str, other: str) -> ConfigRefused:
    return ConfigRefused(f"{path} is given beside {other}", "Give one of them", path=path)
