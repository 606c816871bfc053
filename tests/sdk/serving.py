"""What the scripted servers share: a JSON server on a port of its own, with a record of what came in."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Record:
    """What a server has seen, for the tests to look at over HTTP: `GET /calls` and `GET /violations`."""

    def __init__(self):
        self._lock = threading.Lock()
        self._calls = []
        self._violations = []

    def call(self, entry):
        """Keeps a call and gives its number, from 0."""
        with self._lock:
            self._calls.append(entry)
            return len(self._calls) - 1

    def calls(self):
        with self._lock:
            return list(self._calls)

    def violation(self, text):
        with self._lock:
            self._violations.append(text)

    def violations(self):
        with self._lock:
            return list(self._violations)


class Handler(BaseHTTPRequestHandler):
    """Answers in JSON or as an event stream. Subclasses have `record` and `post(path, body)`."""

    protocol_version = "HTTP/1.1"
    # Small writes leave at once, as they do from a model server.
    disable_nagle_algorithm = True
    # A peer that says nothing does not hold a thread for ever.
    timeout = 60
    record: Record

    def do_GET(self):
        if self.path == "/calls":
            self.send_json(200, self.record.calls())
        elif self.path == "/violations":
            self.send_json(200, self.record.violations())
        else:
            self.get(self.path)

    def do_POST(self):
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        except ValueError as error:
            self.violated(f"the body is not JSON: {error}")
            return
        self.post(self.path, body)

    def get(self, path):
        self.not_found(path)

    def post(self, path, body):
        self.not_found(path)

    def not_found(self, path):
        self.send_error_json(404, f"nothing at {path}", code="not_found")

    def violated(self, reason):
        """Refuses a request that nobody should have sent, and remembers it."""
        self.record.violation(reason)
        self.send_error_json(400, f"protocol violation: {reason}")

    def send_error_json(self, status, message, kind="invalid_request_error", param=None, code=None):
        error = {"message": message, "type": kind, "param": param, "code": code}
        self.send_json(status, {"error": error})

    def send_json(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_events(self, events):
        """Streams JSON values as server-sent events, one per chunk, then `[DONE]`."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for event in events:
                self._chunk(f"data: {json.dumps(event)}\n\n".encode())
            self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")
        except (BrokenPipeError, ConnectionResetError):
            # The client has gone, which is its good right.
            self.close_connection = True

    def _chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, format, *args):
        """Says nothing: the record is the log."""


def serve(handler):
    """Serves on a free loopback port, which the one line of output names, until the process is stopped."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    print(f"ready on http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
