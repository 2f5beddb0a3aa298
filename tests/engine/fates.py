"""Activities that may stop at every call of a port and go on later: threads, of which one runs at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.laws.stage import Crash, Cuts
from tideline.core.errors import Refused, Unreachable

PATIENCE = 60.0  # nothing here takes so long; what does hangs
LEFT = (Crash, Unreachable, Refused)  # how an activity may end without its end
LINE = ("fetch", "fetched", "push", "pushed", "report", "reported")


class Fate(NamedTuple):
    """What happens to an activity, and where: at the place of that number on its way, or at the first of that name."""

    what: str = (
        ""  # freeze | crash | cut (a call is not made) | lost (its answer is not heard) | twice (as one repeats it) | fail
    )
    where: int | str = 0


CALM = Fate()


class Life:
    """A process from its start to its end."""

    def __init__(self, name: str) -> None:
        self.name, self.alive = name, True


class Task(threading.Thread):
    """An activity of a process. It runs while somebody waits in `go`, and at no other time."""

    def __init__(self, life: Life, kind: str, work: Callable[[], object], run: Any = None) -> None:
        super().__init__(name=f"{life.name}: {kind}", daemon=True)
        self.life, self.kind, self.subject, self._work = life, kind, run, work
        self.over, self.fate, self.notes = False, CALM, dict[str, Any]()
        self._passed, self._error = 0, list[BaseException]()
        self._mine, self._yours = threading.Semaphore(0), threading.Semaphore(0)

    def go(self, fate: Fate = CALM) -> None:
        """Let it run until it ends or freezes. What went wrong and was not foreseen is raised here."""
        self.fate, self._passed = fate, 0
        if self.ident is None:
            self.start()
        self._mine.release()
        assert self._yours.acquire(timeout=PATIENCE), f"{self.name} hangs"
        if self._error:
            raise self._error.pop()

    def run(self) -> None:
        self._mine.acquire()
        try:
            self._work()
        except LEFT:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised in `go`
            self._error.append(error)
        self.over = True
        self._yours.release()

    def meet(self, place: str) -> str:
        """Come by a place: what happens here. To freeze is to come by again when somebody lets it go on."""
        while self.fate.what and self.fate.where in (self._passed, place):
            what, self.fate = self.fate.what, CALM
            if what != "freeze":
                return what
            self._yours.release()
            self._mine.acquire()
        self._passed += 1
        return ""


def current() -> Task | None:
    """The activity that is running."""
    thread = threading.current_thread()
    return thread if isinstance(thread, Task) else None


class Places(Cuts):
    """The places of an agent: on its link, and about its vault."""

    def point(self, *place: object) -> None:
        task = current()
        if task is None:
            return
        here = str(place[0])
        what = task.meet(here)
        if what == "crash":
            task.life.alive = False
        if not task.life.alive and here != "push":  # what has been sent arrives, whether its sender lives or not
            raise Crash
        if what in ("cut", "lost") and here in LINE:
            raise Unreachable(f"The line was cut: {here}")
