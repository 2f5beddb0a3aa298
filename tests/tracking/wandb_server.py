"""What of a server of Weights & Biases wandb needs to send runs: none of its storage, its users, or its pages.

It takes the lines of a history where they say that they belong, says how many it has, and of every artifact that it is there.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROJECT = {"id": "p", "name": "tideline", "entity": {"id": "e", "name": "team"}}


class Server:
    """Keeps what it is sent. refuses: whether it knows nobody; keeps: how many lines of a history it takes."""

    def __init__(self) -> None:
        self.histories: dict[str, dict[int, str]] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.artifacts: dict[tuple[str, str], dict[str, Any]] = {}
        self.states: dict[str, int] = {}
        self.bodies: list[str] = []
        self.paths: list[str] = []
        self.refuses, self.keeps, self.port = False, 10**9, 0

    def rows(self, run: str) -> list[dict[str, Any]]:
        return [json.loads(line) for _, line in sorted(self.histories.get(run, {}).items())]

    def answer(self, name: str, of: dict[str, Any]) -> dict[str, Any]:
        if name == "RunResumeStatus":
            return {"model": {**PROJECT, "bucket": self.bucket(of["name"])}}
        if name == "UpsertBucket":
            self.configs.setdefault(of["name"], {}).update(json.loads(of["config"] or "{}"))
            bucket = {"id": "b", "name": of["name"], "displayName": of["displayName"], "config": "{}", "project": PROJECT}
            return {"upsertBucket": {"bucket": {**bucket, "historyLineCount": 0}, "inserted": True}}
        if name == "CreateArtifact":
            asked = of["input"]
            self.artifacts[asked["artifactCollectionName"], asked["digest"]] = asked
            artifact = {"id": "a", "state": "COMMITTED", "artifactSequence": {"latestArtifact": None}}  # nothing to upload
            return {"createArtifact": {"artifact": artifact}}
        if name == "CreateRunFiles":
            files = [{"name": each, "uploadUrl": f"http://127.0.0.1:{self.port}/up/{each}"} for each in of["files"]]
            return {"createRunFiles": {"runID": of["run"], "uploadHeaders": [], "files": files}}
        if name == "ServerFeaturesQuery":
            return {"serverInfo": {"features": []}}
        if name == "Viewer":
            return {"viewer": {"id": "u", "entity": "team", "username": "u", "flags": "{}", "teams": {"edges": []}}}
        return {"project": None}

    def bucket(self, run: str) -> dict[str, Any] | None:
        """What is known of a run; none of one that was never sent."""
        if run not in self.configs:
            return None
        lines = [line for _, line in sorted(self.histories.get(run, {}).items())]
        config = {name: value for name, value in self.configs[run].items() if name != "_wandb"}
        known = {"id": "b", "name": run, "displayName": run, "tags": [], "notes": None, "wandbConfig": '{"t": {}}'}
        counts = {"historyLineCount": len(lines), "eventsLineCount": 0, "logLineCount": 0}
        tails = {"historyTail": json.dumps(lines[-1:]), "eventsTail": "[]", "summaryMetrics": "{}"}
        return {**known, **counts, **tails, "config": json.dumps(config)}

    def stream(self, run: str, sent: dict[str, Any]) -> None:
        chunk = sent.get("files", {}).get("wandb-history.jsonl", {"offset": 0, "content": []})
        for at, line in enumerate(chunk["content"], chunk["offset"]):
            if at < self.keeps:
                self.histories.setdefault(run, {})[at] = line
        if sent.get("complete"):
            self.states[run] = int(sent["exitcode"])


@contextlib.contextmanager
def wandb_server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode(errors="replace")
            state.bodies.append(f"{self.headers} {body}")
            state.paths.append(self.path)
            found: dict[str, Any] = {}
            if run := re.fullmatch(r"/files/[\w-]+/[\w-]+/([\w-]+)/file_stream", self.path):
                state.stream(run[1], json.loads(body))
            elif self.path == "/graphql":
                asked = json.loads(body)
                name = re.findall(r"(?:query|mutation) (\w+)", asked["query"])[0]
                found = {"data": state.answer(name, asked.get("variables") or {})}
            self.say(401 if state.refuses else 200, json.dumps(found).encode())

        def say(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = reply  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

        def handle(self) -> None:
            with contextlib.suppress(OSError):  # whoever asked may be gone
                super().handle()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
