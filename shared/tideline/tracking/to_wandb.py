"""Runs in Weights & Biases: folders that `wandb sync` sends later, or its server at once. Needs wandb (`tideline[wandb]`).

What is written goes through a process of wandb's own into a log, offline and online. Each write therefore ends when it can be
read there; what cannot counts as not written. Each start of a follower has a folder and a log of its own, and the logs of a run
say together how far it is. A server has its own word on that, the number of steps: what it lacks is sent again from the logs.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from tideline.core.errors import ConfigRefused, Refused, Unreachable
from tideline.tracking.pages import Card, Ending, ModelFile, Page, Point, rows_of, said, unwritten, wanting
from tideline.tracking.wandb_logs import OFFLINE, ROUND, STEP, WRITTEN, YES, Log, Standing, logs_of, rows_from, standing_of

STAMP = "_timestamp"
STRANGE = re.compile(r"[^\w.-]+", re.ASCII)
CODE = re.compile(r"error 40[0-79]")  # of a server that has understood and does not want: 408 and 429 pass
LONGEST = 120  # characters of an artifact's name
PATIENCE_SECONDS, POLL_SECONDS, FLUSH_SECONDS = 30.0, 0.005, 0.01
# Crash reports and statistics go nowhere, and nothing is printed among a command's answers.
OWN = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
# Nothing of this machine, its user, its code and its packages is written down.
SETTINGS = {
    "silent": True,
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "save_code": False,
    "host": "tideline",
    "program": "tideline",
    "use_dot_wandb": False,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
    "x_transaction_log_flush_interval": FLUSH_SECONDS,
}
LOGIN = "Set WANDB_API_KEY, and WANDB_ENTITY for a team's; WANDB_MODE=offline asks nobody"


@dataclass(frozen=True)
class Place:
    """Where to write. registered: the collection whose versions the runs' models become; empty: each run has its own."""

    folder: Path
    project: str = "tideline"
    registered: str = ""
    online: bool = False


def opened(uri: str | None, project: str | None, registered: str) -> Wandb:
    """Raises ConfigRefused without the package, and for a folder, a mode or a name that is none."""
    if uri and "://" in uri:
        raise ConfigRefused(f"--uri is {uri[:80]!r}", "Give a folder; the server is WANDB_BASE_URL", path="uri")
    if registered and STRANGE.search(registered):
        raise ConfigRefused(f"--register is {registered[:80]!r}", "Use letters, digits, `_`, `.` and `-`", path="register")
    mode = os.environ.get("WANDB_MODE", "")
    if mode not in ("", "online", "offline"):
        raise ConfigRefused(f"WANDB_MODE is {mode[:40]!r}", "Set it to offline or online, or unset it", path="to")
    for name, value in OWN.items():
        os.environ.setdefault(name, value)
    try:
        import wandb
    except ImportError:
        raise wanting("wandb", "wandb") from None
    folder = Path(uri or os.environ.get("WANDB_DIR") or ".").expanduser().absolute() / "wandb"
    online = mode == "online" or (not mode and bool(os.environ.get("WANDB_API_KEY")))
    return Wandb(wandb, Place(folder, project or "tideline", registered, online))


