"""A `tideline` for shells whose commands are forked where the suite forks, so that a page's blocks run as bash reads them.

A shell finds a small script of that name first on its path. The script hands its words, folder, environment and files to this
process, which starts the command, and it ends as the command ends.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOST_BYTES = 1 << 20
SCRIPT = """#!{python} -IS
import json, os, signal, socket, sys
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect({address!r})
socket.send_fds(line, [json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()], [0, 1, 2])
pid = int(line.recv(100))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
code = int(line.recv(100) or 1)
sys.exit(code if code >= 0 else 128 - code)
"""


@contextmanager
def commands(folder: Path) -> Iterator[Path]:
    """The folder to put first on a shell's path, until the block ends."""
    (folder / "bin").mkdir()
    script, address = folder / "bin" / "tideline", str(folder / "calls")
    script.write_text(SCRIPT.format(python=sys.executable, address=address))
    script.chmod(0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(address)
        door.listen()
        threading.Thread(target=answer_all, args=(door,), daemon=True).start()
        yield script.parent
        door.shutdown(socket.SHUT_RDWR)


def answer_all(door: socket.socket) -> None:
    """A thread for each call, until the door is shut."""
    while True:
        try:
            line, _ = door.accept()
        except OSError:
            return
        threading.Thread(target=answer, args=(line,), daemon=True).start()


def answer(line: socket.socket) -> None:
    """Start the command that a script was called with, and tell the script its process and how it ended."""
    with line:
        data, files, _, _ = socket.recv_fds(line, MOST_BYTES, 3)
        words, folder, environment = json.loads(data)
        said, out, err = files
        command = [sys.executable, "-m", "tideline", *words]
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=said, stdout=out, stderr=err)
        for file in files:
            os.close(file)
        line.send(str(process.pid).encode())
        line.send(str(process.wait()).encode())
