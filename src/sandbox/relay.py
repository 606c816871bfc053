"""The relay between loopwright and an interpreter that an operator's command isolates: one stream in each direction.

Started as `command… python3 -I -B -u -c <this text> '<options>' <worker.py>`. Starts the interpreter with a socket of its
own and pipes for its output, as loopwright's launcher does, and forwards what it receives as frames (a length, a
kind, a payload) on descriptor 1; requests arrive on descriptor 0. Code that breaks its interpreter does not break this
process, so the working files stay accessible. It ends, with everything it started, when descriptor 0 is closed.
"""

import errno
import json
import os
import select
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time

PROTOCOL = 1
MIB = 1024 * 1024
MAX_FRAME = 8 * MIB + 64 * 1024
PIECE = 64 * 1024
# Most bytes that are buffered for a server that does not read; then the code has to wait.
HELD = 256 * 1024
MAX_LISTING = 4 * MIB
MAX_CONTENT = MIB
# Most output that is read at a time before other events are handled; more than a pipe holds.
AT_ONCE = 2 * MIB
ROUNDS = 50
CONTROL = 3
# The path that models know; used if it is a mount, which nobody else uses.
DATA = "/mnt/data"
CACHES = (b"__pycache__", b"node_modules", b".ipynb_checkpoints")
REMADE = (b"__pycache__", b".ipynb_checkpoints")
PROBLEMS = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.ELOOP: "link",
    errno.EACCES: "access",
    errno.EPERM: "access",
    errno.ENXIO: "special",
    errno.ENAMETOOLONG: "long",
    errno.EEXIST: "exists",
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
}


class Problem(Exception):
    pass


# --- Working files --------------------------------------------------------------------------------------------------


def listing(root, depth, entries, everything):
    """All files, one level after another; with `everything` also directories and hidden files."""
    found, odd, special, complete, size = [], 0, 0, True, 0
    waiting = [(b"", 1)]
    while waiting:
        path, level = waiting.pop(0)
        try:
            scan = os.scandir(os.path.join(root, path))
        except OSError:
            complete = False
            continue
        with scan:
            for entry in scan:
                name = os.path.join(path, entry.name)
                hidden = entry.name in REMADE if everything else entry.name[:1] == b"." or entry.name in CACHES
                if entries <= 0 or size > MAX_LISTING:
                    complete = False
                    break
                entries -= 1
                if hidden:
                    continue
                try:
                    info = entry.stat(follow_symlinks=False)
                    text = name.decode()
                except UnicodeDecodeError:
                    odd += 1
                    continue
                except OSError:
                    complete = False
                    continue
                directory = stat.S_ISDIR(info.st_mode)
                if directory and level < depth:
                    waiting.append((name, level + 1))
                elif directory:
                    complete = False
                elif not stat.S_ISREG(info.st_mode):
                    special += 1
                    continue
                if not directory or everything:
                    times = [*divmod(info.st_mtime_ns, 10**9), *divmod(info.st_ctime_ns, 10**9)]
                    size += 6 * len(name) + 100
                    found.append([text, directory, info.st_size, info.st_ino, times])
    answer = {"files": found, "odd_names": odd, "special": special, "complete": complete}
    return {}, json.dumps(answer, separators=(",", ":")).encode()


def content(path, offset, most):
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    try:
        info = os.fstat(descriptor)
        if stat.S_ISDIR(info.st_mode):
            raise Problem("directory")
        if not stat.S_ISREG(info.st_mode):
            raise Problem("special")
        data = os.pread(descriptor, min(most, MAX_CONTENT), offset)
        return {"size": info.st_size, "stored": info.st_blocks * 512}, data
    finally:
        os.close(descriptor)


def put(path, offset, directory, data):
    if directory:
        os.makedirs(path, 0o700, exist_ok=True)
        return {}, b""
    new = os.O_CREAT | os.O_EXCL if offset == 0 else 0
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | new, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            done = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[done:], offset + done
    except OSError:
        if new:
            os.unlink(path)
        raise
    finally:
        os.close(descriptor)
    return {}, b""


# --- The interpreter ------------------------------------------------------------------------------------------------


