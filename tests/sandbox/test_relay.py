"""The process between loopwright and an interpreter that a command of the operator's isolates."""

import json
import os
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from conftest import PATIENCE, PYTHON, WORKER

RELAY = WORKER.with_name("relay.py")


class Relay:
    def __init__(self, folder, program=None, relay=None):
        self.folder = folder
        options = {"preload": [], "environment": {"OMP_NUM_THREADS": "1"}}
        self.process = subprocess.Popen(
            [PYTHON, "-I", "-B", "-u", "-c", relay or RELAY.read_text(), json.dumps(options)]
            + [WORKER.read_text() if program is None else program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "TMPDIR": str(folder)},
            bufsize=0,
        )
        self.control = b""
        self.outputs = {1: b"", 2: b""}
        self.asked = 0
        hello = self.frame()
        assert hello[0] == b"H"
        self.directory = Path(json.loads(hello[1])["directory"])

    def send(self, kind, payload=b""):
        data = memoryview(struct.pack("<I", len(payload) + 1) + kind + payload)
        while data:
            data = data[self.process.stdin.write(data) :]

    def read(self, size):
        data = b""
        while len(data) < size:
            piece = self.process.stdout.read(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def frame(self):
        size = int.from_bytes(self.read(4), "little")
        data = self.read(size)
        return data[:1], data[1:]

    def until(self, wanted):
        """Takes frames in up to one of this kind, and gives what is in it."""
        while True:
            kind, payload = self.frame()
            if kind == b"C":
                self.control += payload
            elif kind == b"O":
                self.outputs[payload[0]] += payload[1:]
            if kind == wanted:
                return payload

    def inner(self):
        """The next frame of the interpreter."""
        while len(self.control) < 4 or len(self.control) < 4 + int.from_bytes(self.control[:4], "little"):
            assert self.until(b"C"), "the control socket was closed"
        size = int.from_bytes(self.control[:4], "little")
        data, self.control = self.control[4 : 4 + size], self.control[4 + size :]
        return data[:1], json.loads(data[1:])

    def start(self, code):
        data = json.dumps({"id": 1, "code": code}).encode()
        frame = struct.pack("<I", len(data) + 1) + b"E" + data
        for at in range(0, len(frame), 7):
            self.send(b"C", frame[at : at + 7])

    def run(self, code):
        """Runs a cell; gives its frames by kind."""
        self.start(code)
        frames = {}
        while b"D" not in frames:
            kind, head = self.inner()
            frames[kind] = head
        return frames

    def wait_for_output(self, text):
        while text not in self.outputs[1]:
            self.until(b"O")

    def ask(self, what, data=b"", **order):
        self.asked += 1
        head = json.dumps({"id": self.asked, "what": what, **order}).encode()
        self.send(b"F", struct.pack("<H", len(head)) + head + data)
        payload = self.until(b"F")
        size = int.from_bytes(payload[:2], "little")
        head = json.loads(payload[2 : 2 + size])
        assert head.pop("id") == self.asked
        return head, payload[2 + size :]

    def names(self, **bounds):
        _, body = self.ask("list", **{"depth": 4, "entries": 5000, "everything": False, **bounds})
        listing = json.loads(body)
        return sorted(name for name, *_ in listing.pop("files")), listing

    def end(self):
        """Closes stdin and waits; nothing may be left."""
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0
        assert list(self.folder.iterdir()) == []


@pytest.fixture
def relay(tmp_path):
    relays = []

    def start(**options):
        relays.append(Relay(tmp_path, **options))
        return relays[-1]

    yield start
    for each in relays:
        each.process.kill()
        each.process.wait()
        for pipe in (each.process.stdin, each.process.stdout, each.process.stderr):
            pipe.close()


@pytest.fixture
def ready(relay):
    started = relay()
    assert started.inner()[0] == b"R"
    return started


def test_a_cell_and_its_output_in_order(ready):
    frames = ready.run("import os\nprint('one')\nos.system('echo two; echo three >&2')\nos.getcwd()")
    # All of it came before the end of the call did.
    assert ready.outputs == {1: b"one\ntwo\n", 2: b"three\n"}
    assert frames[b"V"]["text"] == repr(str(ready.directory))
    assert "'1'" in ready.run("os.environ['OMP_NUM_THREADS']")[b"V"]["text"]
    ready.end()


def test_much_output_comes_whole(ready):
    ready.run("import os\nfor _ in range(100): os.write(1, b'x' * 50_000)")
    assert len(ready.outputs[1]) == 5_000_000
    ready.end()


def test_a_server_that_does_not_read_holds_the_code_up_and_is_still_heard(ready):
    ready.start("import os\nprint('begun', flush=True)\nwhile True: os.write(1, b'x' * 65536)")
    ready.wait_for_output(b"begun")
    ready.send(b"K")
    assert json.loads(ready.until(b"Z")) == {"signal": 9}
    # What was held when it ended, and not what it would have written since.
    assert len(ready.outputs[1]) < 8 << 20
    ready.end()


def test_an_interrupt(ready):
    ready.start("import time\nprint('begun', flush=True)\ntime.sleep(600)")
    ready.wait_for_output(b"begun")
    ready.send(b"S")
    assert ready.inner()[1]["name"] == "KeyboardInterrupt"
    assert ready.inner()[0] == b"D"
    # Between calls it means nothing.
    ready.send(b"S")
    assert ready.run("1 + 1")[b"V"]["text"] == "2"
    ready.end()


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("os._exit(3)", {"code": 3}),
        ("os.kill(os.getpid(), 9)", {"signal": 9}),
        ("os.abort()", {"signal": int(signal.SIGABRT)}),
    ],
)
def test_an_end_is_told_after_all_output_and_files_outlive_it(ready, code, how):
    ready.start(f"import os\nopen('kept', 'w').write('kept')\nprint('last', flush=True)\n{code}")
    assert json.loads(ready.until(b"Z")) == how
    assert ready.outputs[1] == b"last\n"
    assert ready.ask("get", name="kept", offset=0, most=9)[1] == b"kept"
    # Nobody is there any more to be told.
    ready.send(b"S")
    ready.send(b"K")
    ready.send(b"C", b"lost")
    assert ready.names()[0] == ["kept"]
    ready.end()


