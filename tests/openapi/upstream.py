"""A model server and a webhook that take whatever comes: what they answer depends on the request alone."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODELS = {"object": "list", "data": [{"id": "scripted-model", "object": "model", "created": 0, "owned_by": "nobody"}]}
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # A peer that says nothing does not hold a thread for ever.
    timeout = 60

    def do_any(self):
        body = self.body()
        if self.path == "/v1/models":
            self.send_json(MODELS)
        elif self.path == "/run":
            self.send_json({"content": "done"})
        elif self.path.split("?")[0] == "/v1/chat/completions" and self.command == "POST":
            self.complete(json.loads(body))
        else:
            self.send_json({"forwarded": self.command})

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_any

    def body(self):
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        whole = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def complete(self, request):
        """Calls the last tool that is offered, unless a tool has just answered or none may be called."""
        tools = request.get("tools") or []
        names = [tool["function"]["name"] for tool in tools if isinstance(tool.get("function"), dict)]
        answered = request["messages"][-1].get("role") == "tool"
        if names and not answered and request.get("tool_choice") != "none":
            function = {"name": names[-1], "arguments": "{}"}
            said, reason = {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}, "tool_calls"
        else:
            said, reason = {"content": "An answer."}, "stop"
        head = {"id": "scripted", "created": 0, "model": "scripted-model"}
        if not request.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": reason}
            self.send_json({**head, "object": "chat.completion", "choices": [choice], "usage": USAGE})
            return
        calls = [{"index": 0, **call} for call in said.pop("tool_calls", [])]
        delta = {"role": "assistant", **said, **({"tool_calls": calls} if calls else {})}
        chunks = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {"choices": [], "usage": USAGE},
        ]
        lines = [json.dumps({**head, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
        self.send("text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode())

    def send_json(self, value):
        self.send("application/json", json.dumps(value).encode())

    def send(self, media, body):
        self.send_response(200)
        self.send_header("content-type", media)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def serving():
    """Serves on a free port and gives the origin."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
