# 42-53: privileges and the surface of the kernel. Arguments are wrong on purpose wherever a call that is let through
# would do something.
import fcntl, mmap

WRONG = 1  # An address that nothing is at.
for name, action in (
    ("setuid", lambda: os.setuid(0)), ("setgid", lambda: os.setgid(0)), ("setresuid", lambda: os.setresuid(0, 0, 0)),
    ("setresgid", lambda: os.setresgid(0, 0, 0)), ("setreuid", lambda: os.setreuid(0, 0)), ("seteuid", lambda: os.seteuid(0)),
    ("setgroups", lambda: os.setgroups([0])), ("setfsuid", lambda: call((122, 151), 0)), ("setuid to itself", lambda: os.setuid(os.getuid())),
):
    attempt("42 " + name, action)


def program(*arguments):
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=10)
    except FileNotFoundError:
        return "absent: not installed"
    return "refused: status %d" % done.returncode if done.returncode else done.stdout


attempt("43 su", lambda: program("su", "-c", "id -u"))
attempt("43 sudo", lambda: program("sudo", "-n", "id", "-u"))
attempt("43 mount", lambda: program("mount", "-t", "tmpfs", "none", os.getcwd()))
attempt("43 ping", lambda: program("ping", "-c1", "-W1", "127.0.0.1"))
attempt("43 unshare", lambda: program("unshare", "--user", "--map-root-user", "true"))
attempt("43 newuidmap", lambda: program("newuidmap", str(os.getpid()), "0", "0", "1"))
attempt("43 chsh", lambda: program("chsh", "-s", "/bin/sh"))
FLAGS = {"user": 0x10000000, "mount": 0x20000, "process": 0x20000000, "network": 0x40000000, "IPC": 0x8000000, "UTS": 0x4000000, "control group": 0x2000000, "time": 0x80}
for name, flag in FLAGS.items():
    attempt("44 unshare of %s" % name, lambda: call((272, 97), flag))
    attempt("44 unshare of user and %s" % name, lambda: call((272, 97), flag | 0x10000000))

    def clone(flags=flag):
        # Time namespaces are made by clone3 only: here the flag is part of the number of a signal.
        ctypes.set_errno(0)
        child = libc.syscall(56 if X86 else 220, flags | 17, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        if child > 0:
            os.waitpid(child, 0)
            return "made a child"
        return "refused: " + errno.errorcode[ctypes.get_errno()]

    attempt("44 clone with %s" % name, clone)

    def clone3(flags=flag):
        arguments = (ctypes.c_uint64 * 11)(flags, 0, 0, 0, 17)
        ctypes.set_errno(0)
        child = libc.syscall(435, arguments, 88)
        if child == 0:
            os._exit(0)
        if child > 0:
            os.waitpid(child, 0)
            return "made a child"
        return "refused: " + errno.errorcode[ctypes.get_errno()]

    attempt("44 clone3 with %s" % name, clone3)
attempt("44 setns", lambda: call((308, 268), 3, 0))
CALLS = {
    "45": {
        "mount": (165, 40, WRONG, WRONG, WRONG, 0, 0), "remount": (165, 40, 0, b"/usr", 0, 0x1020, 0), "umount2": (166, 39, b"/usr", 2),
        "pivot_root": (155, 41, WRONG, WRONG), "chroot": (161, 51, b"."), "fsopen": (430, 430, b"tmpfs", 0), "fsconfig": (431, 431, -1, 0, 0, 0, 0),
        "fsmount": (432, 432, -1, 0, 0), "fspick": (433, 433, -100, b"/", 0), "open_tree": (428, 428, -100, b"/", 1),
        "move_mount": (429, 429, -1, WRONG, -1, WRONG, 0), "mount_setattr": (442, 442, -1, WRONG, 0, 0, 0),
        "statmount": (457, 457, WRONG, 0, 0, 0), "listmount": (458, 458, WRONG, 0, 0, 0), "open_tree_attr": (467, 467, -1, WRONG, 0, 0, 0),
    },
    "46": {
        "bpf": (321, 280, 0, WRONG, 0), "perf_event_open": (298, 241, WRONG, 0, 0, 0, 0), "userfaultfd": (323, 282, 0),
        "keyctl": (250, 219, 0, -3, 0), "add_key": (248, 217, WRONG, WRONG, 0, 0, 0), "request_key": (249, 218, WRONG, WRONG, 0, 0),
        "kexec_load": (246, 104, 0, 0, 0, 0), "kexec_file_load": (320, 294, -1, -1, 0, 0, 0), "init_module": (175, 105, 0, 0, WRONG),
        "finit_module": (313, 273, -1, WRONG, 0), "delete_module": (176, 106, WRONG, 0), "reboot": (169, 142, 0, 0, 0, 0),
        "swapon": (167, 224, WRONG, 0), "swapoff": (168, 225, WRONG), "quotactl": (179, 60, 0, WRONG, 0, 0), "quotactl_fd": (443, 443, -1, 0, 0, 0),
        "open_by_handle_at": (304, 265, -1, WRONG, 0), "name_to_handle_at": (303, 264, -100, b"/", WRONG, WRONG, 0),
        "fanotify_init": (300, 262, 0, 0), "fanotify_mark": (301, 263, -1, 0, 0, 0, 0), "personality": (135, 92, 0xFFFFFFFF), "modify_ldt": (154, -1, 0, WRONG, 0),
        "iopl": (172, -1, 0), "ioperm": (173, -1, 0, 0, 0), "acct": (163, 89, WRONG), "lookup_dcookie": (212, 18, 0, WRONG, 0), "syslog": (103, 116, 10, 0, 0),
        "vhangup": (153, 58), "memfd_create": (319, 279, b"x", 0), "memfd_secret": (447, 447, 0), "landlock_create_ruleset": (444, 444, 0, 0, 1),
        "landlock_restrict_self": (446, 446, -1, 0), "io_setup": (206, 0, 0, WRONG), "mq_open": (240, 180, b"x", 0o102, 0o600, 0), "shmget": (29, 194, 0, 4096, 0o1600),
        "semget": (64, 190, 0, 1, 0o1600), "msgget": (68, 186, 0, 0o1600), "remap_file_pages": (216, 234, 0, 0, 0, 0, 0), "mbind": (237, 235, 0, 0, 0, 0, 0, 0),
        "move_pages": (279, 239, 0, 0, 0, 0, 0, 0), "vmsplice": (278, 75, -1, 0, 0, 0), "sync": (162, 81), "syncfs": (306, 267, 3), "mlockall": (151, 230, 1),
        "mlock": (149, 228, 0, 0), "lsm_set_self_attr": (460, 460, 0, 0, 0, 0), "_sysctl": (156, -1, WRONG), "uselib": (134, -1, WRONG), "sysfs": (139, -1, 3, 0, 0),
        "nfsservctl": (180, 42, 0, 0, 0), "cachestat of a new number": (451, 451, -1, 0, 0, 0), "a number of the future": (600, 600),
        "socketcall by a wide number": ((1 << 32) | 165, (1 << 32) | 40, WRONG, WRONG, WRONG, 0, 0),
    },
    "49": {
        "capset": (126, 91, WRONG, 0), "PR_SET_DUMPABLE": (157, 167, 4, 1, 0, 0, 0), "PR_SET_MM": (157, 167, 35, 1, 0, 0, 0),
        "PR_CAP_AMBIENT": (157, 167, 47, 2, 21, 0, 0), "PR_SET_PTRACER": (157, 167, 0x59616D61, -1, 0, 0, 0), "PR_SET_SECCOMP": (157, 167, 22, 1, 0, 0, 0),
        "PR_CAPBSET_DROP": (157, 167, 24, 0, 0, 0, 0), "a wide PR_SET_DUMPABLE": (157, 167, (1 << 32) | 4, 1, 0, 0, 0),
    },
    "50": {"seccomp": (317, 277, 1, 0, WRONG), "seccomp strict": (317, 277, 0, 0, 0), "seccomp listener": (317, 277, 1, 8, WRONG)},
    "53": {
        "sethostname": (170, 161, b"canary", 6), "setdomainname": (171, 162, b"canary", 6), "clock_settime": (227, 112, 0, WRONG),
        "settimeofday": (164, 170, WRONG, 0), "adjtimex": (159, 171, WRONG), "clock_adjtime": (305, 266, 0, WRONG),
    },
}
for item, calls in CALLS.items():
    for name, (here, elsewhere, *arguments) in calls.items():
        attempt("%s %s" % (item, name), lambda: call((here, elsewhere), *arguments))
if X86:
    attempt("47 an x32 number", lambda: in_child(lambda: call(0x40000000 + 39)))
    attempt("47 an x32 number that is dangerous", lambda: in_child(lambda: call(0x40000000 + 272, 0x10000000)))

    def old_gate(number):
        # mov eax, number; xor ebx, ebx; int 0x80; ret
        code = b"\x53\xb8" + number.to_bytes(4, "little") + b"\x31\xdb\xcd\x80\x5b\xc3"
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        return "refused: ENOSYS" if result in (-1, -38) else result

    attempt("47 int 0x80 getpid", lambda: in_child(lambda: old_gate(20)))
    attempt("47 int 0x80 unshare", lambda: in_child(lambda: old_gate(310)))


def make_node(kind, name):
    os.mknod(name, kind | 0o666, os.makedev(1, 3))
    return "made"


attempt("48 make a character device", lambda: make_node(stat.S_IFCHR, "node-c"))
attempt("48 make a block device", lambda: make_node(stat.S_IFBLK, "node-b"))
for name in ("kmsg", "mem", "vda", "kvm", "fuse", "port", "tty0", "sda"):
    for flags in (os.O_RDONLY, os.O_WRONLY):
        attempt("48 open /dev/%s%s" % (name, " to write" if flags else ""), lambda: os.close(os.open("/dev/" + name, flags)))
for number in (0, 1, 2):
    for name, request in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C), ("TIOCSCTTY", 0x540E)):
        attempt("48 %s on descriptor %d" % (name, number), lambda: call((16, 29), number, request, b"\x02"))
    attempt("48 a wide TIOCSTI on descriptor %d" % number, lambda: call((16, 29), number, (1 << 32) | 0x5412, b"\x02"))


def identity():
    return "root" if 0 in os.getresuid() + os.getresgid() + tuple(os.getgroups()) else "absent: no root"


attempt("51 user and groups", identity)


def groups():
    writable = []
    for folder, _, names in os.walk("/sys/fs/cgroup", onerror=lambda error: None):
        for name in names:
            try:
                writable.append(write_open(os.path.join(folder, name)))
            except OSError:
                pass
    return writable or "absent: nothing can be written"


attempt("52 writable control groups", groups)
attempt("52 write cgroup.procs", lambda: write_open("/sys/fs/cgroup/cgroup.procs"))
attempt("52 make a control group", lambda: os.mkdir("/sys/fs/cgroup/canary"))
