"""The runs in an agent's home, for the site's owner: list, export and delete them.

working/RUN   locked by the agent while it works for the run: it is not deleted meanwhile
forgotten/    what is being deleted
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, TypeVar

from tideline.archive.errors import PartMissing
from tideline.core.algorithm import AnyAlgorithm, Methods, SiteModels, load_methods, plan_of, resolve, where_summed
from tideline.core.asked.scoring import NO_MORE, Scoring
from tideline.core.asked.world import World, world_in
from tideline.core.errors import FederationError, Malformed, MemoryLost, NotFound, Refused
from tideline.core.record import Weights
from tideline.core.run import Digest, Role, RunId
from tideline.core.settings import EMPTY, Plain, nearest, parse
from tideline.engine.model.access.projects import DEFAULT
from tideline.engine.site.summing import close_notes
from tideline_agent.vault import FolderVault, RunBrief

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
# Why a site may have nothing to take, and no name is wrong.
MODEL = "model"
UNFINISHED = "As far as the site knew, the run was not over when this was written"
SELDOM = "some methods keep nothing, others only at targets and only after their last exchanges"
RUNS, WORKING, FORGOTTEN = "runs", "working", "forgotten"
SUMS = "sums"  # what was answered in secure sums, which outlives the runs
SPARED = "spared"  # a file in a run's folder: the owner's word that no rule deletes it
TRIES = 5  # a working agent replaces its memory now and then; the next look finds the new one whole


def remembered(home: Path) -> list[dict[str, Plain]]:
    """The runs that an agent's home remembers: run, method, role, and the place in the plan of its last answer."""
    vault = FolderVault(home / "runs")
    rows: list[dict[str, Plain]] = []
    for run in vault.runs():
        head, brief = vault.head(run), vault.brief(run)
        assert head is not None, "runs are those with a head"
        rows.append({"run": run, "method": brief["method"], "role": brief["role"], "cursor": head.cursor})
    return rows


def keepsakes(home: Path, run: RunId, methods: str) -> Mapping[str, Mapping[str, Tensor]]:
    """Everything that the run's method lets the owner take; nothing before the first answer. Raises NotFound, MemoryLost."""
    vault = FolderVault(home / "runs")
    try:
        brief = vault.brief(run)
    except (Malformed, OSError):  # the id was typed by the owner, so nobody else is to blame for an odd one
        raise NotFound(f"{run[:80]!r} cannot name a run", "Use an id from `tideline site list`") from None
    if vault.head(run) is None:
        return EMPTY
    algorithm = method_of(load_methods(methods), brief)
    config = algorithm.configure(brief["config"])
    memory = memory_of(vault, run, algorithm.memory)
    own = {} if algorithm.site_models is None else weights_in(algorithm.site_models, brief, config, memory)
    return {**({MODEL: own} if own else {}), **algorithm.keepsakes(config, memory)}


def method_of(methods: Methods, brief: RunBrief) -> AnyAlgorithm:
    """The run's method as it is played in its world. Raises NotFound, ConfigRefused."""
    from tideline.learning.in_world import in_world

    world = world_in(brief["world"])
    method = where_summed(resolve(methods, brief["method"]), brief.get("secure_sums"))
    return in_world(method, world.scaling, scoring_in(brief).prior, world.fills)


def scoring_in(brief: RunBrief) -> Scoring:
    """What the run asks of its scorings."""
    said = brief.get("scoring")
    return NO_MORE if said is None else parse(Scoring, said, "scoring")


def weights_in(sites: SiteModels[Any, Any, Any], brief: RunBrief, config: object, memory: object) -> Weights:
    """The weights of the site's own model; empty where its memory has none, or its role none."""
    from tideline.nets import played

    if sites.of is None or Role(brief["role"]) not in sites.roles:
        return EMPTY
    return sites.of(config, played(world_in(brief["world"])), memory)


def made_whole(vault: FolderVault, run: RunId, world: World, kept: Weights, form: str) -> Weights:
    """A model with the frozen part of its network, which lies among the run's files. Raises MemoryLost where that is gone."""
    if not world.frozen:
        return kept
    from tideline.engine.compute.initial_weights import read_base
    from tideline.learning.frozen import whole

    try:
        base = read_base(vault.parts(run), world, Digest(vault.brief(run)["base"]))
    except PartMissing as cause:
        what = f"The frozen weights of run {run} are not whole in {vault.folder.parent}"
        raise MemoryLost(what, "Give the agent's home back from a copy; the model's own part alone predicts nothing") from cause
    return whole(world, base, kept, form)


def memory_of(vault: FolderVault, run: RunId, kind: type[T], best: bool = False) -> T:
    """What the site remembers of a run, or remembered at its best scoring. Raises MemoryLost."""
    from tideline.archive.checks import LAX
    from tideline.archive.reader import decode

    for _ in range(TRIES):
        head = vault.head(run)
        files = () if head is None else head.memory if not best else head.best.memory if head.best else ()
        if not files:
            break
        try:
            return decode(kind, files[0][0], vault.parts(run), LAX)
        except PartMissing:
            continue
    raise MemoryLost(f"The memory of run {run} is not whole in {vault.folder.parent}", "Try again; see whether the agent works")


def one_of(found: Mapping[str, Mapping[str, Tensor]], name: str, run: RunId) -> Mapping[str, Tensor]:
    """A keepsake by name. Raises NotFound with the names that there are."""
    if name in found:
        return found[name]
    names = sorted(found)
    if names:
        what = f"Of run {run} nothing named {name!r} is kept at this site; kept are: {', '.join(names)}"
        raise NotFound(what, f"Use one of these names{nearest(name, names)}, see `tideline site list --run {run}`")
    what = f"Of run {run} nothing is kept at this site yet, so nothing named {name!r}"
    raise NotFound(what, f"See `tideline site list --run {run}`; {SELDOM}")


