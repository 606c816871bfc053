# 1-16: files and secrets.
home = facts["server_directory"]
server = facts["server"]
strong = facts["strong"]

attempt("01 read /etc/shadow", lambda: read("/etc/shadow"))


def passwd():
    text = read("/etc/passwd", 10000).decode()
    if strong:
        return "refused: only the made-up one" if text.count("\n") == 1 and text.startswith("sandbox:") else text
    return text


attempt("02 read the host's /etc/passwd", passwd)


def strangers(path):
    # What leads to the interpreter itself is there of need.
    names = [name for name in os.listdir(path) if not os.path.join(sys.prefix, "").startswith(os.path.join(path, name, "")) and not os.path.join(sys.base_prefix, "").startswith(os.path.join(path, name, ""))]
    return names if names else "absent: nothing but what leads to the interpreter"


for path in ("/root", "/home", "/run", "/var", "/tmp" if not strong else "/srv", "/proc" if not strong else "/sys"):
    attempt("03 list " + path, lambda: strangers(path))
for path in ("/root/.ssh/id_ed25519", "/home/user/.ssh/id_ed25519", "/run/canary", "/run/shadow", "/var/tmp/canary"):
    attempt("03 read " + path, lambda: read(path))
for name in ("loopwright.db", "loopwright.toml", "open.txt"):
    attempt("04 read the server's " + name, lambda: read(os.path.join(home, name)))
attempt("04 list the server's directory", lambda: os.listdir(home))
attempt("04 list the server's kept files", lambda: os.listdir(home + "/work/saved"))
attempt("04 list all working directories", lambda: os.listdir(home + "/work/run"))


def of_process(number, what):
    # In a process namespace the number is another process's or nobody's.
    def action():
        path = "/proc/%s/%s" % (number, what)
        if what in ("root", "cwd", "exe"):
            text = os.readlink(path).encode()
        elif what == "fd":
            text = str(os.listdir(path)).encode()
        elif what == "mem":
            os.close(os.open(path, os.O_RDONLY))
            text = b"opened"
        else:
            text = read(path, 100000)
        return text[:100]
    return action


for what in ("environ", "mem", "maps", "fd", "root", "cwd", "exe", "auxv"):
    attempt("05 the server's " + what, of_process(server, what))
    for number in (os.getppid(), 1):
        attempt("%s %s of process %s" % ("06" if what == "environ" else "07", what, "1" if number == 1 else "above"), of_process(number, what)) if "%s of process %s" % (what, "1" if number == 1 else "above") not in " ".join(found) else None


def environment():
    everything = repr(dict(os.environ)) + repr(read("/proc/self/environ", 100000) if os.path.exists("/proc/self/environ") else "")
    return "done" if facts["secret"] in everything or "LOOPWRIGHT" in everything else "absent: no secret in it"


attempt("08 the secret in the environment", environment)


def descriptors():
    mine = []
    for number in range(3, 1024):
        try:
            about = os.fstat(number)
        except OSError:
            continue
        mine.append((number, stat.S_IFMT(about.st_mode) == stat.S_IFSOCK, os.get_inheritable(number)))
    # The control socket, closed at exec; whatever else is there must be Python's own and not survive exec either.
    others = [one for one in mine if one[2] or (one[1] and one[0] != 3)]
    return others or "absent: none but the control socket, not inheritable"


attempt("09 inherited descriptors", descriptors)
program = "import os\nfor n in range(3, 1024):\n try:\n  os.fstat(n); print(n)\n except OSError: pass"
attempt("09 descriptors of a subprocess", lambda: subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True, close_fds=False).stdout or "absent: none")


def forked():
    def action():
        try:
            os.fstat(3)
        except OSError:
            return "absent: closed"
        return "open" if stat.S_ISSOCK(os.fstat(3).st_mode) else "absent: another file"
    return in_child(action)


attempt("09 the control socket in a fork", forked)
for path in ("/usr/canary", "/var/tmp/stray", "/etc/stray", "/stray", "/run/stray", "/root/stray", "/home/stray", sys.prefix + "/stray", home + "/stray"):
    attempt("10 create " + path, lambda: create(path))
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/proc/1/oom_score_adj", "/sys/kernel/mm/transparent_hugepage/enabled", "/etc/hosts", "/var/tmp/canary", "/run/canary", home + "/open.txt"):
    attempt("10 write to " + path, lambda: write_open(path))
