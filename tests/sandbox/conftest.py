"""Starts interpreters as loopwright does: frames on a socket pair, stdout and stderr through pipes.

LOOPWRIGHT_TEST_PYTHON    the interpreter, Python 3.9 or newer (default: the one that runs pytest)
LOOPWRIGHT_TEST_COMPLETE  1: what needs numpy, pandas, matplotlib or pillow fails without them, and is not skipped
"""

import importlib.util
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

WORKER = Path(__file__).resolve().parents[2] / "src/sandbox/worker.py"
PYTHON = os.environ.get("LOOPWRIGHT_TEST_PYTHON") or sys.executable
COMPLETE = os.environ.get("LOOPWRIGHT_TEST_COMPLETE") == "1"
PATIENCE = 60
CONTROL = 3


@dataclass
class Outcome:
    """All that one call said."""

    id: int = 0
    value: str = None
    type: str = None
    error: dict = None
    images: list = field(default_factory=list)
    frames: list = field(default_factory=list)
    mimes: list = field(default_factory=list)
    texts: list = field(default_factory=list)
    notices: list = field(default_factory=list)
    kinds: str = ""
    elapsed_ms: float = None
    stdout: str = ""
    stderr: str = ""


class Ended(Exception):
    """The interpreter closed the socket."""


class Worker:
    def __init__(self, directory, config, preload=(), wait=True):
        self.directory = directory
        ours, theirs = socket.socketpair()
        options = {"fd": CONTROL, "preload": list(preload), "workdir": str(directory)}

        def place_control():
            os.dup2(theirs.fileno(), CONTROL)
            os.set_inheritable(CONTROL, True)

        self.process = subprocess.Popen(
            [PYTHON, "-I", "-u", "-c", WORKER.read_text(), json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=directory,
            env={"PATH": os.environ["PATH"], "HOME": str(directory), "MPLBACKEND": "Agg", "MPLCONFIGDIR": str(config)},
            # Python opens nothing inheritable by itself, and the control descriptor has a number of its own.
            close_fds=False,
            preexec_fn=place_control,
        )
        theirs.close()
        self.socket = ours
        self.outputs = {self.process.stdout: b"", self.process.stderr: b""}
        self.buffer = b""
        self.last_id = 0
        self.selector = selectors.DefaultSelector()
        for each in (ours, *self.outputs):
            os.set_blocking(each.fileno(), False)
            self.selector.register(each, selectors.EVENT_READ)
        self.ready = None
        if wait:
            kind, payload = self.frame()
            assert kind == "R"
            self.ready = json.loads(payload)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.process.kill()
        self.process.wait()
        self.selector.close()
        self.socket.close()
        for each in self.outputs:
            each.close()

    # Sending.

    def send_raw(self, data):
        self.socket.setblocking(True)
        self.socket.sendall(data)
        self.socket.setblocking(False)

    def send(self, kind, payload):
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.send_raw(struct.pack("<IB", len(data) + 1, ord(kind)) + data)

    def start(self, code, **limits):
        """Sends a cell and does not wait for it."""
        self.last_id += 1
        request = {"id": self.last_id, "code": code, "max_value": 16384, "max_images": 10, "max_image_bytes": 4 << 20}
        self.send("E", {**request, **limits})

    def run(self, code, **limits):
        self.start(code, **limits)
        return self.outcome()

    def good(self, code, **limits):
        """Runs a cell that must not fail."""
        outcome = self.run(code, **limits)
        assert outcome.error is None, outcome.error["traceback"]
        return outcome

    def value(self, code, **limits):
        return self.good(code, **limits).value

    def reset(self):
        self.last_id += 1
        self.send("R", {"id": self.last_id})
        return self.outcome()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def interrupted(self, code, printed="running\n", **limits):
        """Runs a cell, interrupts it when it has printed this, and waits for its end."""
        self.start(code, **limits)
        self.wait_for_stdout(printed)
        self.interrupt()
        return self.outcome()

    # Receiving.

    def poll(self, deadline):
        """Takes what there is, waiting for at least something."""
        events = self.selector.select(max(deadline - time.monotonic(), 0))
        assert events, f"nothing came for {PATIENCE} s; stdout and stderr: {self.outputs.values()}"
        ended = False
        for key, _ in events:
            if key.fileobj is self.socket:
                try:
                    data = self.socket.recv(1 << 20)
                except ConnectionResetError:
                    data = b""
                self.buffer += data
                ended = not data
            else:
                data = os.read(key.fd, 1 << 20)
                self.outputs[key.fileobj] += data
                if not data:
                    self.selector.unregister(key.fileobj)
        if ended:
            self.process.wait(PATIENCE)
            self.drain()
            raise Ended(self.process.returncode, self.take_outputs())

    def drain(self):
        for each in self.outputs:
            while True:
                try:
                    data = os.read(each.fileno(), 1 << 20)
                except BlockingIOError:
                    break
                if not data:
                    break
                self.outputs[each] += data

    def take_outputs(self):
        texts = []
        for each, data in self.outputs.items():
            texts.append(data.decode())
            self.outputs[each] = b""
        return texts

    def frame(self):
        deadline = time.monotonic() + PATIENCE
        while True:
            if len(self.buffer) >= 5:
                size, kind = struct.unpack("<IB", self.buffer[:5])
                assert 1 <= size <= (8 << 20) + (64 << 10)
                if len(self.buffer) >= 4 + size:
                    payload = self.buffer[5 : 4 + size]
                    self.buffer = self.buffer[4 + size :]
                    return chr(kind), payload
            self.poll(deadline)

    def wait_for_stdout(self, text):
        deadline = time.monotonic() + PATIENCE
        while text.encode() not in self.outputs[self.process.stdout]:
            self.poll(deadline)

    def outcome(self):
        outcome = Outcome()
        while True:
            kind, payload = self.frame()
            outcome.kinds += kind
            if kind == "I":
                size = int.from_bytes(payload[:2], "little")
                head, data = json.loads(payload[2 : 2 + size]), payload[2 + size :]
                assert set(head) == {"id", "mime", "kind"}
                {"image": outcome.images, "frame": outcome.frames}[head["kind"]].append(data)
                outcome.mimes.append(head["mime"])
            else:
                head = json.loads(payload.decode())
            # What a strict decoder refuses.
            json.dumps(head, ensure_ascii=False).encode()
            assert head["id"] == self.last_id
            if kind == "T":
                outcome.texts.append(head["text"])
            elif kind == "V":
                assert outcome.value is None and set(head) == {"id", "text", "type"}
                outcome.value, outcome.type = head["text"], head["type"]
            elif kind == "X":
                assert outcome.error is None and set(head) == {"id", "name", "message", "traceback"}
                outcome.error = head
            elif kind == "N":
                outcome.notices.append(head["text"])
            elif kind == "D":
                outcome.id, outcome.elapsed_ms = head["id"], head["elapsed_ms"]
                self.drain()
                outcome.stdout, outcome.stderr = self.take_outputs()
                assert not self.buffer
                return outcome
            else:
                assert kind == "I", f"unknown frame {kind}"

    def end(self):
        """Waits until the interpreter has ended by itself; gives its status, stdout and stderr."""
        with pytest.raises(Ended) as ended:
            while True:
                self.frame()
        status, (stdout, stderr) = ended.value.args
        return status, stdout, stderr


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    """Where matplotlib keeps its font cache, which takes long to build."""
    return tmp_path_factory.mktemp("config")


@pytest.fixture
def start(tmp_path, config):
    workers = []

    def start(**options):
        workers.append(Worker(tmp_path, config, **options))
        return workers[-1]

    yield start
    for worker in workers:
        worker.__exit__()


@pytest.fixture
def worker(start):
    return start()


@pytest.fixture(scope="session")
def shared_worker(tmp_path_factory, config):
    with Worker(tmp_path_factory.mktemp("shared"), config) as worker:
        yield worker


@pytest.fixture
def shared(shared_worker):
    """An interpreter for tests that leave nothing behind but variables; saves the import of large packages."""
    shared_worker.reset()
    return shared_worker


def needs(*names):
    """Leaves a test out where a package is missing, unless everything has to be there."""
    found = subprocess.run(
        [PYTHON, "-I", "-c", f"import importlib.util as u, sys; sys.exit(not all(u.find_spec(n) for n in {names!r}))"]
    )
    return pytest.mark.skipif(found.returncode != 0 and not COMPLETE, reason=f"{PYTHON} lacks one of {names}")
