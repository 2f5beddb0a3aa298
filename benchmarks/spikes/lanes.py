"""Candidates for the bulk lane, side by side: GET and PUT of the same bytes as the bare gRPC stream has, one process each.

    python benchmarks/spikes/lanes.py [--mb 100 --n 2 --rounds 5] [--tls] [--with FOLDER]

A row's figure is the fastest round over the fastest of the bare stream, all of one run; `cpu` is processor seconds of all
processes a round. `digests and files` adds what a lane does: a BLAKE3 of what comes, and files that it comes from and goes to.
FOLDER holds packages that the project does not need (pip install --target FOLDER uvloop httptools aiohttp aiofastnet).
--tls: all of it under TLS, the bare stream as well; `+ fastnet` is the same server on the transports of aiofastnet.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from blake3 import blake3

from benchmarks.raw_stream import raw_rounds
from tideline.client.certificates import issue_coordinator

BUFFER = 1 << 19
FAST = " + fastnet"
KINDS = ("threads", "uvicorn", f"uvicorn{FAST}", "aiohttp", f"aiohttp{FAST}")
CERTIFICATE = os.environ.get("SPIKE_CERTIFICATE", "")  # a folder with coordinator.pem, coordinator.key and ca.pem


def shown() -> ssl.SSLContext | None:
    """What a server shows, under TLS."""
    if not CERTIFICATE:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{CERTIFICATE}/coordinator.pem", f"{CERTIFICATE}/coordinator.key")
    return context


def line_to(port: int) -> socket.socket:
    """A client's line."""
    line = socket.create_connection(("127.0.0.1", port))
    if not CERTIFICATE:
        return line
    return ssl.create_default_context(cafile=f"{CERTIFICATE}/ca.pem").wrap_socket(line, server_hostname="127.0.0.1")


def head(text: str, nbytes: int) -> bytes:
    return f"{text}\r\nHost: there\r\nContent-Length: {nbytes}\r\n\r\n".encode()


def received(line: socket.socket, nbytes: int, to: Path | None, begun: bytes = b"") -> None:
    """Take in bytes: hashed and written, where they go to a file."""
    room, made, left = memoryview(bytearray(BUFFER)), blake3(), nbytes
    file = os.open(to, os.O_RDWR | os.O_CREAT) if to else -1
    pieces = [memoryview(begun)] if begun else []
    while left:
        piece = pieces.pop() if pieces else filled(line, room[: min(left, BUFFER)])
        left -= len(piece)
        if to:
            made.update(piece)
            os.write(file, piece)
    if to:
        os.fsync(file)
        os.close(file)


def filled(line: socket.socket, room: memoryview) -> memoryview:
    """As much as there is room for: TLS hands out 16 KiB at a time, and to hash and write each of them would cost more."""
    at = 0
    while at < len(room):
        at += line.recv_into(room[at:])
    return room


def sent(line: socket.socket, nbytes: int, of: Path | None) -> None:
    if of is None:
        chunk = bytes(1 << 20)
        for at in range(0, nbytes, len(chunk)):
            line.sendall(chunk[: nbytes - at])
        return
    with of.open("rb") as file:
        line.sendfile(file, 0, nbytes)


def serve_threads(nbytes: int, folder: str) -> None:
    """A thread a connection, one request each; heads are read as they come, as there is one of them."""
    door = socket.create_server(("127.0.0.1", 0), backlog=64)
    say(door.getsockname()[1])

    context = shown()

    def live(line: socket.socket) -> None:
        with context.wrap_socket(line, server_side=True) if context else line as line:
            came = b""
            while b"\r\n\r\n" not in came:
                came += line.recv(4096)
            first, _, begun = came.partition(b"\r\n\r\n")
            if first.startswith(b"GET"):
                line.sendall(head("HTTP/1.1 200 OK", nbytes))
                sent(line, nbytes, Path(folder) / "model" if folder else None)
            else:
                received(line, nbytes, Path(folder) / f"up-{line.fileno()}" if folder else None, begun)
                line.sendall(head("HTTP/1.1 200 OK", 0))

    while True:
        threading.Thread(target=live, args=(door.accept()[0],), daemon=True).start()


def serve_uvicorn(nbytes: int, folder: str) -> None:
    """ASGI on uvloop and httptools."""
    import uvicorn

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] == "GET":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(nbytes).encode())]})
            chunks = pieces(nbytes, Path(folder) / "model" if folder else None)
            for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            return
        made, more = blake3(), True
        file = os.open(Path(folder) / f"up-{id(scope)}", os.O_RDWR | os.O_CREAT) if folder else -1
        while more:
            message = await receive()
            more = message["more_body"]
            if folder:
                await asyncio.to_thread(lambda body=message["body"]: (made.update(body), os.write(file, body)))
        if folder:
            await asyncio.to_thread(os.fsync, file)
            os.close(file)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    door = socket.create_server(("127.0.0.1", 0))
    say(door.getsockname()[1])
    config = uvicorn.Config(app, loop="uvloop", http="httptools", log_level="critical", lifespan="off", access_log=False)
    if CERTIFICATE:
        config.ssl_certfile, config.ssl_keyfile = f"{CERTIFICATE}/coordinator.pem", f"{CERTIFICATE}/coordinator.key"
    run(uvicorn.Server(config).serve([door]))


