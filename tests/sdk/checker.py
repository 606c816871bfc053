"""What a Responses answer and its stream must be: the published types (openai's models and `openresponses-types`, both
strict) and the order of the events. Pure: bytes and values in, sentences about what is wrong out."""

import json
from collections import Counter
from functools import cache
from typing import get_args

import openresponses_types.types as published
import regex
from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent
from pydantic import TypeAdapter, ValidationError

# Every member that an answer always has, with null only for those of the second list.
MEMBERS = frozenset(
    "id object created_at completed_at status background incomplete_details error model instructions"
    " previous_response_id conversation output tools tool_choice parallel_tool_calls max_output_tokens max_tool_calls"
    " text reasoning temperature top_p presence_penalty frequency_penalty top_logprobs truncation store service_tier"
    " usage user metadata safety_identifier prompt_cache_key".split()
)
NULLABLE = frozenset(
    "completed_at incomplete_details error instructions previous_response_id conversation max_output_tokens"
    " max_tool_calls reasoning usage user safety_identifier prompt_cache_key".split()
)
# Members of items that are null where they have no value; all others are absent then.
NULL_IN_ITEMS = {("code_interpreter_call", "code"), ("code_interpreter_call", "outputs")}
TERMINAL = {
    "response.completed": {"completed"},
    "response.incomplete": {"incomplete", "cancelled"},
    "response.failed": {"failed"},
}
OWN_EVENTS = {"loopwright.tool_output", "loopwright.approval_required", "loopwright.notice"}
CALLS = {"function_call", "custom_tool_call", "web_search_call", "code_interpreter_call", "mcp_call"}

# The events of an item between `added` and `done`, a letter each, and the order for each type of item.
LETTERS = {
    "content_part.added": "P",
    "output_text.delta": "t",
    "output_text.annotation.added": "a",
    "output_text.done": "T",
    "refusal.delta": "r",
    "refusal.done": "R",
    "reasoning_text.delta": "v",
    "reasoning_text.done": "V",
    "content_part.done": "p",
    "reasoning_summary_part.added": "S",
    "reasoning_summary_text.delta": "u",
    "reasoning_summary_text.done": "U",
    "reasoning_summary_part.done": "s",
    "function_call_arguments.delta": "f",
    "function_call_arguments.done": "F",
    "custom_tool_call_input.delta": "c",
    "custom_tool_call_input.done": "C",
    "web_search_call.in_progress": "w",
    "web_search_call.searching": "x",
    "web_search_call.completed": "W",
    "code_interpreter_call.in_progress": "i",
    "code_interpreter_call_code.delta": "d",
    "code_interpreter_call_code.done": "D",
    "code_interpreter_call.interpreting": "n",
    "code_interpreter_call.completed": "I",
    "mcp_call.in_progress": "m",
    "mcp_call_arguments.delta": "g",
    "mcp_call_arguments.done": "G",
    "mcp_call.completed": "M",
    "mcp_call.failed": "N",
    "mcp_list_tools.in_progress": "l",
    "mcp_list_tools.completed": "L",
    "mcp_list_tools.failed": "K",
}
ORDERS = {
    "message": "(P(t*a*T|r*R)p)*",
    "reasoning": "(Su*Us)*(Pv*Vp)*",
    "function_call": "f*F",
    "custom_tool_call": "c*C",
    "web_search_call": "wxW",
    "code_interpreter_call": "id*DnI",
    "mcp_call": "mg*G[MN]",
    "mcp_list_tools": "l[LK]",
    "mcp_approval_request": "",
}
# What is collected: the delta events of a part or call, its `done` event with the member that holds the whole, and the
# member that numbers the parts.
TEXTS = {
    "output_text": ("text", "content_index"),
    "refusal": ("refusal", "content_index"),
    "reasoning_text": ("text", "content_index"),
    "reasoning_summary_text": ("text", "summary_index"),
    "function_call_arguments": ("arguments", None),
    "custom_tool_call_input": ("input", None),
    "mcp_call_arguments": ("arguments", None),
    "code_interpreter_call_code": ("code", None),
}


def by_type(models):
    """The models of a union by the value of their `type`."""
    return {value: model for model in models for value in get_args(model.model_fields["type"].annotation)}


