"""A scripted model server on a loopback port: chat completions and messages. It asks for one shell command, and then answers
with the command's output."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "scripted-model"
WINDOW = 65536


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.record(None)
        if self.path.split("?")[0] == "/v1/models":
            self.send_json(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": WINDOW}]})
        else:
            self.send_json(404, {"error": {"message": "no such path"}})

    do_HEAD = do_GET

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or "{}")
        self.record(body)
        path = self.path.split("?")[0]
        if path == "/v1/chat/completions":
            self.chat(body)
        elif path == "/v1/messages" and self.server.has_messages:
            self.messages(body)
        elif path == "/v1/messages/count_tokens" and self.server.has_messages:
            self.send_json(200, {"input_tokens": 100})
        else:
            self.send_json(404, {"error": {"message": "no such path"}})

    def record(self, body):
        self.server.requests.append((self.command, self.path, dict(self.headers), body))

    def send_json(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_events(self, events):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in events:
            text = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write((f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode())
        self.close_connection = True

    def chat(self, body):
        """The first tool that takes a command runs the script's; its result is the answer."""
        results = [message for message in body["messages"] if message["role"] == "tool"]
        functions = [tool["function"] for tool in body.get("tools", []) if tool.get("type") == "function"]
        shell = next((f for f in functions if {"command", "cmd"} & set(f["parameters"].get("properties", {}))), None)
        if results or shell is None:
            content = results[-1]["content"] if results else "nothing to run"
            content = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
            delta, reason = {"role": "assistant", "content": f"It said: {content}"}, "stop"
        else:
            key = "cmd" if "cmd" in shell["parameters"]["properties"] else "command"
            kind = shell["parameters"]["properties"][key].get("type")
            command = ["sh", "-c", self.server.command] if kind == "array" else self.server.command
            call = {"name": shell["name"], "arguments": json.dumps({key: command})}
            delta = {"role": "assistant", "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": call}]}
            reason = "tool_calls"
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if not body.get("stream"):
            choice = {"index": 0, "message": delta, "finish_reason": reason}
            self.send_json(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        self.send_events(
            [
                (None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}),
                (None, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
                (None, {**head, "choices": [], "usage": usage}),
                (None, "[DONE]"),
            ]
        )

    def messages(self, body):
        if not body.get("messages"):
            error = {"type": "invalid_request_error", "message": "messages: Field required"}
            self.send_json(400, {"type": "error", "error": error})
            return
        blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
        results = [block for block in blocks if block.get("type") == "tool_result"]
        has_shell = any(tool.get("name") == "Bash" for tool in body.get("tools", []))
        usage = {"input_tokens": 10, "output_tokens": 5}
        if results or not has_shell:
            content = results[-1]["content"] if results else "nothing to run"
            content = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
            text = f"It said: {content}"
            block, reason = {"type": "text", "text": text}, "end_turn"
            start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": text}
        else:
            given = {"command": self.server.command, "description": "Runs the script's command"}
            block = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": given}
            start, reason = {**block, "input": {}}, "tool_use"
            delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": [block]}
        message |= {"stop_reason": reason, "stop_sequence": None, "usage": usage}
        if not body.get("stream"):
            self.send_json(200, message)
            return
        begun = {**message, "content": [], "stop_reason": None}
        ended = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
        self.send_events(
            [
                ("message_start", {"type": "message_start", "message": begun}),
                ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": start}),
                ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}),
                ("content_block_stop", {"type": "content_block_stop", "index": 0}),
                ("message_delta", ended),
                ("message_stop", {"type": "message_stop"}),
            ]
        )


class Model(ThreadingHTTPServer):
    """The server; it runs until `close`."""

    daemon_threads = True

    def __init__(self, command, has_messages=True):
        super().__init__(("127.0.0.1", 0), Handler)
        self.command, self.has_messages, self.requests = command, has_messages, []
        self.base_url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()