if not strong:
    attempt("10 create /tmp/stray", lambda: create("/tmp/stray"))
    attempt("10 create /dev/shm/stray", lambda: create("/dev/shm/stray"))

for index, path in enumerate((home + "/open.txt", "/run/canary", "/var/tmp/canary")):
    attempt("11 hard link to " + path, lambda: os.link(path, "linked-%d" % index))


def through_link(path, name):
    os.symlink(path, name)
    try:
        return read(name)
    finally:
        os.unlink(name)


attempt("12 read through a symbolic link", lambda: through_link(home + "/open.txt", "outside"))
attempt("12 read through a link in /proc", lambda: read("/proc/%d/root%s/open.txt" % (server, home)))
attempt("12 read through /proc/self/root", lambda: read("/proc/self/root%s/open.txt" % home))

# 13: what these answer is of no interest; the test looks at the files.
for path in (home + "/loopwright.db", home + "/open.txt", "/run/canary", "/var/tmp/canary", "/root/.ssh/id_ed25519", home):
    for change in (
        lambda: os.chmod(path, 0o777),
        lambda: os.chmod(path, 0o777, follow_symlinks=False),
        lambda: os.utime(path, (1, 1)),
        lambda: os.utime(path, (1, 1), follow_symlinks=False),
        lambda: os.chown(path, os.getuid(), os.getgid()),
        lambda: os.lchown(path, os.getuid(), os.getgid()),
        lambda: os.setxattr(path, "user.canary", b"x"),
        lambda: os.truncate(path, 0),
        lambda: os.rename(path, path + "-moved"),
        lambda: os.unlink(path),
        lambda: os.link(path, path + "-linked"),
        lambda: call((268, 53), -100, path.encode(), 0o777),
        lambda: call(452, -100, path.encode(), 0o777, 0),
        lambda: call((280, 88), -100, path.encode(), None, 0),
        lambda: call((260, 54), -100, path.encode(), os.getuid(), os.getgid(), 0),
    ):
        try:
            change()
        except (OSError, NotImplementedError):
            pass
    # By a descriptor that opens nothing: O_PATH, then through its name in /proc.
    try:
        handle = os.open(path, os.O_PATH)
        for change in (lambda: os.fchmod(handle, 0o777), lambda: os.chmod("/proc/self/fd/%d" % handle, 0o777), lambda: os.utime("/proc/self/fd/%d" % handle, (1, 1)), lambda: call((91, 52), handle, 0o777), lambda: call(452, handle, b"", 0o777, 0x1000), lambda: call((280, 88), handle, b"", None, 0x1000), lambda: call((280, 88), handle, None, None, 0), lambda: call((260, 54), handle, b"", os.getuid(), os.getgid(), 0x1000), lambda: call((93, 55), handle, os.getuid(), os.getgid())):
            try:
                change()
            except OSError:
                pass
        os.close(handle)
    except OSError:
        pass

attempt("14 stat of the server's database", lambda: os.stat(home + "/loopwright.db").st_size)
attempt("14 stat of a key", lambda: os.stat("/root/.ssh/id_ed25519").st_size)


def mounts():
    text = read("/proc/self/mountinfo", 1000000).decode()
    # Of the interpreter's own trees the path is no secret: it is sys.prefix.
    named = [line.split()[3:5] for line in text.splitlines() if home in line or "/work/" in line and sys.prefix not in line and sys.base_prefix not in line]
    return named or "absent: no path of the server"


attempt("15 paths of the server in mountinfo", mounts)
for path in facts["others"]:
    attempt("16 another workspace's " + path, lambda: read(path))
attempt("16 stray files in /dev/shm", lambda: os.listdir("/dev/shm") or "absent: empty")
attempt("16 read /dev/shm/canary", lambda: read("/dev/shm/canary"))
attempt("16 read /tmp/canary", lambda: read("/tmp/canary"))