EVENTS = by_type(get_args(get_args(ResponseStreamEvent)[0]))
ITEMS = by_type(get_args(get_args(ResponseOutputItem)[0]))
PUBLISHED_EVENTS = {
    next(iter(model.model_fields["type"].annotation)).value: model
    for name, model in vars(published).items()
    if name.endswith("StreamingEvent")
}
# Items of the published specification; others are extensions to it, which its types leave out.
PUBLISHED_ITEMS = {
    "message": published.Message,
    "function_call": published.FunctionCall,
    "function_call_output": published.FunctionCallOutput,
    "reasoning": published.ReasoningBody,
}


adapter = cache(TypeAdapter)


def misfits(model, value, what):
    """How a value differs from a model or type, in words."""
    try:
        adapter(model).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        # Of a union every other member fails for its `type`.
        errors = [each for each in error.errors() if each["loc"][-1:] != ("type",)] or error.errors()
        said = [f"{'.'.join(map(str, each['loc']))}: {each['msg']} ({each['input']!r:.80})" for each in errors[:3]]
        return [f"{what} is not of {getattr(model, '__name__', model)}: {'; '.join(said)}"]
    return []


def nulls(value, path):
    """The paths of nulls in an item."""
    if isinstance(value, dict):
        return [each for key, member in value.items() for each in nulls(member, f"{path}.{key}")]
    if isinstance(value, list):
        return [each for index, member in enumerate(value) for each in nulls(member, f"{path}[{index}]")]
    return [path] if value is None else []


def item_violations(item, what="an item"):
    if not isinstance(item, dict) or item.get("type") not in ITEMS:
        return [f"{what} is of no type that the SDKs know: {item!r:.200}"]
    kind = item["type"]
    what = f"{what} ({kind})"
    found = misfits(ITEMS[kind], item, what)
    if kind in PUBLISHED_ITEMS:
        found += misfits(PUBLISHED_ITEMS[kind], plain_item(item), what)
    # The schemas of tools and their annotations are the tools' own words.
    own = {key: member for key, member in item.items() if key != "tools"}
    own["tools"] = [{**each, "input_schema": {}} for each in item.get("tools") or []]
    allowed = {f"item.{key}" for of, key in NULL_IN_ITEMS if of == kind}
    found += [f"{what} has a null that should be absent: {path}" for path in nulls(own, "item") if path not in allowed]
    if not isinstance(item.get("id"), str) or not item["id"]:
        found.append(f"{what} has no id")
    if kind != "reasoning" and not kind.startswith("mcp_list") and not kind.startswith("mcp_approval") and not item.get("status"):
        found.append(f"{what} has no status")
    for part in item.get("content") or [] if kind == "message" else []:
        if part.get("type") == "output_text":
            found += part_violations(part, what)
    return found


def part_violations(part, what):
    found = [f"{what} has a text without `{key}`" for key in ("annotations", "logprobs") if not isinstance(part.get(key), list)]
    for each in part.get("annotations") or []:
        start, end = each.get("start_index"), each.get("end_index")
        if each.get("type") == "url_citation" and not 0 <= start < end <= len(part["text"]):
            found.append(f"{what} has a citation outside of its text: {start}..{end} of {len(part['text'])}")
    return found


def response_violations(response, what="the response"):
    if not isinstance(response, dict):
        return [f"{what} is no object"]
    found = [f"{what} has no `{key}`" for key in sorted(MEMBERS - response.keys())]
    found += [f"{what} has null in `{key}`" for key in sorted(response.keys() & MEMBERS - NULLABLE) if response[key] is None]
    if not str(response.get("id")).startswith("resp_"):
        found.append(f"{what} has the id {response.get('id')!r}")
    output = response.get("output") if isinstance(response.get("output"), list) else []
    for index, item in enumerate(output):
        found += item_violations(item, f"item {index} of {what}")
    ids = [item.get("id") for item in output if isinstance(item, dict)]
    if len(set(ids)) != len(ids):
        found.append(f"{what} has two items with one id: {ids}")
    found += phase_violations(output, response.get("status"), what)
    ended = response.get("status") == "completed"
    if ended != (response.get("completed_at") is not None):
        found.append(f"{what} has status {response.get('status')} and completed_at {response.get('completed_at')}")
    if (response.get("status") == "failed") != bool(response.get("error")):
        found.append(f"{what} has status {response.get('status')} and error {response.get('error')}")
    if response.get("error"):
        found += [f"the error of {what} has no `{key}`" for key in ("code", "message", "type", "param") if key not in response["error"]]
    if ended and not response.get("usage"):
        found.append(f"{what} has no usage")
    # The words that OpenAI lists for these are open here.
    open_words = {**response, "service_tier": "auto"} if isinstance(response.get("service_tier"), str) else dict(response)
    if isinstance((response.get("reasoning") or {}).get("effort"), str):
        open_words["reasoning"] = {**response["reasoning"], "effort": "low"}
    if response.get("error"):
        open_words["error"] = {**response["error"], "code": "server_error"}
    if response.get("incomplete_details"):
        open_words["incomplete_details"] = {"reason": "max_output_tokens"}
    return found + misfits(Response, open_words, what) + misfits(published.ResponseResource, plain(open_words), what)


