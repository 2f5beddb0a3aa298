"""A browser without a window, told over two pipes what to do: https://chromedevtools.github.io/devtools-protocol.

It looks up no name, so that nothing that it asks for on its own account leaves this machine.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless",
    "--no-sandbox",  # root has none; the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--window-size=1200,1600",
    "--remote-debugging-pipe",
)
# It reads commands from its descriptor 3 and writes answers to its 4.
STARTED = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
VIOLATIONS = """
window.violations = [];
addEventListener("securitypolicyviolation", (e) => violations.push(`${e.effectiveDirective} ${e.blockedURI}`), true);
"""
# Fulfilled at the change of the page that makes it true.
WHEN = """new Promise((fulfil) => {{
  const look = () => {{ const found = {0}; if (found) {{ watcher.disconnect(); fulfil(found instanceof Node || found); }} }};
  const watcher = new MutationObserver(look);
  watcher.observe(document, {{subtree: true, childList: true, attributes: true, characterData: true}});
  look();
}})"""


def browser() -> str | None:
    """The program, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """One page. `requests`: every address that it asked for, in order; `said`: what the browser had to say of it."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb")
        self._session: str | None = None
        self._sent = 0
        self.requests: list[str] = []
        self.said: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=VIOLATIONS)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command's result; what happens until it comes is noted."""
        self._sent += 1
        session = {"sessionId": self._session} if self._session else {}
        self._commands.write(json.dumps({"id": self._sent, "method": method, "params": params} | session).encode() + b"\0")
        while (message := self._message()).get("id") != self._sent:
            self._note(message.get("method", ""), message.get("params", {}))
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    def _message(self) -> dict[str, Any]:
        """The next one; each ends with a zero byte."""
        read = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser has ended"
            read += byte
        message: dict[str, Any] = json.loads(read)
        return message

    def _note(self, event: str, of: dict[str, Any]) -> None:
        """Keep what tests ask for."""
        if event == "Network.requestWillBeSent":
            self.requests.append(of["request"]["url"])
        elif event == "Log.entryAdded":
            self.said.append(of["entry"]["text"])
        elif event == "Runtime.consoleAPICalled" and of["type"] in ("error", "assert"):
            self.said.append(json.dumps(of["args"]))
        elif event == "Runtime.exceptionThrown":
            self.said.append(json.dumps(of["exceptionDetails"]))

    def evaluate(self, script: str) -> Any:
        """What a script in the page comes to; promises are awaited."""
        told = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def open(self, url: str, ready: str) -> None:
        """Go to a page, and come back when the expression `ready` is true there."""
        assert "errorText" not in (told := self.call("Page.navigate", url=url)), told
        self.when(ready)

    def when(self, true: str) -> Any:
        """The value of an expression, as soon as it is true."""
        return self.evaluate(WHEN.format(true))

    def violations(self) -> list[str]:
        """What the page's policy forbade: the directive, and what of."""
        return list(self.evaluate("violations"))

    def close(self) -> None:
        """End both pipes; the browser goes with them."""
        self._commands.close()
        self._answers.close()

    def picture(self, to: Path) -> None:
        """The page as a reader sees it, as a PNG."""
        to.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextlib.contextmanager
def tab(program: str, home: Path) -> Iterator[Tab]:
    """A browser with one page; it keeps what it has to in `home`."""
    theirs_in, commands = os.pipe()
    answers, theirs_out = os.pipe()
    words = [*OPTIONS, f"--user-data-dir={home}", "about:blank"]
    command = ["bash", "-c", STARTED, "bash", str(theirs_in), str(theirs_out), program, *words]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, pass_fds=(theirs_in, theirs_out), stdout=log, stderr=log, start_new_session=True)
    os.close(theirs_in)
    os.close(theirs_out)
    with contextlib.ExitStack() as at_end:
        at_end.callback(process.wait)
        at_end.callback(kill, process)
        made = Tab(commands, answers)
        at_end.callback(made.close)
        yield made


def kill(process: subprocess.Popen[bytes]) -> None:
    """End it, with the processes that draw its pages."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
