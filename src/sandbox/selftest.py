# Run as a cell in a fresh interpreter at start-up: attempts what must fail, with arguments that do no harm otherwise.
# Prints one JSON object: "" for refused attempts, otherwise what happened.
def _selftest(facts):
    import ctypes, errno, json, os, platform, resource, socket, subprocess

    found = {}

    def refused(name, attempt):
        try:
            happened = attempt()
        except OSError as error:
            happened = ""
        except Exception as error:
            happened = "%s: %s" % (type(error).__name__, error)
        else:
            happened = "" if happened is None else str(happened)
        found[name] = happened

    def works(name, attempt):
        try:
            happened = attempt()
            found[name] = "" if happened is None else str(happened)
        except BaseException as error:
            found[name] = "%s: %s" % (type(error).__name__, error)

    libc = ctypes.CDLL(None, use_errno=True)
    x86 = platform.machine() == "x86_64"

    def call(number, *arguments):
        ctypes.set_errno(0)
        result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in arguments))
        code = ctypes.get_errno()
        if result == -1 and code in (errno.EPERM, errno.ENOSYS, errno.EACCES):
            return None
        return "returned %d (%s)" % (result, errno.errorcode.get(code, code))

    def read(path):
        with open(path, "rb") as file:
            file.read(1)
        return "readable"

    def write(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.close(descriptor)
        os.unlink(path)
        return "writable"

    def reach(family, kind, address):
        with socket.socket(family, kind) as peer:
            peer.settimeout(2)
            peer.connect(address)
            return "reachable"

    refused("user", lambda: "root" if 0 in (os.getuid(), os.geteuid()) else None)
    refused("secret_file", lambda: read(facts["secret"]))
    refused("shadow", lambda: read("/etc/shadow"))

    def homes():
        # Parents of the interpreter's own files may exist.
        strangers = []
        for home in ("/root", "/home"):
            known = {tree[len(home) + 1:].split("/")[0] for tree in facts["trees"] if tree.startswith(home + "/")}
            strangers += [name for name in os.listdir(home) if name not in known]
        return "%d entries listed" % len(strangers) if strangers else None

    refused("homes", homes)
    refused("system", lambda: write("/usr/.loopwright-selftest"))
    refused("var_tmp", lambda: write("/var/tmp/.loopwright-selftest"))
    host_proc = facts["host_proc"]
    if host_proc and facts["pid_namespace"]:
        try:
            host_proc = os.readlink("/proc/self/ns/pid") == facts["pid_namespace"]
        except OSError:
            pass
    refused("server_environ", lambda: read("/proc/%d/environ" % facts["pid"]) if host_proc else None)
    refused("server_signal", lambda: os.kill(facts["pid"], 0) or "may be signalled" if host_proc else None)
    if facts["network"] == "none":
        refused("tcp", lambda: reach(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", facts["port"])))
        refused("udp", lambda: reach(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 9)))
    elif not facts["pid_namespace"]:
        def name(family, kind, address):
            with socket.socket(family, kind) as service:
                service.bind(address)
                return "has a name"

        def listen():
            with socket.socket() as service:
                service.listen()
                return "listens"

        refused("bind_tcp", lambda: name(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)))
        refused("bind_udp", lambda: name(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)))
        refused("listen", listen)
    refused("packet", lambda: socket.socket(17, socket.SOCK_RAW, 0) and "opened")
    refused("abstract_socket", lambda: reach(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + facts["abstract"]))
    refused("path_socket", lambda: reach(socket.AF_UNIX, socket.SOCK_STREAM, facts["socket"]))
    numbers = {
        "unshare": (272, 97, (0,)),
        "mount": (165, 40, (0, 0, 0, 0, 0)),
        # PTRACE_ATTACH to no process; another request would stop this process if it is allowed.
        "ptrace": (101, 117, (16, 0, 0, 0)),
        "memfd_create": (319, 279, (0, 0)),
        "io_uring_setup": (425, 425, (0, 0)),
        "bpf": (321, 280, (0, 0, 0)),
        "keyctl": (250, 219, (0, 0, 0)),
        "perf_event_open": (298, 241, (0, 0, 0, 0, 0)),
        "userfaultfd": (323, 282, (0,)),
        "setns": (308, 268, (-1, 0)),
        "process_vm_readv": (310, 270, (0, 0, 0, 0, 0, 0)),
        "pidfd_open": (434, 434, (0, 0)),
        "shmget": (29, 194, (0, 0, 0)),
        "prlimit_other": (302, 261, (1, 7, 0, 0)),
        "chroot": (161, 51, (0,)),
    }
    for name, (on_x86, elsewhere, arguments) in numbers.items():
        refused(name, lambda: call(on_x86 if x86 else elsewhere, *arguments))
    if x86:
        # CLONE_NEWUSER; a resulting child ends at once.
        def clone():
            ctypes.set_errno(0)
            pid = libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)
            if pid == 0:
                os._exit(0)
            if pid > 0:
                os.waitpid(pid, 0)
                return "made a namespace"

        refused("clone_newuser", clone)

    def status():
        if not os.path.exists("/proc/self/status"):
            return None
        fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
        wrong = [
            name
            for name, wanted in (("CapEff", 0), ("CapPrm", 0), ("CapInh", 0), ("CapAmb", 0), ("NoNewPrivs", 1), ("Seccomp", 2))
            if int(fields[name].strip(), 16) != wanted
        ]
        return ", ".join(wrong) or None

    works("status", status)

    def descriptors():
        open_ones = []
        for number in range(4, 64):
            try:
                os.fstat(number)
            except OSError:
                continue
            # Descriptors that the interpreter itself has opened do not survive exec.
            if os.get_inheritable(number):
                open_ones.append(number)
        return "descriptors %s are open" % open_ones if open_ones else None

    works("descriptors", descriptors)

    def secrets():
        known = {"PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "MPLBACKEND", "MPLCONFIGDIR"}
        others = [name for name in os.environ if name not in known and not name.endswith("_NUM_THREADS")]
        return ", ".join(others) or None

    works("environment", secrets)

    def limits():
        wrong = [
            name
            for name in ("RLIMIT_AS", "RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_NOFILE")
            if resource.getrlimit(getattr(resource, name))[1] == resource.RLIM_INFINITY
        ]
        return ", ".join(wrong) or None

    works("limits", limits)

    def files():
        with open("selftest.txt", "w") as file:
            file.write("written")
        with open("selftest.txt") as file:
            if file.read() != "written":
                return "lost"
        os.unlink("selftest.txt")
        with open(os.path.join(os.environ["TMPDIR"], "selftest"), "w") as file:
            file.write("x")
        os.unlink(file.name)

    works("working_directory", files)
    works("subprocess", lambda: subprocess.run(["/bin/sh", "-c", "exit 0"], check=True) and None)
    print(json.dumps(found))