@dataclass(frozen=True)
class StoredRun:
    """A run in a home: the bytes that it takes, when the newest was written, and whether its last exchange was answered.

    model: whether a model of the site's own is among its files. spared: whether the owner said that they stay.
    """

    run: RunId
    bytes: int
    last: float
    over: bool
    model: bool = False
    spared: bool = False
    project: str = DEFAULT


def stored_runs(home: Path, methods: str) -> dict[RunId, StoredRun]:
    known, vault = load_methods(methods), FolderVault(home / RUNS)
    folders = sorted(folder for folder in vault.folder.iterdir() if folder.is_dir())
    return {RunId(folder.name): stored_run(folder, vault, known) for folder in folders}


def stored_run(folder: Path, vault: FolderVault, methods: Methods) -> StoredRun:
    run, (nbytes, last) = RunId(folder.name), taken(folder)
    return StoredRun(
        run=run,
        bytes=nbytes,
        last=last,
        over=is_over(vault, run, methods),
        model=has_model(vault, run, methods),
        spared=(folder / SPARED).exists(),
        project=project_of(vault, run),
    )


def project_of(vault: FolderVault, run: RunId) -> str:
    """The run's project, as its orders said."""
    try:
        return str(vault.brief(run).get("intent", {}).get("project", DEFAULT))
    except FederationError:
        return DEFAULT


def spare(home: Path, run: RunId, undo: bool = False) -> None:
    """Have no rule delete a run's files, or let rules do so again. Raises NotFound."""
    folder = home / RUNS / run
    if run not in {each.name for each in (home / RUNS).iterdir()}:
        raise NotFound(f"There is no run {run[:80]} in this home", "See `tideline site list`")
    if undo:
        (folder / SPARED).unlink(missing_ok=True)
        return
    last = taken(folder)[1]
    (folder / SPARED).touch()
    os.utime(folder / SPARED, (last, last))  # by its age the run is as old as before


def has_model(vault: FolderVault, run: RunId, methods: Methods) -> bool:
    """Whether the run's method leaves a site in this role a model of its own, and it has a memory. Where nobody can say: yes."""
    try:
        brief, head = vault.brief(run), vault.head(run)
        sites = method_of(methods, brief).site_models
    except (FederationError, KeyError):
        return True
    return sites is not None and sites.of is not None and Role(brief["role"]) in sites.roles and bool(head and head.memory)


def taken(folder: Path) -> tuple[int, float]:
    """The bytes of a run's files, and when the newest was written."""
    seen = [file.stat() for file in folder.rglob("*") if file.is_file()]
    return sum(each.st_size for each in seen), max((each.st_mtime for each in seen), default=folder.stat().st_mtime)


def is_over(vault: FolderVault, run: RunId, methods: Methods) -> bool:
    """Whether the run's last exchange was answered here, and that of the run that it belongs to: that reads what it predicted."""
    try:
        parent = RunId(str(vault.brief(run).get("intent", {}).get("parent", "")))
        awaited = bool(parent) and vault.path(parent).exists() and not has_answered(vault, parent, methods)
    except FederationError:
        return False
    return not awaited and has_answered(vault, run, methods)


def has_answered(vault: FolderVault, run: RunId, methods: Methods) -> bool:
    """Whether the run's last exchange was answered here. Of a method that is no longer known, nobody can say."""
    try:
        brief, head = vault.brief(run), vault.head(run)
        algorithm = method_of(methods, brief)
        plan = plan_of(algorithm, algorithm.configure(brief["config"]), scoring_in(brief))
        return head is not None and head.cursor >= len(plan) - 1
    except (FederationError, KeyError):
        return False


def forget(home: Path, run: RunId, first: Callable[[], object] = lambda: None) -> None:
    """A run's folder is gone from the vault; `clear` deletes it. Raises Refused while the agent works for it.

    first: what is done before, once it is sure that nobody works for the run; if it raises, the run stays.
    """
    for name in (WORKING, FORGOTTEN):
        (home / name).mkdir(exist_ok=True)
    try:
        with held(home / WORKING / run, wait=False):
            first()
            close_notes(home / SUMS, run)
            FolderVault(home / RUNS).path(run).replace(home / FORGOTTEN / uuid.uuid4().hex)
    except BlockingIOError:
        raise Refused(f"The agent works for run {run} now", "Wait until it has answered, or have the run cancelled") from None


def clear(home: Path) -> None:
    """Delete what was forgotten, also what a command left that was killed."""
    shutil.rmtree(home / FORGOTTEN, onerror=passed_over)


def passed_over(what: Callable[..., object], path: str, info: tuple[type[BaseException], BaseException, TracebackType]) -> None:
    """What another has deleted by now is no error."""
    if not isinstance(info[1], FileNotFoundError):
        raise info[1]


@contextlib.contextmanager
def at_work(home: Path, run: RunId) -> Iterator[None]:
    """Nobody forgets the run as long as the block lasts. An odd name, and a full disk, are the order's own affair."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(Malformed, OSError):
            FolderVault(home / RUNS).path(run)
            (home / WORKING).mkdir(exist_ok=True)
            stack.enter_context(held(home / WORKING / run, wait=True))
        yield


@contextlib.contextmanager
def held(path: Path, wait: bool) -> Iterator[None]:
    """The only one to hold a lock file, which is gone afterwards. Raises BlockingIOError where one does not wait for another."""
    with locked(path, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB)):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def locked(path: Path, how: int) -> IO[str]:
    """The lock file, locked. Whoever held it before has unlinked it: then it is another file by now."""
    while True:
        file = path.open("w")
        try:
            fcntl.flock(file, how)
            if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                return file
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()