class Wandb:
    """A project, in a folder of this machine."""

    name = "wandb"

    def __init__(self, package: Any, place: Place) -> None:
        self.place, self._package = place, package
        self._runs: dict[str, Any] = {}  # those that are open, by their ids

    def written(self) -> frozenset[str]:
        folder, project = self.place.folder, self.place.project
        with answering(self.place):
            runs = {path.stem.removeprefix("run-") for path in logs_of(folder, "*", project)}
            found = [standing_of(folder, run, project) for run in runs]
        return frozenset(str(each.config["tideline.run"]) for each in found if each.over and "tideline.run" in each.config)

    def page(self, card: Card) -> Page:
        with suppress(Unreachable):  # a run whose page failed: its log says what stands
            self.finish(id_of(card.run))
        with answering(self.place):
            self.place.folder.mkdir(parents=True, exist_ok=True)
            return WandbPage(self, card, standing_of(self.place.folder, id_of(card.run), self.place.project))

    def begin(self, card: Card, standing: Standing) -> Any:
        """Open a run of wandb's, with a folder of its own."""
        run = id_of(card.run)
        with answering(self.place):
            check_sent(self.place, run)
            os.environ["WANDB_DATA_DIR"] = str(self.place.folder)  # the files of artifacts until they are sent
            self._runs[run] = opened_run = self._package.init(
                project=self.place.project,
                id=run,
                name=card.name,
                group=id_of(card.parent or card.run),
                config={**card.parameters, **card.tags},
                dir=str(self.place.folder.parent),
                mode="online" if self.place.online else "offline",
                resume="allow",
                reinit="create_new",
                settings=self._package.Settings(**SETTINGS),
            )
            if self.place.folder not in Path(opened_run.settings.sync_file).parents:
                raise OSError(f"{self.place.folder} cannot be written")
            opened_run.define_metric(ROUND)
            opened_run.define_metric("*", step_metric=ROUND)
            if self.place.online:
                self._send_again(opened_run, run, standing)
        return opened_run

    def _send_again(self, opened_run: Any, run: str, standing: Standing) -> None:
        """Send what is logged and the server has not got."""
        known = int(opened_run.starting_step)
        if known > standing.next:
            what = f"Weights & Biases has {known} steps of run {run}, and {self.place.folder} has {standing.next}"
            raise Refused(what, "Give the folder that it was written from, or delete the run there", path="uri")
        for row in rows_from(self.place.folder, run, self.place.project, known):
            step = row.pop(STEP)
            opened_run.log({name: value for name, value in row.items() if name != "_runtime"}, step=step, commit=True)

    def artifact(self, name: str, kind: str, files: Mapping[str, Path], lineage: Mapping[str, str]) -> Any:
        """An artifact with copies of files, by their paths in it."""
        made = self._package.Artifact(STRANGE.sub("-", name)[:LONGEST], kind, metadata=dict(lineage))
        for path, file in files.items():
            made.add_file(str(file), name=path, skip_cache=True)
        return made

    def finish(self, run: str, code: int = 0) -> None:
        """End a run that is open; everything of it is in its log then, and online at the server."""
        if found := self._runs.pop(run, None):
            with answering(self.place):
                found.finish(exit_code=code)