def test_code_that_is_stopped_has_not_ended(ready):
    # PTRACE_TRACEME: from now on the relay hears of every signal, and the code stops at it.
    code = "import ctypes, os\nctypes.CDLL(None).ptrace(0, 0, 0, 0)\nprint('begun', flush=True)\nos.kill(os.getpid(), 10)"
    ready.start(code)
    ready.wait_for_output(b"begun")
    assert ready.names()[0] == []
    ready.send(b"K")
    assert json.loads(ready.until(b"Z")) == {"signal": 9}
    ready.end()


def test_what_the_code_started_ends_with_it(ready):
    code = "import subprocess\nprint(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True)"
    ready.run(code + "\nsubprocess.Popen(['sh', '-c', 'setsid sleep 600 & echo $!']).wait()")
    pids = [int(line) for line in ready.outputs[1].split()]
    assert len(pids) == 2 and all(Path(f"/proc/{pid}").exists() for pid in pids)
    ready.send(b"K")
    ready.until(b"Z")
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    ready.end()


def test_what_the_code_started_ends_with_stdin(ready):
    ready.run("import subprocess\nprint(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True)")
    pid = int(ready.outputs[1])
    ready.end()
    assert not Path(f"/proc/{pid}").exists()


def test_files_are_put_and_got_in_pieces(ready):
    content = bytes(range(256)) * 5000
    for offset in range(0, len(content), 1 << 20):
        put = ready.ask("put", content[offset : offset + (1 << 20)], name="a b.bin", offset=offset, directory=False)
        assert put == ({}, b"")
    head, body = ready.ask("get", name="a b.bin", offset=1_000_000, most=1 << 30)
    assert (head["size"], body) == (len(content), content[1_000_000:])
    assert len(ready.ask("get", name="a b.bin", offset=0, most=1 << 30)[1]) == 1 << 20
    assert ready.ask("put", b"x", name="a b.bin", offset=0, directory=False)[0] == {"problem": "exists"}
    assert ready.ask("put", name="d/e", offset=0, directory=True)[0] == {}
    assert ready.ask("put", name="d/e/empty", offset=0, directory=False)[0] == {}
    assert ready.names()[0] == ["a b.bin", "d/e/empty"]
    assert ready.run("open('a b.bin', 'rb').read() == bytes(range(256)) * 5000")[b"V"]["text"] == "True"
    ready.end()


