# 35-39: other processes.
server = facts["server"]


def unheard(action):
    """For signals to many: the system says yes even if none of them may be sent. The test looks at the processes."""
    try:
        action()
    except OSError as error:
        return "refused: " + errno.errorcode[error.errno]
    return "absent: whoever it was meant for is looked at"


for name, number in (("server", server), ("parent", os.getppid()), ("init", 1)):
    for number_of_signal in (0, signal.SIGSTOP, signal.SIGKILL):
        attempt("35 signal %d to the %s" % (number_of_signal, name), lambda: os.kill(number, number_of_signal))
    attempt("35 signal to the %s's thread" % name, lambda: call((234, 131), number, number, 0))
    attempt("35 signal to the %s's group" % name, lambda: unheard(lambda: os.killpg(number, 0 if number == os.getpgid(0) else signal.SIGKILL)))
    attempt("35 queued signal to the %s" % name, lambda: call((129, 138), number, 0, ctypes.create_string_buffer(128)))
attempt("35 signal to all", lambda: unheard(lambda: os.kill(-1, signal.SIGKILL)))


def owner(number):
    import fcntl
    ours, theirs = os.pipe()
    fcntl.fcntl(ours, fcntl.F_SETSIG, signal.SIGKILL) if hasattr(fcntl, "F_SETSIG") else None
    fcntl.fcntl(ours, fcntl.F_SETOWN, number)
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(theirs, b"x")
    os.close(ours), os.close(theirs)


attempt("35 signal to the server by a pipe", lambda: unheard(lambda: owner(server)))
for name, request in (("TRACEME", 0), ("ATTACH", 16), ("SEIZE", 0x4206), ("PEEKTEXT", 1)):
    attempt("36 ptrace %s" % name, lambda: call((101, 117), request, server, 0, 0))
local = ctypes.create_string_buffer(16)
vector = (ctypes.c_size_t * 2)(ctypes.addressof(local), 16)
attempt("37 process_vm_readv", lambda: call((310, 270), server, vector, 1, vector, 1, 0))
attempt("37 process_vm_writev", lambda: call((311, 271), server, vector, 1, vector, 1, 0))
attempt("37 pidfd_open of the server", lambda: call(434, server, 0))
attempt("37 pidfd_open of itself", lambda: call(434, os.getpid(), 0))
attempt("37 pidfd_getfd", lambda: call(438, 3, 0, 0))
attempt("37 pidfd_send_signal", lambda: call(424, 3, 0, 0, 0))
attempt("37 kcmp", lambda: call((312, 272), server, os.getpid(), 0, 0, 0))
attempt("37 process_madvise", lambda: call(440, 3, vector, 1, 4, 0))
attempt("37 process_mrelease", lambda: call(448, 3, 0))
few = (ctypes.c_ulong * 2)(16, 16)
mask = ctypes.c_ulong(1)
for name, number in (("server", server), ("parent", os.getppid()), ("init", 1)):
    attempt("38 prlimit of the %s" % name, lambda: call((302, 261), number, 7, few, None))
    attempt("38 limits read of the %s" % name, lambda: call((302, 261), number, 7, None, (ctypes.c_ulong * 2)()))
    attempt("38 sched_setaffinity of the %s" % name, lambda: call((203, 122), number, 8, ctypes.byref(mask)))
    attempt("38 setpriority of the %s" % name, lambda: os.setpriority(os.PRIO_PROCESS, number, 19))
    attempt("38 ioprio_set of the %s" % name, lambda: call((251, 30), 1, number, 3 << 13))
    attempt("38 sched_setscheduler of the %s" % name, lambda: call((144, 119), number, 5, ctypes.byref(ctypes.c_int(0))))
    attempt("38 sched_setattr of the %s" % name, lambda: call((314, 274), number, ctypes.create_string_buffer(64), 0))
    attempt("38 setpgid of the %s" % name, lambda: os.setpgid(number, number))
attempt("38 setpriority of the user", lambda: os.setpriority(os.PRIO_USER, 0, 19))
attempt("38 setpriority of the group", lambda: os.setpriority(os.PRIO_PGRP, os.getpgid(0), 19))


def visible():
    others = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return others or "absent: only its own"


attempt("39 processes in /proc", visible)