def run(main: Coroutine[Any, Any, None]) -> None:
    """On uvloop; with the other transports, if they are asked for."""
    import uvloop

    if sys.argv[2].endswith(FAST):
        import aiofastnet

        async def patched() -> None:
            aiofastnet.patch_loop(asyncio.get_running_loop())
            await main

        uvloop.run(patched())
    else:
        uvloop.run(main)


def serve_aiohttp(nbytes: int, folder: str) -> None:
    """aiohttp on uvloop."""
    from aiohttp import web

    async def get(request: Any) -> Any:
        answer = web.StreamResponse(headers={"Content-Length": str(nbytes)})
        await answer.prepare(request)
        for chunk in pieces(nbytes, Path(folder) / "model" if folder else None):
            await answer.write(chunk)
        return answer

    async def put(request: Any) -> Any:
        made = blake3()
        file = os.open(Path(folder) / f"up-{id(request)}", os.O_RDWR | os.O_CREAT) if folder else -1
        async for chunk in request.content.iter_chunked(BUFFER):
            if folder:
                await asyncio.to_thread(lambda chunk=chunk: (made.update(chunk), os.write(file, chunk)))
        if folder:
            await asyncio.to_thread(os.fsync, file)
            os.close(file)
        return web.Response()

    async def main() -> None:
        app = web.Application(client_max_size=1 << 40)
        app.add_routes([web.get("/parts", get), web.put("/parts", put)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        door = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, door, ssl_context=shown()).start()
        say(door.getsockname()[1])
        await asyncio.Event().wait()

    run(main())


def pieces(nbytes: int, of: Path | None) -> Any:
    """Chunks of zeros, or of a file."""
    if of is None:
        chunk = bytes(1 << 20)
        yield from (chunk[: nbytes - at] for at in range(0, nbytes, len(chunk)))
        return
    with of.open("rb") as file:
        while chunk := file.read(1 << 20):
            yield chunk


def client(port: int, nbytes: int, rounds: int, folder: str) -> None:
    """For each line: everything down, then everything up, over a connection each; the same for every candidate."""
    mine = Path(folder) / f"client-{os.getpid()}" if folder else None
    say("ready")
    for _ in range(rounds):
        sys.stdin.readline()
        with line_to(port) as line:
            line.sendall(head("GET /parts HTTP/1.1", 0))
            came = b""
            while b"\r\n\r\n" not in came:
                came += line.recv(4096)
            if b"chunked" in came.lower():
                sys.exit("chunks")
            received(line, nbytes, mine, came.partition(b"\r\n\r\n")[2])
        with line_to(port) as line:
            line.sendall(head("PUT /parts HTTP/1.1", nbytes))
            sent(line, nbytes, mine)
            line.recv(4096)
        say("done")


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def measured(kind: str, nbytes: int, n: int, rounds: int, folder: str) -> tuple[list[float], float]:
    """Seconds of each round, and processor seconds of a round, of server and clients together."""
    before = os.times()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(child("serve", kind, nbytes, folder))
        port = int(server.stdout.readline())  # type: ignore[union-attr]
        clients = [stack.enter_context(child("client", port, nbytes, rounds, folder)) for _ in range(n)]
        for each in clients:
            each.stdout.readline()  # type: ignore[union-attr]
        seconds = []
        for _ in range(rounds):
            began = time.perf_counter()
            for each in clients:
                each.stdin.write("go\n")  # type: ignore[union-attr]
            for each in clients:
                each.stdout.readline()  # type: ignore[union-attr]
            seconds.append(time.perf_counter() - began)
        server.kill()
    after = os.times()
    return seconds, (after.children_user + after.children_system - before.children_user - before.children_system) / rounds


def child(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=100.0)
    parser.add_argument("--n", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--with", dest="packages", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.tls:
            issue_coordinator(Path(folder), ["127.0.0.1"])
            os.environ["SPIKE_CERTIFICATE"] = folder
        compare(args, Path(folder) if args.tls else None)


def compare(args: argparse.Namespace, tls: Path | None) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), args.packages)))
    nbytes = int(args.mb * 1e6)
    began = os.times()
    raw = min(raw_rounds(nbytes, args.n, args.rounds, tls))
    ended = os.times()
    cpu = (ended.children_user + ended.children_system - began.children_user - began.children_system) / args.rounds
    say(f"{'bare gRPC stream':37} {raw:6.3f} s  1.00   cpu {cpu:.2f}")
    for kind in KINDS:
        for files in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "model").write_bytes(bytes(nbytes))
                seconds, cpu = measured(kind, nbytes, args.n, args.rounds, folder if files else "")
            what = f"{kind}{', digests and files' if files else ''}"
            say(f"{what:37} {min(seconds):6.3f} s  {min(seconds) / raw:4.2f}   cpu {cpu:.2f}")


if __name__ == "__main__":
    match sys.argv[1:2]:
        case ["serve"]:
            kind, nbytes, folder = sys.argv[2:5]
            servers = {"threads": serve_threads, "uvicorn": serve_uvicorn, "aiohttp": serve_aiohttp}
            servers[kind.removesuffix(FAST)](int(nbytes), folder)
        case ["client"]:
            client(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
        case _:
            main()
