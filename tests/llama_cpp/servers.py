"""A tool server, a client, and processes that say where they listen: what tests with a real model server stand on."""

import json
import os
import re
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

# Seconds for a server to come up and to stop, and for an answer.
READY_WAIT, STOP_WAIT, ANSWER_WAIT = 60, 20, 60


class Webhook(BaseHTTPRequestHandler):
    """Runs every tool, and keeps what it was called with."""

    protocol_version = "HTTP/1.1"
    calls = []

    def do_POST(self):
        self.calls.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        body = b'{"content": {"celsius": -3}}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


@dataclass(frozen=True)
class Loopwright:
    url: str
    calls: list
    """What the tool server was called with, in order."""

    def post(self, body):
        request = urllib.request.Request(
            f"{self.url}/v1/chat/completions",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        # Not through a proxy of the machine: everything is on loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            return opener.open(request, timeout=ANSWER_WAIT)
        except urllib.error.HTTPError as error:
            pytest.fail(f"status {error.code}: {error.read().decode()}")

    def complete(self, body):
        """A whole answer."""
        with self.post(body) as answer:
            return json.load(answer)

    def stream(self, body):
        """The text of a streamed answer, and the extension of its finish chunk."""
        text, finish = "", None
        with self.post({**body, "stream": True}) as answer:
            data = [line[6:].strip() for line in answer if line.startswith(b"data: ")]
        assert data.pop() == b"[DONE]"
        for chunk in map(json.loads, data):
            assert "error" not in chunk, chunk
            (choice,) = chunk["choices"]
            text += choice["delta"].get("content") or ""
            if choice["finish_reason"]:
                finish = chunk
        return text, finish

    def ask(self, body, streamed):
        """The text and the extension of an answer, in the one form or the other."""
        if streamed:
            text, last = self.stream(body)
        else:
            last = self.complete(body)
            text = last["choices"][0]["message"]["content"]
        return text, last.get("agent")


class Process:
    """A server that says where it listens."""

    def __init__(self, command, pattern, log, **more):
        self.log = log.open("w")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more
        )
        self.url = None
        found = threading.Event()

        def read():
            for line in self.process.stdout:
                self.log.write(line)
                self.log.flush()
                address = re.search(pattern, line)
                if address and not found.is_set():
                    self.url = address[1]
                    found.set()
            found.set()

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        if not found.wait(READY_WAIT) or not self.url:
            self.stop()
            pytest.fail(f"{command[0]} did not become ready; it said:\n{log.read_text()}")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(STOP_WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.reader.join(STOP_WAIT)
        self.log.close()


def free_port():
    """A port that was free a moment ago, for servers that cannot choose one of their own and say so."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def loopwright(work, arguments):
    """Loopwright before a tool server."""
    webhook = ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    threading.Thread(target=webhook.serve_forever, daemon=True).start()
    hook = f"http://127.0.0.1:{webhook.server_address[1]}"
    command = [os.environ["LOOPWRIGHT_BIN"], "serve", "--listen", "127.0.0.1:0", *arguments]
    environment = {"PATH": os.environ["PATH"], "NO_PROXY": "*", "LOOPWRIGHT_TOOL_DISPATCH_URL": hook}
    environment["LOOPWRIGHT_DISPATCH_TOOLS"] = "get_weather"
    server = Process(command, r"ready on (http://[0-9.:]+)", work / "server.log", cwd=work, env=environment)
    try:
        yield Loopwright(server.url, Webhook.calls)
    finally:
        server.stop()
        webhook.shutdown()