def test_what_is_no_file_is_named(ready):
    ready.run(
        "import os\nos.mkfifo('pipe')\nos.symlink('/etc/passwd', 'link')\nos.mkdir('folder')\nopen(b'\\xff', 'w').close()"
        "\nos.mkdir('__pycache__')\nopen('__pycache__/x', 'w').close()\nopen('.hidden', 'w').close()"
    )
    for name, problem in (
        ("pipe", "special"),
        ("link", "link"),
        ("folder", "directory"),
        ("none", "missing"),
        ("folder/none", "missing"),
        ("x" * 300, "long"),
    ):
        assert ready.ask("get", name=name, offset=0, most=1)[0] == {"problem": problem}, name
    assert ready.names() == ([], {"odd_names": 1, "special": 2, "complete": True})
    assert ready.names(everything=True)[0] == [".hidden", "folder"]
    ready.end()


def test_a_listing_is_bounded(ready):
    ready.run("import os\nos.makedirs('a/b/c/d/e')\nfor at in range(50): open(f'a/{at}', 'w').close()")
    names, rest = ready.names(entries=20)
    assert len(names) < 20 and not rest["complete"]
    names, rest = ready.names(depth=2)
    assert len(names) == 50 and not rest["complete"]
    ready.end()


def test_an_order_that_makes_no_sense_is_refused(ready):
    assert ready.ask("list")[0] == {"problem": "failed"}
    assert ready.ask("get", name="x\0y", offset=0, most=1)[0] == {"problem": "failed"}
    assert ready.ask("get", name="x", offset="y", most=1)[0]["problem"] in ("failed", "missing")
    ready.end()


def test_an_interpreter_that_does_not_start_is_told(relay):
    started = relay(program="import sys; print('no room', file=sys.stderr); sys.exit(4)")
    assert json.loads(started.until(b"Z")) == {"code": 4}
    assert started.outputs[2] == b"no room\n"
    started.end()


def test_a_length_out_of_bounds_ends_it(ready):
    ready.process.stdin.write(b"\xff" * 5)
    assert ready.process.wait(PATIENCE) == 0


def test_code_can_neither_read_nor_write_what_the_relay_has(ready):
    code = """
import os
found = []
for number in (0, 1):
    try:
        os.close(os.open(f'/proc/{os.getppid()}/fd/{number}', os.O_RDWR))
        found.append(number)
    except OSError:
        pass
found"""
    # Root is kept out by the isolation, or by nothing.
    if os.getuid() != 0:
        assert ready.run(code)[b"V"]["text"] == "[]"
    assert ready.run("[n for n in range(3, 64) if os.path.exists(f'/proc/self/fd/{n}') and os.get_inheritable(n)]")
    ready.end()


def test_a_mount_of_that_name_is_the_working_directory(relay, tmp_path):
    relay_text = RELAY.read_text()
    place = tmp_path.parent / f"{tmp_path.name}-mount"
    place.mkdir()
    # Nobody may mount here; what the system says of the place is put in its stead.
    changed = relay_text.replace('DATA = "/mnt/data"', f'DATA = {str(place)!r}\nos.path.ismount = lambda path: True')
    started = relay(relay=changed)
    assert started.directory == place
    started.inner()
    started.run("open('made', 'w').close()")
    assert [each.name for each in place.iterdir()] == ["made"]
    started.end()
