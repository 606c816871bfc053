# 26-34: network.
home = facts["server_directory"]


def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as peer:
        peer.settimeout(3)
        peer.connect(address)
        return "connected"


attempt("26 TCP to the server", lambda: connect(socket.AF_INET, ("127.0.0.1", facts["tcp"])))
attempt("26 TCP to the server by IPv6", lambda: connect(socket.AF_INET6, ("::1", facts["tcp"])))
attempt("26 TCP to the server by a mapped address", lambda: connect(socket.AF_INET6, ("::ffff:127.0.0.1", facts["tcp"])))
attempt("27 the metadata service", lambda: connect(socket.AF_INET, ("169.254.169.254", 80)))
attempt("27 the metadata service by urllib", lambda: __import__("urllib.request").request.build_opener().open("http://169.254.169.254/", timeout=3).status)


def send(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as peer:
        return peer.sendto(b"canary", address)


attempt("28 UDP to the server", lambda: send(socket.AF_INET, ("127.0.0.1", facts["udp"])))
attempt("28 DNS", lambda: send(socket.AF_INET, ("169.254.169.254", 53)))
attempt("28 name resolution", lambda: socket.getaddrinfo("example.org", 80))
FAMILIES = {"raw": (2, 3, 1), "ICMP": (2, 2, 1), "packet": (17, 3, 3), "netlink": (16, 3, 0), "vsock": (40, 1, 0), "AF_ALG": (38, 5, 0), "bluetooth": (31, 3, 1), "CAN": (29, 3, 1), "key": (15, 3, 2), "TIPC": (30, 1, 0), "RDS": (21, 5, 0), "XDP": (44, 3, 0), "MPTCP": (2, 1, 262), "SCTP": (2, 1, 132), "AX.25": (3, 5, 0), "NFC": (39, 5, 0), "phonet": (35, 2, 0), "SMC": (43, 1, 0)}
for name, (family, kind, protocol) in FAMILIES.items():
    attempt("29 %s socket" % name, lambda: socket.socket(family, kind, protocol).close())
    attempt("29 pair of %s sockets" % name, lambda: call((53, 199), family, kind, protocol, (ctypes.c_int * 2)()))
# A family in the lower half of an argument whose upper half is not looked at by the kernel.
attempt("29 socket with a wide family", lambda: call((41, 198), (1 << 32) | 2, 1, 0))
attempt("30 abstract socket", lambda: connect(socket.AF_UNIX, "\0" + facts["abstract"]))
attempt("30 abstract socket by a datagram", lambda: connect(socket.AF_UNIX, "\0" + facts["abstract"], socket.SOCK_DGRAM))
for path in (home + "/admin.sock", "/run/docker.sock", "/var/run/docker.sock"):
    attempt("31 " + path, lambda: connect(socket.AF_UNIX, path))


def by_pair(path):
    # A socket that was not made by socket() can still be connected if it is a datagram one.
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        return one.sendto(b"canary", path)


attempt("31 docker.sock from a pair", lambda: by_pair("/run/docker.sock"))
attempt("30 abstract socket from a pair", lambda: by_pair("\0" + facts["abstract"]))


def listen(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen()
        return "listens"


attempt("32 listen on TCP", lambda: listen(socket.AF_INET, ("127.0.0.1", 0)))
attempt("32 listen on TCP everywhere", lambda: listen(socket.AF_INET6, ("::", 0)))
attempt("32 bind UDP", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(("127.0.0.1", 0)))
parameters = ctypes.create_string_buffer(256)
attempt("33 io_uring_setup", lambda: call(425, 4, parameters))
attempt("33 io_uring_enter", lambda: call(426, 0, 0, 0, 0, None, 0))
attempt("33 io_uring_register", lambda: call(427, 0, 0, None, 0))


def enter(number):
    handle = os.open("/proc/%s/ns/net" % number, os.O_RDONLY)
    return call((308, 268), handle, 0)


for number in ("1", "self", facts["server"]):
    attempt("34 the network namespace of %s" % ("the server" if number == facts["server"] else number), lambda: enter(number))
