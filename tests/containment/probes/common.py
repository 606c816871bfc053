# What the probes have in common. Each notes under its number and name what came of an attempt:
# "refused: …" by the system, "absent: …" where there is nothing to attack, "done: …" if it worked.
# Anything else is a mistake in the probe and fails the test.
import ctypes, errno, json, os, platform, resource, signal, socket, stat, subprocess, sys, time

found = {}
libc = ctypes.CDLL(None, use_errno=True)
ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENXIO, errno.ENODEV}


def attempt(name, action):
    try:
        happened = action()
    except OSError as error:
        word = "absent" if error.errno in ABSENT else "refused"
        happened = "%s: %s" % (word, errno.errorcode.get(error.errno, error))
    except Exception as error:
        happened = "mistake: %s: %s" % (type(error).__name__, error)
    else:
        text = str(happened)
        happened = text if text.startswith(("refused", "absent")) else "done: " + text[:200]
    assert name not in found, name
    found[name] = happened


def read(path, size=200):
    with open(path, "rb") as file:
        return file.read(size)


def write_open(path):
    # Opened only: nothing is written even where it would be possible.
    os.close(os.open(path, os.O_WRONLY))
    return "could be opened for writing"


def create(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    return "could be created"


X86 = platform.machine() == "x86_64"


def call(number, *arguments):
    """A system call by number (x86-64, then the generic table of other machines); -1 where it does not exist."""
    if isinstance(number, tuple):
        number = number[0 if X86 else 1]
        if number < 0:
            return "absent: not on this machine"
    ctypes.set_errno(0)
    words = [a if isinstance(a, (bytes, ctypes._SimpleCData, ctypes.Array, type(None))) or hasattr(a, "_obj") else ctypes.c_long(a) for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    code = ctypes.get_errno()
    if result == -1 and code in (errno.EPERM, errno.ENOSYS, errno.EACCES, errno.ENOTSUP):
        return "refused: " + errno.errorcode[code]
    if result == -1 and code == errno.ESRCH:
        return "absent: ESRCH"
    # Any other error means that the call was let through and only its arguments were wrong.
    return "%d %s" % (result, errno.errorcode.get(code, code))


def in_child(action):
    """Runs an action in a forked child, for those that may end or change the process; its word through a pipe."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                text = str(action())
            except OSError as error:
                text = "refused: " + errno.errorcode.get(error.errno, str(error))
            os.write(theirs, text.encode()[:4000])
        finally:
            os._exit(0)
    os.close(theirs)
    parts = []
    while part := os.read(ours, 4096):
        parts.append(part)
    os.close(ours)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "refused: killed by %s" % signal.Signals(os.WTERMSIG(status)).name
    return b"".join(parts).decode() or "mistake: the child said nothing"