def plain_part(part):
    """A part without annotations that are extensions."""
    if not isinstance(part, dict) or not isinstance(part.get("annotations"), list):
        return part
    return {**part, "annotations": [each for each in part["annotations"] if each.get("type") != "container_file_citation"]}


def plain_item(item):
    if item.get("type") != "message" or not isinstance(item.get("content"), list):
        return item
    return {**item, "content": [plain_part(part) for part in item["content"]]}


def plain_event(event):
    event = {**event, "part": plain_part(event["part"])} if "part" in event else event
    if (event.get("annotation") or {}).get("type") != "container_file_citation":
        return event
    return {**event, "annotation": None}


def plain(response):
    """A response as the published types know it, without what is an extension to them."""
    response = dict(response)
    output = [item for item in response.get("output") or [] if item.get("type") in PUBLISHED_ITEMS]
    response["output"] = [plain_item(item) for item in output]
    response["tools"] = [tool for tool in response.get("tools") or [] if tool.get("type") == "function"]
    choice = response.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") != "function":
        response["tool_choice"] = "auto"
    text = response.get("text")
    # Their schema of a JSON format can only be null.
    if isinstance(text, dict) and (text.get("format") or {}).get("type") == "json_schema":
        response["text"] = {**text, "format": {"type": "text"}}
    return response


def phase_violations(output, status, what):
    """A message before calls is commentary; one that ends a completed response is the final answer."""
    found = []
    for item, after in zip(output, [*output[1:], None]):
        if not isinstance(item, dict) or item.get("type") != "message":
            continue
        phase = item.get("phase")
        if after is None and status == "completed" and phase != "final_answer":
            found.append(f"the last message of {what} has the phase {phase!r}")
        if after is not None and after.get("type") in CALLS and phase != "commentary":
            found.append(f"a message before a {after['type']} of {what} has the phase {phase!r}")
    return found


