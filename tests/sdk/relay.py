"""A relay between a client and a server that breaks the first connection off at a chosen place."""

import socket
import struct
import threading
from contextlib import contextmanager

SIZE = 65536


class Relay:
    """Listens on a free loopback port; every connection but the first passes whole."""

    def __init__(self, host, port, cut):
        self._server = (host, port)
        # Bytes of the first answer that pass; -1: the connection ends with the request; `None`: all of them.
        self._cut = cut
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.connections = 0
        # Bytes of the first connection's answers.
        self.passed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        # Closing alone does not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            first = self.connections == 0
            self.connections += 1
            server = socket.create_connection(self._server)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            cut = self._cut if first else None
            threading.Thread(target=self._requests, args=(client, server, cut), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, cut, first), daemon=True).start()

    def _requests(self, client, server, cut):
        head = b""
        try:
            while data := client.recv(SIZE):
                server.sendall(data)
                head += data
                if cut == -1 and is_whole(head):
                    break
        except OSError:
            pass
        (reset if cut == -1 else half_close)(server)
        if cut == -1:
            reset(client)

    def _answers(self, client, server, cut, first):
        left = cut if cut is not None and cut >= 0 else None
        try:
            while data := server.recv(SIZE):
                if left is not None:
                    data = data[:left]
                    left -= len(data)
                client.sendall(data)
                if first:
                    self.passed += len(data)
                if left == 0:
                    break
        except OSError:
            pass
        if left == 0:
            reset(server)
            reset(client)
        else:
            half_close(client)


def is_whole(request):
    """Whether a request with a `content-length` has come to its end."""
    head, found, body = request.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")), 0)
    return bool(found) and len(body) >= length


def half_close(connection):
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        # The other side has ended it before.
        pass


def reset(connection):
    """Ends a connection as a lost network does: without a word, in both directions."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Wakes the thread that reads from it; closing alone would not.
        connection.shutdown(socket.SHUT_RD)
        connection.close()
    except OSError:
        pass


@contextmanager
def relay_to(url, cut):
    """A relay to the server of a base URL, and the base URL that leads through it."""
    authority, _, path = url.removeprefix("http://").partition("/")
    host, _, port = authority.partition(":")
    relay = Relay(host, int(port), cut)
    try:
        yield relay, f"http://127.0.0.1:{relay.port}/{path}"
    finally:
        relay.close()
