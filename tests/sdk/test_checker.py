"""The checker itself: it passes a good recording and notices each way to break one."""

import copy
import json

import pytest

from checker import Stream, error_violations, item_violations, response_violations

RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1_780_000_000, "completed_at": None, "status": "in_progress",
    "background": False, "incomplete_details": None, "error": None, "model": "m", "instructions": None,
    "previous_response_id": None, "conversation": None, "output": [], "tool_choice": "auto",
    "tools": [{"type": "function", "name": "f", "description": None, "parameters": {"type": "object"}, "strict": None},
              {"type": "web_search"}],
    "parallel_tool_calls": True, "max_output_tokens": None, "max_tool_calls": None, "text": {"format": {"type": "text"}},
    "reasoning": {"effort": None, "summary": None}, "temperature": 1.0, "top_p": 1.0, "presence_penalty": 0,
    "frequency_penalty": 0, "top_logprobs": 0, "truncation": "disabled", "store": True, "service_tier": "default",
    "usage": None, "user": None, "metadata": {}, "safety_identifier": None, "prompt_cache_key": None,
}  # fmt: skip
USAGE = {
    "input_tokens": 3, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens": 4,
    "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 7,
}  # fmt: skip
CITATION = {"type": "url_citation", "url": "http://a.b/", "title": "A", "start_index": 0, "end_index": 4}


def message(name, text, phase, annotations=()):
    part = {"type": "output_text", "text": text, "annotations": list(annotations), "logprobs": []}
    whole = {"type": "message", "id": name, "status": "completed", "role": "assistant", "content": [part], "phase": phase}
    at = {"content_index": 0}
    return whole, {"content": []}, [
        ("content_part.added", {**at, "part": {**part, "text": "", "annotations": []}}),
        *[("output_text.delta", {**at, "delta": piece, "logprobs": []}) for piece in (text[:2], text[2:])],
        *[("output_text.annotation.added", {**at, "annotation_index": index, "annotation": each})
          for index, each in enumerate(annotations)],
        ("output_text.done", {**at, "text": text, "logprobs": []}),
        ("content_part.done", {**at, "part": part}),
    ]  # fmt: skip


def items():
    """An item of each kind with how it begins and its events."""
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
    yield reasoning, {"summary": []}, [
        ("reasoning_summary_part.added", {"summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
        ("reasoning_summary_text.delta", {"summary_index": 0, "delta": "hm"}),
        ("reasoning_summary_text.done", {"summary_index": 0, "text": "hm"}),
        ("reasoning_summary_part.done", {"summary_index": 0, "part": {"type": "summary_text", "text": "hm"}}),
    ]
    yield message("msg_1", "Look.", "commentary")
    action = {"type": "search", "query": "q", "queries": ["q"]}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    yield search, {}, [(f"web_search_call.{each}", {}) for each in ("in_progress", "searching", "completed")]
    code = {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1", "container_id": "cntr_1",
            "outputs": [{"type": "logs", "logs": "1"}]}  # fmt: skip
    yield code, {"code": "", "outputs": None}, [
        ("code_interpreter_call.in_progress", {}),
        ("code_interpreter_call_code.delta", {"delta": "1"}),
        ("code_interpreter_call_code.done", {"code": "1"}),
        ("code_interpreter_call.interpreting", {}),
        ("code_interpreter_call.completed", {}),
    ]
    call = {"type": "mcp_call", "id": "mcp_1", "status": "completed", "server_label": "s", "name": "n", "arguments": "{}",
            "output": "o"}  # fmt: skip
    yield call, {"arguments": "", "output": ...}, [
        ("mcp_call.in_progress", {}),
        ("mcp_call_arguments.delta", {"delta": "{}"}),
        ("mcp_call_arguments.done", {"arguments": "{}"}),
        ("mcp_call.completed", {}),
    ]
    yield message("msg_2", "Oslo, they say.", "commentary", [CITATION])
    function = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed", "name": "f",
                "arguments": '{"a":1}'}  # fmt: skip
    yield function, {"arguments": ""}, [
        ("function_call_arguments.delta", {"delta": '{"a"'}),
        ("function_call_arguments.delta", {"delta": ":1}"}),
        ("function_call_arguments.done", {"arguments": '{"a":1}', "name": "f"}),
    ]


def recording():
    """The events of a response with an item of each kind."""
    events = [{"type": f"response.{each}", "response": RESPONSE} for each in ("created", "in_progress")]
    output = []
    for index, (item, begins, within) in enumerate(items()):
        at = {"output_index": index}
        added = {key: value for key, value in {**item, **begins}.items() if value is not ...}
        added |= {"status": "in_progress"} if "status" in item else {}
        events.append({"type": "response.output_item.added", **at, "item": added})
        events += [{"type": f"response.{kind}", **at, "item_id": item["id"], **more} for kind, more in within]
        events.append({"type": "response.output_item.done", **at, "item": item})
        output.append(item)
    ended = {**RESPONSE, "status": "completed", "completed_at": 1_780_000_001, "output": output, "usage": USAGE}
    events.append({"type": "response.completed", "response": ended})
    # Nothing is shared, so that each copy can be broken by itself.
    return json.loads(json.dumps(events))


def failed():
    """The events of a response that failed in the middle of a text."""
    events = recording()
    at = next(index for index, event in enumerate(events) if event["type"] == "response.output_text.delta")
    events = events[: at + 1]
    part = {"type": "output_text", "text": "Lo", "annotations": [], "logprobs": []}
    item = {"type": "message", "id": "msg_1", "status": "incomplete", "role": "assistant", "content": [part]}
    error = {"code": "upstream_unreachable", "message": "gone", "param": None}
    reasoning = find(events, "output_item.done")["item"]
    response = {**RESPONSE, "status": "failed", "output": [reasoning, item], "error": {**error, "type": "server_error"}}
    return [
        *events,
        {"type": "error", **error, "error": {**error, "type": "server_error"}},
        {"type": "response.output_item.done", "output_index": 1, "item": item},
        {"type": "response.failed", "response": response},
    ]


def written(events, done=b"data: [DONE]\n\n"):
    """The events as they are written."""
    numbered = [{"sequence_number": number} | event for number, event in enumerate(events)]
    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in numbered]
    return [*lines, done] if done else lines