def error_violations(body, what):
    """An error of the API."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return [f"{what} is no error object: {body!r:.200}"]
    found = [f"{what} has no `{key}`" for key in ("message", "type", "param", "code") if key not in error]
    if not isinstance(error.get("message"), str) or not error.get("message"):
        found.append(f"{what} has no message")
    return found


class Stream:
    """The events of one stream, fed as they arrive; `violations` at the end."""

    def __init__(self, after=None, own_events=False):
        # A stream that begins in the middle knows nothing of what was before.
        self.after, self.own_events = after, own_events
        self.found, self.kinds, self.raw = [], Counter(), {}
        self.response_id = self.terminal = None
        self.buffer = b""
        self.sequence = 0 if after is None else after + 1
        self.items, self.ended, self.failing = [], False, None

    def violation(self, text):
        if len(self.found) < 20:
            self.found.append(f"{text} [event {self.sequence - 1}]")

    def write(self, data):
        """One write of the server: whole events or comments."""
        if self.buffer or not data.endswith(b"\n"):
            self.violation(f"an event came in more than one write: {data!r:.120}")
        self.buffer += data
        while True:
            if self.buffer.startswith(b":"):
                comment, found, rest = self.buffer.partition(b"\n")
                if not found:
                    return
                self.buffer = rest.removeprefix(b"\n")
                continue
            frame, found, rest = self.buffer.partition(b"\n\n")
            if not found:
                return
            self.buffer = rest
            self.frame(frame)

    def frame(self, frame):
        lines = frame.decode().split("\n")
        if self.ended:
            self.violation(f"something came after [DONE]: {frame!r:.120}")
        if lines == ["data: [DONE]"]:
            self.ended = True
            return
        if len(lines) != 2 or not lines[0].startswith("event: ") or not lines[1].startswith("data: "):
            self.violation(f"a frame is not one event line and one data line: {frame!r:.200}")
            return
        try:
            event = json.loads(lines[1].removeprefix("data: "))
        except ValueError:
            self.violation(f"an event is not JSON: {lines[1]!r:.200}")
            return
        if lines[0].removeprefix("event: ") != event.get("type"):
            self.violation(f"`{lines[0]}` before an event of type {event.get('type')}")
        self.event(event)

    def event(self, event):
        kind = event.get("type")
        self.kinds[kind] += 1
        if event.get("sequence_number") != self.sequence:
            self.violation(f"`{kind}` has the sequence number {event.get('sequence_number')}, not {self.sequence}")
        self.raw[event.get("sequence_number")] = event
        self.sequence += 1
        if self.terminal:
            self.violation(f"`{kind}` came after the terminal event")
        if kind in OWN_EVENTS and self.own_events:
            return
        if kind not in EVENTS:
            self.violation(f"no SDK knows an event `{kind}`")
            return
        if "response" in event:
            wrong = response_violations(event["response"], f"the response in `{kind}`")
        elif "item" in event:
            wrong = item_violations(event["item"], f"the item in `{kind}`")
        else:
            wrong = misfits(EVENTS[kind], event, f"`{kind}`")
            if kind in PUBLISHED_EVENTS:
                wrong += misfits(PUBLISHED_EVENTS[kind], plain_event(event), f"`{kind}`")
        for each in wrong:
            self.violation(each)
        if self.after is None:
            try:
                self.in_order(kind, event)
            except (KeyError, TypeError, AttributeError) as error:
                self.violation(f"`{kind}` cannot be followed: {error!r}")
        elif kind in TERMINAL:
            self.terminal = event["response"]

    def in_order(self, kind, event):
        if self.sequence == 1 and kind != "response.created":
            self.violation(f"the first event is `{kind}`")
        if isinstance(event.get("response"), dict):
            self.whole(kind, event["response"])
        elif kind == "error":
            self.error(event)
        elif kind == "response.output_item.added":
            self.added(event)
        else:
            self.within(kind, event)

    def whole(self, kind, response):
        self.response_id = self.response_id or response.get("id")
        if response.get("id") != self.response_id:
            self.violation(f"`{kind}` has the response id {response.get('id')}, not {self.response_id}")
        expected = TERMINAL.get(kind, {"queued"} if kind == "response.queued" else {"in_progress", "queued"})
        if response.get("status") not in expected:
            self.violation(f"`{kind}` has the status {response.get('status')}")
        if kind not in TERMINAL:
            before = {"response.created": [0], "response.queued": [1], "response.in_progress": [1, 2]}[kind]
            if self.sequence - 1 not in before or self.kinds[kind] > 1:
                self.violation(f"`{kind}` came in the wrong place")
            return
        if not self.kinds["response.in_progress"]:
            self.violation(f"`{kind}` without `response.in_progress`")
        if (kind == "response.failed") != bool(self.failing):
            self.violation(f"`{kind}` {'without' if kind == 'response.failed' else 'after'} an `error` event")
        self.terminal = response
        open_items = [item["id"] for item, _, done, _ in self.items if not done]
        if open_items:
            self.violation(f"items were not done before `{kind}`: {open_items}")
        elif [done for _, _, done, _ in self.items] != response.get("output"):
            self.violation(f"`output` of `{kind}` is not the items as done")

    def error(self, event):
        self.failing = event
        nested = event.get("error")
        if not isinstance(nested, dict) or any(key not in event for key in ("code", "message", "param")):
            self.violation("an `error` event is not flat and nested")
        elif any(nested.get(key) != event[key] for key in ("code", "message", "param")) or not nested.get("type"):
            self.violation("the two forms of an `error` event differ")

    def added(self, event):
        item = event["item"]
        if event.get("output_index") != len(self.items):
            self.violation(f"an item was added with the index {event.get('output_index')}, not {len(self.items)}")
        if any(item.get("id") == before["id"] for before, _, _, _ in self.items):
            self.violation(f"two items have the id {item.get('id')}")
        empty = {"message": "content", "function_call": "arguments", "mcp_call": "arguments", "code_interpreter_call": "code"}
        member = empty.get(item.get("type"))
        if member and item.get(member):
            self.violation(f"a {item['type']} was added with {member} {item[member]!r:.80}")
        if item.get("status", "in_progress") != "in_progress":
            self.violation(f"a {item.get('type')} was added with the status {item['status']}")
        if self.failing:
            self.violation("an item was added after an `error` event")
        # The item, the letters of its events, the item as done, the texts of its parts.
        self.items.append([item, "", None, {}])

    def within(self, kind, event):
        """An event of an item that was added."""
        index = event.get("output_index")
        if not isinstance(index, int) or not 0 <= index < len(self.items):
            self.violation(f"`{kind}` refers to the item {index}, which was not added")
            return
        state = self.items[index]
        item, letters, done, texts = state
        ended = event["item"] if "item" in event else None
        named = ended.get("id") if ended else event.get("item_id")
        if named != item["id"] or (ended and ended.get("type") != item["type"]):
            self.violation(f"`{kind}` has the id {named}, not {item['id']}, or another type")
        if done:
            self.violation(f"`{kind}` refers to an item that is done")
            return
        order = ORDERS.get(item["type"])
        if ended:
            state[2] = ended
            partial = ended.get("status") in ("incomplete", "failed") or bool(self.failing)
            if order is not None and not regex.fullmatch(order, letters, partial=partial):
                self.violation(f"a {item['type']} had the events {self.spelled(letters)}")
            self.compare(ended, texts)
            return
        letter = LETTERS.get(kind.removeprefix("response."))
        if letter is None or order is None or not regex.fullmatch(order, letters + letter, partial=True):
            self.violation(f"`{kind}` in a {item['type']} after {self.spelled(letters)}")
            return
        state[1] += letter
        self.collect(kind.removeprefix("response."), event, texts)

    @staticmethod
    def spelled(letters):
        names = {letter: name for name, letter in LETTERS.items()}
        return [names[letter] for letter in letters]

    def collect(self, kind, event, texts):
        name, _, phase = kind.rpartition(".")
        if name == "output_text.annotation":
            annotations = texts.setdefault(("annotations", event["content_index"]), [])
            if event["annotation_index"] != len(annotations):
                self.violation(f"an annotation has the index {event['annotation_index']}, not {len(annotations)}")
            annotations.append(event["annotation"])
        elif name in TEXTS:
            member, number = TEXTS[name]
            key = (name, event[number] if number else None)
            if phase == "delta":
                texts[key] = texts.get(key, "") + event["delta"]
                if event["delta"] == "":
                    self.violation(f"`{kind}` is empty")
            elif event[member] != texts.get(key, ""):
                self.violation(f"`{kind}` has {event[member]!r:.80}, the deltas {texts.get(key, '')!r:.80}")
            if name == "output_text" and not isinstance(event.get("logprobs"), list):
                self.violation(f"`{kind}` has no `logprobs`")

    def compare(self, item, texts):
        """What the deltas said is what the item holds."""
        for (name, number), text in texts.items():
            if name == "annotations":
                whole = item["content"][number].get("annotations")
            elif name in ("output_text", "reasoning_text", "refusal"):
                whole = item["content"][number].get(TEXTS[name][0]) if len(item.get("content") or []) > number else None
            elif name == "reasoning_summary_text":
                whole = item["summary"][number].get("text") if len(item["summary"]) > number else None
            else:
                whole = item.get(TEXTS[name][0])
            if whole != text:
                self.violation(f"a {item['type']} is done with {whole!r:.120}, its events said {text!r:.120}")
        if item["type"] == "message":
            for number, part in enumerate(item["content"]):
                said = texts.get(("annotations", number), [])
                if part["type"] == "output_text" and part["annotations"] != said:
                    self.violation(f"a message has annotations that no event said: {part['annotations']!r:.120}")

    def end(self, whole=True):
        """The stream has ended; not `whole` where the client went away."""
        if whole and self.buffer:
            self.violation(f"the stream ends with half an event: {self.buffer!r:.120}")
        # After the last event there is nothing more.
        if whole and not self.terminal and (self.after is None or self.raw):
            self.violation("the stream has no terminal event")
        if whole and not self.ended:
            self.violation("the stream does not end with [DONE]")
        return self.found