def place_of_work():
    """Returns the directory for temporary files, and the working directory, which may be elsewhere."""
    base = tempfile.mkdtemp(prefix="loopwright-")
    data = DATA if os.path.ismount(DATA) and os.access(DATA, os.W_OK | os.X_OK) else os.path.join(base, "data")
    for path in (data, os.path.join(base, "tmp")):
        os.makedirs(path, 0o700, exist_ok=True)
    return base, data


def set_apart():
    """Makes this process adopt orphans of its descendants, and denies them access to its memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        import ctypes

        for option, value in ((36, 1), (4, 0)):  # PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except Exception:
        # Without it, the end of the command has to end orphans.
        pass


def children():
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def reap():
    """Reaps ended processes; returns their statuses by process id."""
    ended = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        # A child that is traced is also reported when it stops.
        if not os.WIFSTOPPED(status):
            ended[pid] = status


def start_interpreter(options, program, base, data):
    ours, theirs = socket.socketpair()
    pipes = os.pipe(), os.pipe()
    null = os.open("/dev/null", os.O_RDONLY)
    tmp = os.path.join(base, "tmp")
    environment = {
        **os.environ,
        **options["environment"],
        "HOME": tmp,
        "TMPDIR": tmp,
        "MPLCONFIGDIR": os.path.join(tmp, "matplotlib"),
    }
    inner = json.dumps({"fd": CONTROL, "preload": options["preload"], "workdir": data})
    python = sys.executable or "/proc/self/exe"
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.umask(0o077)
            os.chdir(data)
            for source, target in ((null, 0), (pipes[0][1], 1), (pipes[1][1], 2), (theirs.fileno(), CONTROL)):
                if source == target:
                    os.set_inheritable(target, True)
                else:
                    os.dup2(source, target)
            os.execve(python, [python, "-I", "-B", "-u", "-c", program, inner], environment)
        except BaseException as error:
            os.write(2, f"starting {python} failed: {error}\n".encode())
        finally:
            os._exit(127)
    theirs.close()
    for each in (null, pipes[0][1], pipes[1][1]):
        os.close(each)
    control = ours.detach()
    for each in (control, pipes[0][0], pipes[1][0]):
        os.set_blocking(each, False)
    return pid, control, pipes[0][0], pipes[1][0]


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except OSError:
        pass


def take(descriptor, most):
    """Reads without waiting: bytes, empty at the end of the stream, or None if there is nothing yet."""
    try:
        return os.read(descriptor, most)
    except BlockingIOError:
        return None
    except OSError:
        return b""


class Relay:
    def __init__(self, options, program):
        self.base, self.data = place_of_work()
        self.to_server, self.to_worker, self.orders = bytearray(), bytearray(), bytearray()
        self.woken, waker = os.pipe()
        for each in (0, 1, self.woken, waker):
            os.set_blocking(each, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.send(b"H", json.dumps({"protocol": PROTOCOL, "directory": self.data}).encode())
        started = start_interpreter(options, program, self.base, self.data)
        self.worker, self.control = started[:2]
        self.group = self.worker
        self.outputs = {started[2]: b"\1", started[3]: b"\2"}

    def send(self, kind, payload):
        self.to_server += (len(payload) + 1).to_bytes(4, "little") + kind + payload

    def run(self):
        while True:
            poll = select.poll()
            poll.register(0, select.POLLIN)
            poll.register(self.woken, select.POLLIN)
            if self.to_server:
                poll.register(1, select.POLLOUT)
            # A server that does not read blocks the code, and nothing else.
            reads = select.POLLIN if len(self.to_server) < HELD else 0
            if self.control is not None and (reads or self.to_worker):
                poll.register(self.control, reads | (select.POLLOUT if self.to_worker else 0))
            if reads:
                for each in self.outputs:
                    poll.register(each, reads)
            ready = dict(poll.poll())
            if 1 in ready:
                self.write_to_server()
            if 0 in ready:
                self.read_orders()
            if self.control in ready and ready[self.control] & select.POLLOUT:
                self.write_to_worker()
            if self.control in ready and reads and ready[self.control] & ~select.POLLOUT:
                self.read_control()
            for each in list(self.outputs):
                if each in ready:
                    self.read_output(each, PIECE)
            if self.woken in ready:
                take(self.woken, PIECE)
                self.look_at_children()

    def write_to_server(self):
        try:
            del self.to_server[: os.write(1, self.to_server[:PIECE])]
        except BlockingIOError:
            pass
        except OSError:
            self.leave()

    def write_to_worker(self):
        try:
            del self.to_worker[: os.write(self.control, self.to_worker[:PIECE])]
        except BlockingIOError:
            pass
        except OSError:
            self.to_worker.clear()

    def read_control(self):
        """Forwards the interpreter's frames; returns whether there were any."""
        data = take(self.control, PIECE)
        if data:
            # Output that was written before this frame is sent before it.
            for each in list(self.outputs):
                self.read_output(each, AT_ONCE)
            self.send(b"C", data)
        elif data == b"":
            os.close(self.control)
            self.control = None
            self.to_worker.clear()
            self.send(b"C", b"")
        return bool(data)

    def read_output(self, descriptor, most):
        while most > 0:
            data = take(descriptor, PIECE)
            if data is None:
                return
            if not data:
                os.close(descriptor)
                del self.outputs[descriptor]
                return
            most -= len(data)
            self.send(b"O", self.outputs[descriptor] + data)

    def look_at_children(self):
        status = reap().get(self.worker)
        if status is None:
            return
        self.worker = None
        self.end_all()
        for each in list(self.outputs):
            self.read_output(each, AT_ONCE)
        while self.control is not None and self.read_control():
            pass
        how = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"code": os.WEXITSTATUS(status)}
        self.send(b"Z", json.dumps(how).encode())

    def end_all(self):
        """Ends everything that was started here."""
        kill(-self.group)
        if os.getpid() == 1:
            # -1 addresses all other processes of the PID namespace, and nothing else.
            kill(-1)
            return
        for _ in range(ROUNDS):
            found = children()
            if not found:
                return
            for pid in found:
                kill(pid)
            time.sleep(0.002)
            # Their orphans are reparented to this process.
            reap()

    def read_orders(self):
        data = take(0, PIECE)
        if data is None:
            return
        if not data:
            self.leave()
        self.orders += data
        while len(self.orders) >= 5:
            size = int.from_bytes(self.orders[:4], "little")
            if not 1 <= size <= MAX_FRAME:
                self.leave()
            if len(self.orders) < 4 + size:
                return
            kind, payload = bytes(self.orders[4:5]), bytes(self.orders[5 : 4 + size])
            del self.orders[: 4 + size]
            self.order(kind, payload)

    def order(self, kind, payload):
        if kind == b"C":
            if self.control is not None:
                self.to_worker += payload
        elif kind in (b"S", b"K"):
            if self.worker is not None:
                kill(self.worker, signal.SIGINT if kind == b"S" else signal.SIGKILL)
        elif kind == b"F":
            size = int.from_bytes(payload[:2], "little")
            self.answer(json.loads(payload[2 : 2 + size]), payload[2 + size :])

    def answer(self, order, data):
        """Executes a file request."""
        path = os.path.join(os.fsencode(self.data), order.get("name", "").encode())
        head, body = {}, b""
        try:
            if order["what"] == "list":
                found = listing(os.fsencode(self.data), order["depth"], order["entries"], order["everything"])
            elif order["what"] == "get":
                found = content(path, order["offset"], order["most"])
            else:
                found = put(path, order["offset"], order["directory"], data)
            head, body = found
        except Problem as problem:
            head = {"problem": str(problem)}
        except OSError as error:
            head = {"problem": PROBLEMS.get(error.errno, "failed")}
        except Exception:
            head = {"problem": "failed"}
        head = json.dumps({"id": order["id"], **head}).encode()
        self.send(b"F", len(head).to_bytes(2, "little") + head + body)

    def leave(self):
        self.end_all()
        shutil.rmtree(self.base, ignore_errors=True)
        os._exit(0)


def main():
    set_apart()
    relay = Relay(json.loads(sys.argv[1]), sys.argv[2])
    try:
        relay.run()
    except BaseException as error:
        os.write(2, f"loopwright: {type(error).__name__}: {error}\n".encode())
    relay.leave()


main()
