"""A scripted OpenAI-compatible model server that answers in the manner of vLLM.

The first word of the last user message chooses the scenario:

    plain           text, no tool
    think           reasoning, then text
    ticket          one round: text and a call of get_ticket, then text that quotes the result
    client          one batch: get_ticket and get_local_time, then text that quotes both results
    five            five rounds of get_ticket
    json            one round without text, then a JSON object
    recall          text that tells which roles and user texts the request holds
    code            one round of execute_python, which reads in.csv and writes out.csv, then text that quotes the result
    search          one round of web_search, then text that cites its first source
    pay             one round of charge_card, then text
    charge          one round of charge_card, after which the server is broken
    shell           one round of the client's shell, whatever its name and form, then text that quotes the result
    note            one round of take_note, a tool that takes text, then text that quotes the result
    clock           one round of get_local_time in the namespace `clock`, then text that quotes the result
    pair            one round of two calls of get_ticket after reasoning and text, then text that quotes both results
    hours           one round of get_hours of the MCP server `desk`, for the day that is the second word, then text that
                    quotes the result
    slow            text that takes seconds
    fail            one round of get_ticket with a number that there is not, then text that quotes the result
    cut             text that ends at the limit of its length
    decline         a refusal
    break           text, in the middle of which the connection ends
    odd             text; a request with this word may break the protocol
    refuse          400 for a parameter
    down            503

Requests are checked as the strictest servers do; one that breaks the protocol gets a 400 and is remembered.
"""

import json
import re
import time

from serving import Handler, Record, serve

MODEL = "scripted-model"

# Extensions of loopwright, which no model server may see.
OWN_FIELDS = (
    "session_id",
    "max_tool_rounds",
    "enable_code_execution",
    "web_search_options",
    "files",
    "agent_permission",
    "code_execution_permission",
    "agent",
)

ARGUMENT_PIECE = 7
# Its output is not its text.
SHELL_COMMAND = "echo $((6 * 7)) apples"

# Adds up the column of a file, prints as it goes, and writes a file.
CODE = """\
numbers = [int(line) for line in open("in.csv").read().split()]
for number in numbers:
    print("seen", number, flush=True)
open("out.csv", "w").write(f"total\\n{sum(numbers)}\\n")
sum(numbers)
"""


class Refused(Exception):
    """An answer of the script that is an error."""

    def __init__(self, status, message, kind, param=None):
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param


class Answer:
    """What the model says."""

    def __init__(self, text="", calls=(), reasoning="", refusal="", breaks=False, cut=False, pause=0):
        self.text, self.calls, self.reasoning, self.refusal = text, list(calls), reasoning, refusal
        self.breaks, self.cut, self.pause = breaks, cut, pause

    @property
    def finish_reason(self):
        if self.cut:
            return "length"
        return "tool_calls" if self.calls else "stop"