def checked(writes, **options):
    stream = Stream(**options)
    for data in writes:
        stream.write(data)
    return stream.end()


def find(events, kind, count=0):
    return [event for event in events if event["type"] == f"response.{kind}"][count]


def test_good_recordings_pass():
    assert checked(written(recording())) == []
    assert checked(written(failed())) == []
    assert checked([b": keep-alive\n", *written(recording())]) == []


def test_the_second_half_of_a_stream_passes():
    writes = written(recording())
    assert checked(writes[12:], after=11) == []
    assert checked(writes[-1:], after=len(writes) - 2) == []
    assert checked(writes[12:], after=10)
    assert checked(writes[12:-2], after=11)


def test_events_of_loopwright_pass_only_where_they_were_asked_for():
    events = recording()
    events.insert(5, {"type": "loopwright.notice", "text": "slow"})
    assert checked(written(events), own_events=True) == []
    assert "no SDK knows" in checked(written(events))[0]


# What is done to a recording, and a word of what the checker must say.
BREAKS = {
    "unknown event": (lambda e: e.insert(3, {"type": "response.pondering"}), "no SDK knows"),
    "gap": (lambda e: e[4].update(sequence_number=7), "sequence number"),
    "text without its number": (lambda e: find(e, "output_text.delta").pop("content_index"), "content_index"),
    "delta without logprobs": (lambda e: find(e, "output_text.delta").pop("logprobs"), "logprobs"),
    "no created": (lambda e: e.pop(0), "the first event"),
    "no in_progress": (lambda e: e.pop(1), "without `response.in_progress`"),
    "in_progress twice": (lambda e: e.insert(2, copy.deepcopy(e[1])), "wrong place"),
    "another response id": (lambda e: e[-1]["response"].update(id="resp_2"), "response id"),
    "an index left out": (lambda e: [x.update(output_index=x["output_index"] + 1) for x in e if "output_index" in x], "index"),
    "another item id in done": (lambda e: find(e, "output_item.done", 1)["item"].update(id="msg_9"), "has the id"),
    "another item id in a delta": (lambda e: find(e, "output_text.delta").update(item_id="msg_9"), "has the id"),
    "an id used twice": (lambda e: [x["item"].update(id="msg_1") for x in e if x.get("item", {}).get("id") == "ws_1"], "two items"),
    "no part.added": (lambda e: e.remove(find(e, "content_part.added")), "in a message after"),
    "no text.done": (lambda e: e.remove(find(e, "output_text.done")), "in a message after"),
    "no item done": (lambda e: e.remove(find(e, "output_item.done", 3)), "not done before"),
    "delta after done": (lambda e: e.insert(-1, find(e, "output_text.delta")), "is done"),
    "delta before added": (lambda e: e.insert(2, find(e, "output_text.delta")), "was not added"),
    "added with its text": (lambda e: find(e, "output_item.added", 1)["item"].update(content=[{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}]), "added with"),
    "added as completed": (lambda e: find(e, "output_item.added", 2)["item"].update(status="completed"), "was added with"),
    "a word lost": (lambda e: find(e, "output_text.delta", 1).update(delta="k"), "the deltas"),
    "arguments lost": (lambda e: find(e, "function_call_arguments.delta").update(delta="{"), "the deltas"),
    "done with another text": (lambda e: find(e, "output_item.done", 1)["item"]["content"][0].update(text="No."), "is done with"),
    "citation never said": (lambda e: e.remove(find(e, "output_text.annotation.added")), "annotations"),
    "citation outside": (lambda e: find(e, "output_item.done", 5)["item"]["content"][0]["annotations"][0].update(end_index=99), "outside"),
    "search without searching": (lambda e: e.remove(find(e, "web_search_call.searching")), "after"),
    "output left out": (lambda e: e[-1]["response"].update(output=[]), "not the items as done"),
    "a member left out": (lambda e: e[-1]["response"].pop("truncation"), "no `truncation`"),
    "a member null": (lambda e: e[-1]["response"].update(temperature=None), "null in `temperature`"),
    "a tool without strict": (lambda e: e[0]["response"]["tools"][0].pop("strict"), "strict"),
    "usage without details": (lambda e: e[-1]["response"]["usage"].pop("input_tokens_details"), "input_tokens_details"),
    "a time of text": (lambda e: e[0]["response"].update(created_at="now"), "created_at"),
    "unknown item": (lambda e: find(e, "output_item.done", 4)["item"].update(type="webhook_call"), "no type that the SDKs know"),
    "null in an item": (lambda e: find(e, "output_item.done", 4)["item"].update(error=None), "should be absent"),
    "call without status": (lambda e: find(e, "output_item.done", 6)["item"].pop("status"), "status"),
    "annotations left out": (lambda e: find(e, "output_item.done", 1)["item"]["content"][0].pop("annotations"), "annotations"),
    "wrong phase": (lambda e: e[-1]["response"]["output"][1].update(phase="final_answer"), "has the phase"),
    "completed while it runs": (lambda e: e[-1]["response"].update(status="in_progress", completed_at=None), "has the status"),
    "completed never": (lambda e: e[-1]["response"].update(completed_at=None), "completed_at"),
    "no end": (lambda e: e.pop(), "no terminal event"),
    "an event after the end": (lambda e: e.append(copy.deepcopy(e[3])), "after the terminal"),
    "failed without error": (lambda e: e.__setitem__(-1, {"type": "response.failed", "response": {**e[-1]["response"], "status": "failed", "completed_at": None, "error": {"code": "c", "message": "m", "type": "t", "param": None}}}), "without an `error` event"),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_recording_is_noticed(name):
    breaks, expected = BREAKS[name]
    events = recording()
    breaks(events)
    found = checked(written(events))
    assert any(expected in each for each in found), found


@pytest.mark.parametrize(
    "breaks, expected",
    [
        (lambda w: w.pop(), "does not end with [DONE]"),
        (lambda w: w.append(w[3]), "after [DONE]"),
        (lambda w: w.__setitem__(3, w[3].split(b"\n", 1)[1]), "not one event line"),
        (lambda w: w.__setitem__(3, w[3].replace(b"event: response.", b"event: responses.", 1)), "before an event of type"),
        (lambda w: w.__setitem__(slice(3, 4), [w[3][:20], w[3][20:]]), "more than one write"),
        (lambda w: w.__setitem__(3, w[3][:-1]), "more than one write"),
        (lambda w: w.__setitem__(3, b"id: 3\n" + w[3]), "not one event line"),
        (lambda w: w.append(b"event: response"), "half an event"),
    ],
)
def test_a_broken_stream_is_noticed(breaks, expected):
    writes = written(recording())
    breaks(writes)
    found = checked(writes)
    assert any(expected in each for each in found), found


@pytest.mark.parametrize(
    "breaks, expected",
    [
        (lambda e: e[-3].pop("error"), "flat and nested"),
        (lambda e: e[-3].pop("code"), "flat and nested"),
        (lambda e: e[-3]["error"].update(message="other"), "differ"),
        (lambda e: e.pop(-3), "without an `error` event"),
        (lambda e: e.pop(-2), "not done before"),
        (lambda e: e[-1]["response"].update(error=None), "error None"),
        (lambda e: e[-1]["response"]["error"].pop("type"), "no `type`"),
    ],
)
def test_a_broken_failure_is_noticed(breaks, expected):
    events = failed()
    breaks(events)
    found = checked(written(events))
    assert any(expected in each for each in found), found


def test_whole_answers():
    whole = recording()[-1]["response"]
    assert response_violations(whole) == []
    text = {"type": "message", "id": "msg_3", "status": "completed", "role": "assistant", "phase": "commentary",
            "content": [{"type": "output_text", "text": "", "annotations": [], "logprobs": []}]}  # fmt: skip
    assert "phase" in response_violations({**whole, "output": [text]})[0]
    assert "usage" in " ".join(response_violations({**whole, "usage": None}))
    assert "one id" in " ".join(response_violations({**whole, "output": [whole["output"][4]] * 2}))
    assert item_violations(None) and item_violations({"type": "message"})
    tools = [{"name": "n", "input_schema": {"type": "object"}, "annotations": None}]
    listed = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": tools}
    assert "annotations" in item_violations(listed)[0]


def test_errors():
    error = {"message": "m", "type": "t", "param": None, "code": None}
    assert error_violations({"error": error}, "a 400") == []
    assert error_violations({"error": {"message": "m"}}, "a 400")
    assert error_violations({"detail": "m"}, "a 400")
