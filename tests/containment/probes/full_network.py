# 32 and 54 to 56: a network for outgoing connections only.
def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as peer:
        peer.settimeout(3)
        peer.connect(address)
        return "connected"


attempt("54 TCP to a service", lambda: connect(socket.AF_INET, ("127.0.0.1", facts["service"])))
attempt("54 UDP to a service", lambda: connect(socket.AF_INET, ("127.0.0.1", facts["service"]), socket.SOCK_DGRAM))
attempt("54 name resolution", lambda: socket.getaddrinfo("localhost", 80))


def name(family, kind, address):
    with socket.socket(family, kind) as service:
        service.bind(address)
        return "has a name"


attempt("32 bind TCP", lambda: name(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)))
attempt("32 bind TCP by IPv6", lambda: name(socket.AF_INET6, socket.SOCK_STREAM, ("::", 0)))
attempt("32 bind UDP", lambda: name(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)))


def listen(family):
    # Without a name the kernel would choose a port.
    with socket.socket(family, socket.SOCK_STREAM) as service:
        service.listen()
        return "listens"


attempt("32 listen on TCP", lambda: listen(socket.AF_INET))
attempt("32 listen on TCP by IPv6", lambda: listen(socket.AF_INET6))


def accept():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as service:
        return call((43, 202), service.fileno(), None, None)


attempt("32 accept", accept)
attempt("55 abstract name", lambda: name(socket.AF_UNIX, socket.SOCK_DGRAM, "\0" + "loopwright-stray"))
attempt("55 abstract name for a stream", lambda: name(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + "loopwright-stray"))


def by_pair():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.bind("\0" + "loopwright-stray")
        return "has a name"


attempt("55 abstract name of a pair", by_pair)


def choose():
    # An address of no length makes the kernel choose an abstract name.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        return call((49, 200), service.fileno(), (ctypes.c_char * 2)(1, 0), 2)


attempt("55 abstract name that the kernel chooses", choose)
attempt("56 abstract socket of the server", lambda: connect(socket.AF_UNIX, "\0" + facts["abstract"]))