def violations(body):
    """Everything that is wrong with a chat request, in words."""
    if not isinstance(body, dict):
        return ["the body is not a JSON object"]
    found = [f"loopwright's own field `{field}` came along" for field in OWN_FIELDS if field in body]
    if not isinstance(body.get("model"), str):
        found.append("`model` is missing")
    if "stream_options" in body and body.get("stream") is not True:
        found.append("`stream_options` without `stream`")
    found += tool_violations(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return found + ["`messages` is not a list with messages"]
    return found + message_violations(messages)


def tool_violations(body):
    tools = body.get("tools")
    if tools is None:
        return [f"`{field}` without `tools`" for field in ("tool_choice", "parallel_tool_calls") if body.get(field)]
    if not isinstance(tools, list) or not tools:
        return ["`tools` is not a list with tools"]
    found, names = [], offered(body)
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            found.append(f"`{name}` is no name for a function")
    if len(set(names)) != len(names):
        found.append(f"a function is offered twice: {names}")
    return found


def message_violations(messages):
    """Roles, contents, and that every call is answered exactly once, right after it and in order."""
    found, seen, waiting = [], set(), []
    for position, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            call_id = message.get("tool_call_id")
            if not isinstance(content, (str, list)):
                found.append(f"messages[{position}]: the result of `{call_id}` has no content")
            if not waiting or waiting[0] != call_id:
                found.append(f"messages[{position}]: the result of `{call_id}` where {waiting} wait")
            waiting = [other for other in waiting if other != call_id]
            continue
        if waiting:
            found.append(f"messages[{position}]: the calls {waiting} before it were not answered")
            waiting = []
        if role == "assistant":
            calls = message.get("tool_calls") or []
            if not calls and not content:
                found.append(f"messages[{position}]: an empty assistant message")
            for call in calls:
                found += call_violations(call, seen, position)
                waiting.append(call.get("id"))
        elif role not in ("system", "developer", "user"):
            found.append(f"messages[{position}]: the role `{role}`")
        elif not content:
            found.append(f"messages[{position}]: a {role} message without content")
    if waiting:
        found.append(f"the calls {waiting} at the end were not answered")
    return found


def call_violations(call, seen, position):
    found, call_id = [], call.get("id")
    if not call_id or call_id in seen:
        found.append(f"messages[{position}]: the call id `{call_id}` is empty or used twice")
    seen.add(call_id)
    function = call.get("function") or {}
    try:
        arguments = json.loads(function.get("arguments", ""))
    except ValueError:
        arguments = None
    if not function.get("name") or not isinstance(arguments, dict):
        found.append(f"messages[{position}]: the call `{call_id}` has no name or no JSON object for arguments")
    return found


def offered(body):
    """The names of the function tools in a request."""
    tools = body.get("tools") or []
    return [tool.get("function", {}).get("name") for tool in tools if tool.get("type") == "function"]


def text_of(content):
    """The text of a message's content, given as a string or as parts."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def is_reminder(message):
    return text_of(message.get("content")).startswith("<system-reminder>")


class Turn:
    """The conversation from the last user message on."""

    def __init__(self, messages):
        self.messages = messages
        # What a client says as the system in the middle of a conversation is no question.
        asked = [at for at, message in enumerate(messages) if message["role"] == "user" and not is_reminder(message)]
        start = max(asked, default=0)
        self.prompt = text_of(messages[start].get("content"))
        self.scenario = (self.prompt.split() or [""])[0].strip(".,:!?").lower()
        since = messages[start + 1 :]
        self.rounds = sum(1 for message in since if message.get("tool_calls"))
        # Call ids need not be unique over a model server's answers to be told apart: results follow their calls.
        self.results = []
        names = {}
        for message in since:
            for call in message.get("tool_calls") or []:
                names[call["id"]] = call["function"]["name"]
            if message["role"] == "tool":
                self.results.append((names.get(message["tool_call_id"]), text_of(message["content"])))

    def result(self, name):
        return next((content for called, content in reversed(self.results) if called == name), None)


def shell_call(tools):
    """A call of the shell that a client offers, in the form that its schema asks for."""
    for tool in tools:
        function = tool["function"]
        properties = (function.get("parameters") or {}).get("properties") or {}
        for name in ("cmd", "command"):
            if name in properties and re.search("shell|exec", function["name"]):
                listed = properties[name].get("type") == "array"
                return [(function["name"], {name: ["bash", "-c", SHELL_COMMAND] if listed else SHELL_COMMAND})]
    return [("shell", {})]


def script(turn, tools):
    """The answer of the model, whatever tools it may use."""
    match turn.scenario:
        case "think":
            return Answer("Forty-two.", reasoning="Let me see. Six times seven.")
        case "ticket" if turn.rounds == 0:
            return Answer("Let me look. ", [("get_ticket", {"id": 42})])
        case "ticket":
            return Answer(f"The ticket says: {turn.result('get_ticket')}")
        case "client" if turn.rounds == 0:
            return Answer("Let me look. ", [("get_ticket", {"id": 42}), ("get_local_time", {"city": "Oslo"})])
        case "client":
            return Answer(f"The ticket says: {turn.result('get_ticket')} It is {turn.result('get_local_time')}.")
        case "five" if turn.rounds < 5:
            return Answer(f"Step {turn.rounds + 1}.", [("get_ticket", {"id": turn.rounds + 1})])
        case "five":
            return Answer(f"Five results: {' '.join(content for _, content in turn.results)}")
        case "json" if turn.rounds == 0:
            return Answer("", [("get_ticket", {"id": 42})])
        case "json":
            return Answer(json.dumps({"id": 42, "summary": turn.result("get_ticket")}))
        case "recall":
            roles = " ".join(message["role"] for message in turn.messages)
            said = [text_of(message["content"]) for message in turn.messages if message["role"] == "user"]
            return Answer(f"Roles: {roles}. You said: {' / '.join(said)}")
        case "code" if turn.rounds == 0:
            return Answer("Let me run that. ", [("execute_python", {"code": CODE})])
        case "code":
            return Answer(f"It says: {turn.result('execute_python')}")
        case "search" if turn.rounds == 0:
            return Answer("", [("web_search", {"query": "capital of Norway"})])
        case "search":
            quoted = "> The capital of Norway is Oslo" in turn.result("web_search")
            return Answer("Åpenbart: Oslo [1], not [9]." if quoted else "The result quotes nothing.")
        case "pay" if turn.rounds == 0:
            return Answer("", [("charge_card", {"reference": turn.prompt})])
        case "pay":
            return Answer(f"Paid: {turn.prompt}.")
        case "charge" if turn.rounds == 0:
            return Answer("", [("charge_card", {"reference": turn.prompt})])
        case "charge":
            raise Refused(500, "the engine died", "InternalServerError")
        case "shell" if turn.rounds == 0:
            return Answer("I look.", shell_call(tools))
        case "shell":
            return Answer(f"It printed: {turn.results[-1][1]}")
        case "note" if turn.rounds == 0:
            return Answer("", [("take_note", {"input": "buy milk\nand bread"})])
        case "note":
            return Answer(f"Noted: {turn.result('take_note')}")
        case "clock" if turn.rounds == 0:
            return Answer("", [("clock__get_local_time", {"city": "Oslo"})])
        case "clock":
            return Answer(f"It is {turn.results[-1][1]}.")
        case "pair" if turn.rounds == 0:
            return Answer("Both. ", [("get_ticket", {"id": 1}), ("get_ticket", {"id": 2})], reasoning="I need both.")
        case "pair":
            return Answer(f"They say: {' '.join(content for _, content in turn.results)}")
        case "hours" if turn.rounds == 0:
            return Answer("", [("desk__get_hours", {"day": turn.prompt.split()[1]})])
        case "hours":
            return Answer(f"It is open: {turn.result('desk__get_hours')}")
        case "slow":
            return Answer("and on " * 200, pause=0.02)
        case "fail" if turn.rounds == 0:
            return Answer("", [("get_ticket", {"id": -1})])
        case "fail":
            return Answer(f"It says: {turn.result('get_ticket')}")
        case "cut":
            return Answer("The capital of Norway", cut=True)
        case "decline":
            return Answer(refusal="I will not say that.")
        case "break":
            return Answer("The capital of Norway", breaks=True)
        case "refuse":
            raise Refused(400, "temperature must be below 2", "BadRequestError", "temperature")
        case "down":
            raise Refused(503, "the engine is loading", "ServiceUnavailable")
        case _:
            return Answer("The capital of Norway is Oslo.")


def answer(body):
    """The answer of the model with the tools that it was offered."""
    planned = script(Turn(body["messages"]), body.get("tools") or [])
    if any(name not in offered(body) for name, _ in planned.calls) or body.get("tool_choice") == "none":
        names = ", ".join(name for name, _ in planned.calls)
        return Answer(f"I may not call {names}.") if planned.calls else planned
    return planned


class Spelling:
    """One answer in OpenAI's words."""

    def __init__(self, body, planned, number):
        self.planned, self.number = planned, number
        self.with_logprobs = body.get("logprobs")
        self.envelope = {
            "id": f"chatcmpl-{number:032x}",
            "created": int(time.time()),
            "model": body["model"],
            "system_fingerprint": "fp_scripted",
        }
        completion_tokens = 5 + 2 * len(planned.calls)
        self.usage = {
            "prompt_tokens": 10 * len(body["messages"]),
            "completion_tokens": completion_tokens,
            "total_tokens": 10 * len(body["messages"]) + completion_tokens,
            "prompt_tokens_details": None,
        }

    def call(self, index, name, arguments):
        function = {"name": name, "arguments": arguments}
        return {"id": f"chatcmpl-tool-{self.number:016x}{index:016x}", "type": "function", "function": function}

    def whole(self):
        planned = self.planned
        message = {"role": "assistant", "content": planned.text or None, "refusal": planned.refusal or None}
        if planned.reasoning:
            message["reasoning_content"] = planned.reasoning
        if planned.calls:
            calls = enumerate(planned.calls)
            message["tool_calls"] = [self.call(index, name, json.dumps(given)) for index, (name, given) in calls]
        logprobs = self.logprobs(planned.text)
        choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": planned.finish_reason}
        return {**self.envelope, "object": "chat.completion", "choices": [choice], "usage": self.usage}

    def chunks(self, include_usage):
        planned = self.planned
        yield self.chunk({"role": "assistant", "content": ""})
        for word in re.findall(r"\S+\s*", planned.reasoning):
            yield self.chunk({"reasoning_content": word})
        for word in re.findall(r"\S+\s*", planned.text):
            yield self.chunk({"content": word}, logprobs=self.logprobs(word))
            time.sleep(planned.pause)
        for word in re.findall(r"\S+\s*", planned.refusal):
            yield self.chunk({"refusal": word})
        for index, (name, given) in enumerate(planned.calls):
            yield self.chunk({"tool_calls": [{"index": index, **self.call(index, name, "")}]})
            arguments = json.dumps(given)
            for start in range(0, len(arguments), ARGUMENT_PIECE):
                function = {"arguments": arguments[start : start + ARGUMENT_PIECE]}
                yield self.chunk({"tool_calls": [{"index": index, "function": function}]})
        if planned.breaks:
            raise ConnectionResetError
        yield self.chunk({"content": ""}, planned.finish_reason)
        if include_usage:
            yield {**self.envelope, "object": "chat.completion.chunk", "choices": [], "usage": self.usage}

    def logprobs(self, text):
        """A word each, where they were asked for."""
        if not self.with_logprobs:
            return None
        words = re.findall(r"\S+\s*", text)
        each = [{"token": word, "logprob": -0.25, "bytes": list(word.encode())} for word in words]
        return {"content": [{**one, "top_logprobs": [one]} for one in each], "refusal": None}

    def chunk(self, delta, finish_reason=None, logprobs=None):
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return {**self.envelope, "object": "chat.completion.chunk", "choices": [choice]}


class Upstream(Handler):
    """The model server."""

    record = Record()

    def get(self, path):
        model = {"id": MODEL, "object": "model", "created": 1_780_000_000, "owned_by": "vllm", "max_model_len": 32768}
        if path == "/v1/models":
            self.send_json(200, {"object": "list", "data": [model]})
        elif path == f"/v1/models/{MODEL}":
            self.send_json(200, model)
        else:
            self.not_found(path)

    def post(self, path, body):
        if path == "/v1/chat/completions":
            self.chat(body)
        elif path == "/v1/embeddings":
            self.embeddings(body)
        else:
            self.not_found(path)

    def chat(self, body):
        found = violations(body)
        if found and "odd" in json.dumps(body.get("messages")):
            # What such a request sends on is its own business.
            self.send_error_json(400, "; ".join(found))
            return
        if found:
            self.violated("; ".join(found))
            return
        number = self.record.call({"body": body, "authorization": self.headers.get("authorization")})
        try:
            spelling = Spelling(body, answer(body), number)
        except Refused as refused:
            self.send_error_json(refused.status, str(refused), refused.kind, refused.param, refused.status)
            return
        if body.get("stream"):
            self.send_events(spelling.chunks((body.get("stream_options") or {}).get("include_usage")))
        else:
            self.send_json(200, spelling.whole())

    def embeddings(self, body):
        inputs = body["input"] if isinstance(body["input"], list) else [body["input"]]
        # Plain numbers, although OpenAI's Python client asks for base64: it takes both, as servers send both.
        data = [
            {"object": "embedding", "index": index, "embedding": [float(len(text)), 0.25, -0.5]}
            for index, text in enumerate(inputs)
        ]
        usage = {"prompt_tokens": len(inputs), "total_tokens": len(inputs)}
        self.send_json(200, {"object": "list", "data": data, "model": body["model"], "usage": usage})


if __name__ == "__main__":
    serve(Upstream)
