"""A proxy in front of loopwright that checks every answer on the paths of the Responses API as it passes it on.

    recorder.py URL

`GET /violations`: what was wrong. `GET /calls`: how often each type of event and item was seen.
"""

import http.client
import json
import re
import sys
import threading
from collections import Counter, defaultdict
from urllib.parse import parse_qs, urlsplit

from openai.types import container_retrieve_response
from openai.types.containers import file_retrieve_response
from openai.types.conversations import Conversation, ConversationDeletedResource, ConversationItem, ConversationItemList
from openai.types.responses import ResponseItemList
from openai.types.responses.input_token_count_response import InputTokenCountResponse

from checker import Stream, error_violations, misfits, response_violations
from serving import Handler, Record, serve

ID = r"[^/]+"
# The answers of the smaller endpoints. `None`: only that it is an answer.
ENDPOINTS = [
    ("GET", rf"/v1/responses/{ID}/input_items", ResponseItemList),
    ("POST", r"/v1/responses/input_tokens", InputTokenCountResponse),
    ("DELETE", rf"/v1/responses/{ID}", None),
    ("POST", rf"/v1/conversations(/{ID})?", Conversation),
    ("GET", rf"/v1/conversations/{ID}", Conversation),
    ("DELETE", rf"/v1/conversations/{ID}", ConversationDeletedResource),
    ("(GET|POST)", rf"/v1/conversations/{ID}/items", ConversationItemList),
    ("GET", rf"/v1/conversations/{ID}/items/{ID}", ConversationItem),
    ("DELETE", rf"/v1/conversations/{ID}/items/{ID}", Conversation),
    ("GET", rf"/v1/containers/{ID}", container_retrieve_response.ContainerRetrieveResponse),
    ("GET", rf"/v1/containers/{ID}/files", None),
    ("GET", rf"/v1/containers/{ID}/files/{ID}", file_retrieve_response.FileRetrieveResponse),
    ("GET", rf"/v1/containers/{ID}/files/{ID}/content", None),
]
WHOLE = [("POST", r"/v1/responses"), ("GET", rf"/v1/responses/{ID}"), ("POST", rf"/v1/responses/{ID}/cancel")]
OURS = re.compile(r"/v1/(responses|conversations|containers)(/|$)")
# Not passed on: they belong to one connection.
HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "host"}


class Seen:
    """What has gone through, to compare answers with each other."""

    def __init__(self):
        self.lock = threading.Lock()
        self.events = defaultdict(dict)
        self.outputs = {}
        self.kinds = Counter()

    def stream(self, stream):
        with self.lock:
            self.kinds.update({kind: count for kind, count in stream.kinds.items() if kind})
            terminal = stream.terminal
            found = self._output(terminal) if terminal else []
            name = stream.response_id or (terminal or {}).get("id")
            for number, event in stream.raw.items():
                if self.events[name].setdefault(number, event) != event:
                    found.append(f"event {number} of {name} is another one in a second stream: {event!r:.200}")
        return found

    def response(self, response):
        with self.lock:
            return self._output(response)

    def _output(self, response):
        if response.get("status") in ("queued", "in_progress"):
            return []
        output = response["output"]
        self.kinds.update(f"item {item['type']}" for item in output)
        before = self.outputs.setdefault(response["id"], output)
        # `include` may add members to items of a later answer.
        shown = [[(item["type"], item["id"]) for item in each] for each in (before, output)]
        return [] if shown[0] == shown[1] else [f"{response['id']} has other items than before: {shown}"]


class Recorder(Handler):
    """The proxy."""

    record = Record()
    seen = Seen()
    target: str

    def do_GET(self):
        if self.path == "/calls":
            self.send_json(200, self.seen.kinds)
        elif self.path == "/violations":
            self.send_json(200, self.record.violations())
        else:
            self.forward()

    def do_POST(self):
        self.forward()

    do_DELETE = do_POST

    def forward(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        connection = http.client.HTTPConnection(urlsplit(self.target).netloc, timeout=self.timeout)
        headers = {key: value for key, value in self.headers.items() if key.lower() not in HOP_HEADERS}
        try:
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            self.send_response_only(answer.status, answer.reason)
            for key, value in answer.getheaders():
                if key.lower() not in HOP_HEADERS:
                    self.send_header(key, value)
            path = urlsplit(self.path).path
            if answer.getheader("content-type", "").startswith("text/event-stream"):
                self.pass_stream(answer, path, body)
            else:
                self.pass_whole(answer, path)
        finally:
            connection.close()

    def wrong(self, path, found):
        for each in found:
            self.record.violation(f"{self.command} {path}: {each}")

    def pass_whole(self, answer, path):
        data = answer.read()
        if answer.getheader("content-length") is None:
            self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        if OURS.match(path):
            self.wrong(path, self.check_whole(answer.status, path, data))

    def check_whole(self, status, path, data):
        binary = path.endswith("/content") and status < 400
        try:
            value = None if binary else json.loads(data)
        except ValueError:
            return [f"a {status} is not JSON: {data!r:.200}"]
        if status >= 500 and b"panic" in data.lower():
            return [f"a {status} that tells of a panic: {data!r:.200}"]
        if status >= 400:
            return error_violations(value, f"a {status}")
        for method, pattern, model in ENDPOINTS:
            if re.fullmatch(method, self.command) and re.fullmatch(pattern, path):
                return misfits(model, value, "the answer") if model else []
        if any(self.command == method and re.fullmatch(pattern, path) for method, pattern in WHOLE):
            return response_violations(value) or self.seen.response(value)
        return [f"an answer with the status {status} where nothing is"]

    def pass_stream(self, answer, path, body):
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        stream = Stream(*self.asked(body)) if OURS.match(path) else None
        whole = False
        try:
            for data in writes(answer):
                if stream:
                    stream.write(data)
                self._chunk(data)
            self._chunk(b"")
            whole = True
        except OSError:
            # The client has gone, which is its good right.
            self.close_connection = True
        finally:
            if stream:
                found = stream.end(whole)
                self.wrong(path, found or self.seen.stream(stream))

    def asked(self, body):
        """Where the stream begins, and whether it may hold loopwright's own events."""
        if self.command == "GET":
            query = parse_qs(urlsplit(self.path).query)
            after = query.get("starting_after", [None])[0]
            return (None if after is None else int(after)), True
        try:
            return None, (json.loads(body).get("agent") or {}).get("progress") == "named"
        except ValueError:
            return None, False


def writes(answer):
    """The chunks of an answer as they were written."""
    while True:
        size = int(answer.fp.readline().split(b";")[0] or b"0", 16)
        if size:
            yield answer.fp.read(size)
        answer.fp.readline()
        if not size:
            return


if __name__ == "__main__":
    Recorder.target = sys.argv[1]
    serve(Recorder)