class WandbPage:
    """One run there. Events are read from the first on: the logs say which numbers they have."""

    def __init__(self, tracker: Wandb, card: Card, standing: Standing) -> None:
        self._tracker, self._card, self._standing = tracker, card, standing
        self.mark, self.over = 0, standing.over
        self._run: Any = None
        self._log: Log | None = None

    def set_tags(self, tags: Mapping[str, str]) -> None:
        new = {name: value for name, value in tags.items() if self._standing.config.get(name) != value}
        if not new:
            return
        run = self._opened()
        with answering(self._tracker.place):
            run.config.update(new, allow_val_change=True)
        self._wait_for(lambda at: all(at.config.get(name) == value for name, value in new.items()))

    def write(self, points: Sequence[Point], mark: int) -> None:
        new = unwritten([replace(point, key=key_of(point.key)) for point in points], self._standing.last)
        if not new:
            return
        run, step = self._opened(), self._standing.next
        with answering(self._tracker.place):
            for number, of in groupby(new, key=lambda point: point.step):
                batch = list(of)
                for row in rows_of(batch):
                    run.log({**row, ROUND: number, STAMP: batch[-1].at}, step=step, commit=True)
                    step += 1
        self._wait_for(lambda at: at.next >= step)

    def attach(self, folder: Path, models: Sequence[ModelFile]) -> None:
        place, run = self._tracker.place, self._opened()
        wanted = self._standing.artifacts + 1 + len(models)
        apart = {model.path for model in models}
        files = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file() and p not in apart}
        registered = place.registered if self._card.parent is None else ""
        with answering(place):
            run.log_artifact(self._tracker.artifact(f"{self._card.run}-files", "files", files, {}))
            for model in models:
                name = (registered or f"{self._card.run}-model") + (f"-{model.site}" if model.site else "")
                own = {model.path.relative_to(folder).as_posix(): model.path}
                run.log_artifact(self._tracker.artifact(name, "model", own, model.lineage))
        if not place.online:  # what goes to a server is there once the run has ended
            self._wait_for(lambda at: at.artifacts >= wanted)

    def close(self, ending: Ending) -> None:
        self.set_tags({**ending.tags, "tideline.status": ending.status, WRITTEN: YES})
        self._opened()
        self._tracker.finish(id_of(self._card.run), 0 if ending.status == "completed" else 1)
        self._wait_for(lambda at: at.over)
        self.over = True

    def _opened(self) -> Any:
        if self._run is None:
            self._run = self._tracker.begin(self._card, self._standing)
            self._log = Log(Path(self._run.settings.sync_file))
        return self._run

    def _wait_for(self, done: Callable[[Standing], bool]) -> None:
        """Wait until the log has what was written. Raises Unreachable."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            with answering(self._tracker.place):
                if self._log is not None and self._log.path.exists():
                    self._standing.hear(self._log)
            if done(self._standing):
                return
            if time.monotonic() > until:
                where = self._tracker.place.folder
                raise Unreachable(f"wandb has not written into {where} what it was given", "Check that it has room")
            time.sleep(POLL_SECONDS)


def check_sent(place: Place, run: str) -> None:
    """Raises Refused for a run that would go on online, of which something waits to be sent."""
    waiting = [path for path in logs_of(place.folder, run, place.project) if path.parent.name.startswith(OFFLINE)]
    waiting = [path for path in waiting if not path.with_name(f"{path.name}.synced").exists()]
    if place.online and waiting:
        what = f"{waiting[0].parent} was written offline and is not sent"
        raise Refused(what, "Send it with `wandb sync`, or set WANDB_MODE=offline", path="to")


def id_of(run: str) -> str:
    return STRANGE.sub("-", run)


def key_of(key: str) -> str:
    """A point's name that is none of wandb's own, which begin with `_`, nor that of the rounds."""
    return f"metric.{key}" if key == ROUND or key.startswith("_") else key


@contextmanager
def answering(place: Place) -> Iterator[None]:
    """Turn wandb's errors into Unreachable, where waiting may help, and Refused."""
    from wandb.errors import AuthenticationError, Error, UsageError
    from wandb.sdk.mailbox import HandleAbandonedError, MailboxClosedError

    try:
        yield
    except AuthenticationError as cause:
        raise Refused(f"Weights & Biases refuses: {said(cause)}", LOGIN, path="to") from None
    except (UsageError, ValueError) as cause:
        todo = "Check --experiment and --register, and what WANDB_ variables say"
        raise Refused(f"Weights & Biases refuses: {said(cause)}", todo, path="to") from None
    except (ConnectionError, MailboxClosedError, HandleAbandonedError) as cause:
        let_go()
        what = f"wandb's own process has ended: {said(cause)}"
        raise Unreachable(what, "It is started again with the next try") from None
    except OSError as cause:
        what = f"wandb cannot write into {place.folder}: {said(cause)}"
        raise Unreachable(what, "Make room, or correct its rights") from None
    except Error as cause:
        if CODE.search(str(cause)):
            raise Refused(f"Weights & Biases refuses: {said(cause)}", LOGIN, path="to") from None
        what = f"Weights & Biases does not answer as it should: {said(cause)}"
        raise Unreachable(what, "Check WANDB_BASE_URL and the line there") from None


def let_go() -> None:
    """Forget a process of wandb's that is gone, so that the next run starts another one."""
    import wandb
    from wandb.sdk.mailbox import MailboxClosedError

    with suppress(OSError, MailboxClosedError, SystemExit):  # it says on its way that it cannot be told
        wandb.teardown()
