"""The steps of the README, typed as they stand: its commands, its webhook and its client, in an empty directory with an
empty home. The README names fixed ports, so the steps run in a network namespace of their own. A scripted model server
stands for the reader's. The binary is given; what compiles it is not run.

    steps.py BINARY
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
# Seconds for a command to say what is waited for, to end by itself, and to stop.
SAYS, ENDS, STOPS = 60, 60, 40
BUILD = "cargo run --profile quick -- "
INSIDE = "--inside"


class Model(BaseHTTPRequestHandler):
    """A model server whose model calls the first tool that it is offered, and then says what the tool said."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        assert self.path == "/v1/models", self.path
        self.answer({"object": "list", "data": [{"id": "stand-in", "object": "model", "owned_by": "tests"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert body["model"] == "stand-in", body["model"]
        last = body["messages"][-1]
        if last["role"] == "tool":
            message, finish = {"role": "assistant", "content": f"The tool says: {last['content']}"}, "stop"
        else:
            function = {"name": body["tools"][0]["function"]["name"], "arguments": '{"city": "Oslo"}'}
            call = {"index": 0, "id": "call-1", "type": "function", "function": function}
            message, finish = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        head = {"id": "c", "created": 1, "model": "stand-in"}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            self.answer({**head, "object": "chat.completion", "choices": [choice]})
            return
        chunks = [
            {**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        ]
        lines = [json.dumps(chunk) for chunk in chunks] + ["[DONE]"]
        self.send("text/event-stream", "".join(f"data: {line}\n\n" for line in lines))

    def answer(self, value):
        self.send("application/json", json.dumps(value))

    def send(self, kind, text):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format, *args):
        pass


class Shell:
    """A command that goes on, with what it has said so far."""

    def __init__(self, command, place):
        self.command, self.text, self.news = command, "", threading.Condition()
        self.process = subprocess.Popen(
            ["bash", "-c", command], cwd=place.folder, env=place.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.news:
                self.text += line
                self.news.notify_all()

    def wait_for(self, words):
        with self.news:
            if not self.news.wait_for(lambda: words in self.text, SAYS):
                sys.exit(f"`{self.command}` did not say {words!r} but:\n{self.text}")

    def stop(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(STOPS)


class Place:
    """An empty directory, and an environment with nothing but the path in it."""

    def __init__(self, folder, binary):
        self.folder = Path(folder) / "work"
        home, tools = Path(folder) / "home", Path(folder) / "bin"
        for one in (self.folder, home, tools):
            one.mkdir()
        (tools / "loopwright").symlink_to(binary)
        # The SDK is that of this interpreter.
        python = Path(sys.executable).parent
        self.environment = {"HOME": str(home), "PATH": f"{tools}:{python}:{os.environ['PATH']}"}

    @contextmanager
    def running(self, command, ready):
        shell = Shell(command, self)
        try:
            shell.wait_for(ready)
            yield shell
        except SystemExit:
            print(f"`{command}` said:\n{shell.text}", file=sys.stderr)
            raise
        finally:
            shell.stop()

    def run(self, command):
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=ENDS,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"`{command}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout


def expect(text, *parts):
    missing = [part for part in parts if part not in text]
    if missing:
        sys.exit(f"{missing} are not in:\n{text}")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def main(binary):
    text = README.read_text()
    demo, ask, serve, search = blocks(text, "sh")
    webhook, client = blocks(text, "python")
    with tempfile.TemporaryDirectory() as folder:
        place = Place(folder, binary)
        expect(demo, BUILD)
        with place.running(demo.replace(BUILD, "loopwright "), "Still serving at "):
            expect(place.run(ask), "event: agentic_tool_call_progress", '"phase":"complete"', '"stop_reason":"completed"', "[DONE]")
            whole = json.loads(place.run(ask.replace('"stream": true', '"stream": false')))
            assert [call["name"] for call in whole["agentic_tool_calls"]] == ["get_weather"], whole

        (place.folder / "webhook.py").write_text(webhook)
        (place.folder / "client.py").write_text(client)
        server = ThreadingHTTPServer(("127.0.0.1", 8000), Model)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with place.running(serve, "loopwright ready on http://127.0.0.1:8080"):
            expect(place.run("python3 client.py"), "The tool says: ", "Oslo", "clear")
        for line in search.splitlines():
            with place.running(line, "loopwright ready on http://127.0.0.1:8080"):
                tools = urllib.request.urlopen("http://127.0.0.1:8080/v1/agent/tools", timeout=ENDS).read().decode()
                expect(tools, '"web_search"', '"read_page"')
        for command in re.findall(r"^\| `(loopwright (?:openapi|check-config))` \|", text, re.MULTILINE):
            place.run(f"LOOPWRIGHT_UPSTREAM=http://localhost:8000/v1 {command}")
        for subject in re.findall(r"\(src/server/commands/manual/([a-z]+)\.md\)", text):
            expect(place.run(f"loopwright manual {subject}"), "# ")
    print("the steps of the README work as they stand")


if __name__ == "__main__":
    if sys.argv[1] != INSIDE:
        binary = str(Path(sys.argv[1]).resolve())
        inside = 'ip link set lo up && exec "$@"'
        os.execvp("unshare", [
            "unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
            "sh", "-c", inside, "sh", sys.executable, __file__, INSIDE, binary,
        ])  # fmt: skip
    main(sys.argv[2])
