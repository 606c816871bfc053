"""Odd and hostile requests to the Responses API: each is refused as the contract says, and none harms the server."""

import gzip
import http.client
import json
from urllib.parse import urlsplit

import pytest
import zstandard

from conftest import ALICE, BOB, MODEL, user

MIB = 1024 * 1024
KEY = {"authorization": f"Bearer {ALICE}"}
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


def send(url, method, path, body=None, headers=()):
    """Status, headers and JSON of an answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    try:
        try:
            connection.request(method, parts.path + path, data, {"content-type": "application/json", **dict(headers)})
        except (BrokenPipeError, ConnectionResetError):
            # The answer may come before the end of a body that is too large.
            pass
        answer = connection.getresponse()
        text = answer.read()
        whole = text and not answer.headers["content-type"].startswith("text/event-stream")
        return answer.status, answer.headers, json.loads(text) if whole else None
    finally:
        connection.close()


@pytest.fixture
def post(servers):
    def post(body, path="/responses", **options):
        """Status and error of an answer; a dict gets a model and an input."""
        body = {"model": MODEL, "input": "plain question", **body} if isinstance(body, dict) else body
        status, _, answer = send(servers.responses_url, "POST", path, body, **options)
        return status, (answer or {}).get("error")

    return post


@pytest.fixture
def ask(servers):
    return lambda method, path, body=None, **options: send(servers.responses_url, method, path, body, **options)


@pytest.fixture(autouse=True)
def alive(post):
    yield
    assert post({}) == (200, None)


def is_refused(answer, param, code=None, status=400):
    found, error = answer
    assert found == status, error
    assert (error["param"] or "").startswith(param), error
    if code:
        assert error["code"] == code, error
    assert error["message"]


# Values of wrong types, and values that mean nothing.
NUMBERS = ["much", [], {}, True]
TEXTS = [1, [], {}, True]
FLAGS = ["yes", 1, [], {}]
WRONG = {
    "model": [1, [], {}, None],
    "input": [
        1, None, True, {}, "", [], [1], [None], [[]], ["text"], [{}], [{"type": 1}], [{"type": "message"}], [{"role": "user"}],
        [{"role": "martian", "content": "x"}], [{"role": "user", "content": 1}], [{"role": "user", "content": [1]}],
        [{"role": "user", "content": [{"type": "input_text"}]}], [{"role": "user", "content": [{"type": "input_text", "text": 1}]}],
        [{"role": "user", "content": [{"type": "input_smell", "smell": "x"}]}], [{"role": "user", "content": [{"type": "input_image"}]}],
        [{"role": "user", "content": [{"type": "input_image", "file_id": "file-unknown"}]}],
        [{"role": "user", "content": [{"type": "input_file", "file_id": "file-unknown"}]}],
        [{"type": "function_call", "name": "f", "arguments": "{}"}], [{"type": "function_call", "call_id": "c", "arguments": "{}"}],
        [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}], [{"type": "function_call_output", "output": "x"}],
        [{"type": "function_call_output", "call_id": "c"}], [{"type": "function_call_output", "call_id": 1, "output": "x"}],
        [{"type": "item_reference"}], [{"type": "item_reference", "id": 1}], [{"type": "reasoning", "summary": 1}],
        [{"type": "telepathy", "id": "x"}],
    ],
    "instructions": [1, {}, True],
    "temperature": NUMBERS, "top_p": NUMBERS, "presence_penalty": NUMBERS, "frequency_penalty": NUMBERS,
    "parallel_tool_calls": FLAGS, "store": FLAGS, "background": FLAGS, "stream": FLAGS,
    "user": TEXTS, "service_tier": TEXTS, "prompt_cache_key": TEXTS, "safety_identifier": TEXTS,
    "max_output_tokens": [*NUMBERS, -1, 0, 1.5], "max_tool_calls": [*NUMBERS, -1, 1.5], "top_logprobs": [*NUMBERS, -1, 1.5],
    "reasoning": ["high", 1, [], {"effort": 1}, {"summary": 1}, {"summary": "poem"}],
    "text": ["x", 1, [], {"format": 1}, {"format": {"type": "xml"}}, {"format": {"type": "json_schema"}}, {"verbosity": 1}],
    "tool_choice": [
        "sometimes", 1, [], {"type": "function"}, {"type": "function", "name": "unknown"}, {"type": "teleport"},
        {"type": "allowed_tools"}, {"type": "allowed_tools", "mode": "maybe", "tools": []}, {"type": "mcp"},
    ],
    "previous_response_id": [1, [], {}, True, "", "resp_unknown", "x" * 10_000, "../resp_1"],
    "include": ["x", 1, {}, [1], [None], ["unknown"], ["message.output_text.logprobs", "unknown"]],
    "truncation": ["maybe", 1, {}],
    "metadata": ["x", 1, [], {"a": 1}, {"a": None}, {str(number): "x" for number in range(17)}, {"k" * 65: "x"}, {"k": "x" * 513}],
    "stream_options": ["x", 1, []],
    "tools": [
        "x", 1, {}, [1], [None], [{}], [{"type": 1}], [{"type": "teleport"}], [{"type": "file_search", "vector_store_ids": []}],
        [{"type": "function"}], [{"type": "function", "name": 1}], [{**FUNCTION, "parameters": "x"}], [{**FUNCTION, "strict": "x"}],
        [{"type": "function", "function": {"name": "f"}}], [{"type": "custom"}],
        [{"type": "namespace", "name": "n"}], [{"type": "namespace", "name": "n", "tools": [1]}],
        [{"type": "mcp"}], [{"type": "mcp", "server_label": "s", "connector_id": "connector_gmail"}],
        [{"type": "mcp", "server_label": "s", "server_url": "http://127.0.0.1:1/mcp"}],
        [{"type": "code_interpreter", "container": 1}], [{"type": "web_search", "search_context_size": 1}],
    ],
    "prompt": [{"id": "pmpt_1"}], "context_management": [[{"type": "compaction"}]], "moderation": [{"model": "m"}],
    "agent": ["x", 1, [], {"unknown": 1}, {"progress": "loud"}], "session_id": [1, "", "a b", "x" * 129],
    "max_tool_rounds": ["x", -1], "files": ["x", [1]],
}  # fmt: skip


@pytest.mark.parametrize("field", WRONG)
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_value_is_refused_by_its_name(post, field, stream):
    kept = []
    for value in WRONG[field]:
        # `param` names the field itself where the value stands in `stream`.
        body = {"stream": stream, "tools": [FUNCTION], field: value}
        status, error = post(body)
        named = error and ((error.get("param") or "") + error["message"])
        if status != 400 or field not in named:
            kept.append((value if len(str(value)) < 90 else "…", status, error))
    assert not kept, "\n".join(map(repr, kept))


# A request that holds something of everything.
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"], "additionalProperties": False}
EVERYTHING = {
    "model": MODEL,
    "instructions": "Be odd.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "odd"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "odd"},
                                     {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"},
                                     {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,YQ=="}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary",
         "content": [{"type": "output_text", "text": "Hm.", "annotations": [], "logprobs": []}, {"type": "refusal", "refusal": "No."}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1", "container_id": "cntr_1",
         "outputs": [{"type": "logs", "logs": "1"}]},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": [{"name": "n", "input_schema": SCHEMA}]},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "n", "arguments": "{}", "output": "o"},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}", "status": "completed"},
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "o"}]},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "c", "input": "i"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "o"},
        {"role": "user", "content": "odd"},
    ],
    "tools": [
        {"type": "function", "name": "get_ticket", "description": "d", "parameters": SCHEMA, "strict": True},
        {"type": "custom", "name": "c", "description": "d", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
        {"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}]},
        {"type": "web_search", "external_web_access": False, "search_context_size": "low", "filters": {"allowed_domains": ["a.b"]},
         "user_location": {"type": "approximate", "city": "Oslo"}},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_ticket"}]},
    "text": {"format": {"type": "json_schema", "name": "t", "schema": SCHEMA, "strict": True, "description": "d"}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    "metadata": {"a": "b"}, "temperature": 0.5, "top_p": 0.5, "presence_penalty": 0.5, "frequency_penalty": 0.5,
    "top_logprobs": 1, "max_output_tokens": 100, "max_tool_calls": 5, "parallel_tool_calls": True, "user": "u", "store": True,
    "service_tier": "auto", "prompt_cache_key": "k", "safety_identifier": "s", "truncation": "disabled", "background": False,
    "stream_options": {"include_obfuscation": False}, "client_metadata": {"a": 1}, "session_id": None,
    "agent": {"progress": "auto", "tools": {"allow": ["*"]}, "limits": {"max_tool_calls": 3}}, "max_tool_rounds": 3,
}  # fmt: skip
ODD = {
    False: [None, -1, "x", {"type": "x"}, ...],
    # Most of it is as without a stream.
    True: [-1],
}


def places(value, path=()):
    """The paths of all values inside of a value."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(value, path, odd):
    """The value with something else at a path; `...`: nothing."""
    if not path:
        return odd
    key, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = changed(value[key], rest, odd)
    if copy[key] is ...:
        del copy[key]
    return copy


@pytest.mark.parametrize("stream", [False, True])
def test_no_value_at_any_place_is_a_fault_of_the_server(servers, stream):
    """The recorder holds what is answered against the types besides."""
    checked, direct = (http.client.HTTPConnection(urlsplit(url).netloc, timeout=30) for url in (servers.responses_url, servers.url))
    found, counts = [], {}
    for path in places(EVERYTHING):
        # The members of tools that are no functions, and those of a JSON format, come back as they were sent.
        as_sent = path[:2] == ("text", "format") or path[0] == "tools" and len(path) > 2 and path[1] > 0
        connection = direct if as_sent else checked
        for odd in ODD[stream]:
            body = json.dumps({**changed(EVERYTHING, path, odd), "stream": stream})
            connection.request("POST", "/v1/responses", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            counts[answer.status] = counts.get(answer.status, 0) + 1
            if answer.status not in (200, 400, 404):
                found.append((path, odd, answer.status, text[:200]))
    for connection in (checked, direct):
        connection.close()
    assert not found, "\n".join(map(repr, found[:40]))
    # Neither is everything refused, nor nothing.
    assert counts[200] > 50 and counts[400] > 50, counts


def test_null_is_absent(post, servers):
    names = set(WRONG) - {"model", "input", "agent", "session_id", "max_tool_rounds", "files"}
    assert post({name: None for name in names} | {"conversation": None}) == (200, None)


def test_what_must_be_there(servers):
    for body, param in (({}, ""), ({"model": MODEL}, "input"), ({"input": "plain"}, "model")):
        status, _, answer = send(servers.responses_url, "POST", "/responses", body)
        is_refused((status, answer["error"]), param)


def test_an_unknown_item_is_named_with_its_place(post):
    status, error = post({"input": [user("plain"), {"type": "telepathy", "id": "x"}]})
    is_refused((status, error), "input")
    assert "telepathy" in error["message"] and "1" in error["param"] + error["message"]


def test_references_that_lead_nowhere(post):
    is_refused(post({"previous_response_id": "resp_unknown"}), "previous_response_id", "previous_response_not_found")
    is_refused(post({"conversation": "conv_unknown"}), "conversation", status=404)
    is_refused(post({"conversation": {"id": "conv_unknown"}}), "conversation", status=404)
    unknown = {"type": "item_reference", "id": "msg_unknown"}
    is_refused(post({"input": [unknown, user("plain")]}), "input", "item_not_found", 404)
    lost = {"type": "function_call_output", "call_id": "call_unknown", "output": "x"}
    is_refused(post({"input": [user("plain"), lost]}), "input", "no_tool_call_found")
    lost = {"type": "custom_tool_call_output", "call_id": "call_unknown", "output": "x"}
    is_refused(post({"input": [user("plain"), lost]}), "input", "no_tool_call_found")


def test_an_unknown_tool_is_named(post):
    status, error = post({"tools": [FUNCTION, {"type": "computer_use_preview"}]})
    is_refused((status, error), "tools[1]", "unsupported_tool")
    assert "computer_use_preview" in error["message"]


def test_conversation_values(post):
    for value in (1, [], {}, True, {"id": 1}):
        is_refused(post({"conversation": value}), "conversation")


def test_fields_that_exclude_each_other(post, ask):
    status, _, conversation = ask("POST", "/conversations", {})
    assert status == 200
    _, _, response = ask("POST", "/responses", {"model": MODEL, "input": "plain question"})
    both = {"conversation": conversation["id"], "previous_response_id": response["id"]}
    assert post(both)[0] == 400
    assert post({"conversation": conversation["id"], "session_id": "another"})[0] == 400
    is_refused(post({"background": True, "store": False}), "background")


def test_containers_that_do_not_exist(servers):
    tool = {"type": "code_interpreter", "container": "cntr_unknown"}
    body = {"model": MODEL, "input": "plain question", "tools": [tool]}
    status, _, answer = send(servers.keyed_responses_url, "POST", "/responses", body, KEY)
    assert status == 404, answer
    for path in ("", "/files", "/files/file-unknown", "/files/file-unknown/content"):
        assert send(servers.keyed_responses_url, "GET", f"/containers/cntr_unknown{path}", None, KEY)[0] == 404


def test_paths_and_methods(ask):
    for method, path in (
        ("GET", "/responses/resp_unknown"), ("DELETE", "/responses/resp_unknown"), ("POST", "/responses/resp_unknown/cancel"),
        ("GET", "/responses/resp_unknown/input_items"), ("GET", "/responses/" + "x" * 4000), ("GET", "/responses/..%2f..%2fetc"),
        ("GET", "/responses/%00"), ("GET", "/responses/resp_%F0%9F%92%A5"), ("POST", "/responses/compact"),
        ("GET", "/conversations/conv_unknown"), ("DELETE", "/conversations/conv_unknown"),
        ("GET", "/conversations/conv_unknown/items"), ("GET", "/conversations/conv_unknown/items/msg_1"),
    ):  # fmt: skip
        status, _, answer = ask(method, path, {} if method == "POST" else None)
        assert status in (400, 404), (method, path, status, answer)
    assert ask("GET", "/responses")[0] in (404, 405)
    assert ask("POST", "/conversations/conv_unknown", {"metadata": {}})[0] == 404
    assert ask("POST", "/conversations/conv_unknown/items", {"items": [user("x")]})[0] == 404


def test_wrong_queries(ask):
    _, _, response = ask("POST", "/responses", {"model": MODEL, "input": "plain question"})
    _, _, conversation = ask("POST", "/conversations", {"items": [{"type": "message", **user("x")}]})
    for path in (f"/responses/{response['id']}/input_items", f"/conversations/{conversation['id']}/items"):
        for query in ("limit=0", "limit=101", "limit=x", "limit=-1", "order=sideways", "after=unknown"):
            status, _, answer = ask("GET", f"{path}?{query}")
            assert status in (400, 404), (path, query, status)
    for query in ("stream=maybe", "stream=true&starting_after=x", "stream=true&starting_after=-2"):
        assert ask("GET", f"/responses/{response['id']}?{query}")[0] == 400, query


def test_wrong_conversations(ask):
    for body in ([], "x", {"metadata": 1}, {"metadata": {"a": 1}}, {"items": 1}, {"items": [1]}, {"items": [{"type": "telepathy"}]}):
        assert ask("POST", "/conversations", body)[0] == 400, body
    _, _, conversation = ask("POST", "/conversations", {})
    for body in ([], {}, {"items": 1}, {"items": [1]}, {"items": [{"type": "item_reference", "id": "msg_unknown"}]}):
        assert ask("POST", f"/conversations/{conversation['id']}/items", body)[0] in (400, 404), body


def test_bodies_that_are_no_requests(post):
    for body in (b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b'{"model":"\xff"}', b"[" * 100_000, b'{"input":' * 5000):
        status, error = post(body)
        assert status == 400, (body[:20], status)
    assert post(b"{}", headers={"content-type": "text/plain"})[0] == 415
    assert post(b'{"model":"m","input":"x","temperature":1e999}')[0] == 400


def test_odd_texts_and_many_things(post):
    for text in ("\0", "\u202e", "😀" * 1000, "\ufeff", "<|im_start|>system", "]}" * 100):
        assert post({"input": text}) == (200, None)
    assert post(b'{"model":"%s","input":"plain \\ud800"}' % MODEL.encode())[0] in (200, 400)
    assert post({"input": [user(f"plain {number}") for number in range(2000)]}) == (200, None)
    tools = [{**FUNCTION, "name": f"f{number}"} for number in range(500)]
    assert post({"tools": tools}) == (200, None)
    references = [{"type": "item_reference", "id": f"msg_{number}"} for number in range(5000)]
    assert post({"input": references})[0] == 404


@pytest.mark.parametrize("path", ["/responses", "/chat/completions"])
def test_encoded_bodies(servers, path):
    body = {"model": MODEL, "input": "plain question"} if path == "/responses" else {"model": MODEL, "messages": [user("plain")]}
    plain = json.dumps(body).encode()
    packed = {"gzip": gzip.compress(plain), "zstd": zstandard.compress(plain)}
    large = b'{"model":"m","input":"' + b"x" * (33 * MIB) + b'"}'
    bombs = {"gzip": gzip.compress(large), "zstd": zstandard.compress(large)}

    def status(data, encoding):
        # Not through the recorder, which would wait for the whole of a body that is refused before its end.
        return send(servers.url, "POST", path, data, {"content-encoding": encoding})[0]

    for encoding, data in packed.items():
        assert status(data, encoding) == 200
        assert status(data.replace(data[-9:], b""), encoding) == 400
        assert status(plain, encoding) == 400
        assert status(bombs[encoding], encoding) == 413
        assert status(data, f"{encoding}, {encoding}") == 415
    assert status(plain, "identity") == 200
    assert status(plain, "br") == 415
    assert status(plain, "gzip, zstd") == 415
    assert send(servers.url, "POST", path, large)[0] == 413


def test_without_a_key_nothing_is_told(servers):
    for method, path in (
        ("POST", "/responses"), ("GET", "/responses/resp_1"), ("DELETE", "/responses/resp_1"), ("POST", "/responses/resp_1/cancel"),
        ("GET", "/responses/resp_1/input_items"), ("POST", "/responses/input_tokens"), ("POST", "/conversations"),
        ("GET", "/conversations/conv_1"), ("GET", "/conversations/conv_1/items"), ("GET", "/containers/cntr_1"),
        ("GET", "/containers/cntr_1/files"), ("GET", "/containers/cntr_1/files/file-1/content"),
    ):  # fmt: skip
        status, _, answer = send(servers.keyed_responses_url, method, path, {} if method == "POST" else None)
        assert (status, answer["error"]["code"]) == (401, "invalid_api_key"), (method, path)


def test_calls_and_items_of_another_key(servers):
    def ask(key, body):
        body = {"model": MODEL, **body}
        return send(servers.keyed_responses_url, "POST", "/responses", body, {"authorization": f"Bearer {key}"})

    tool = {"type": "function", "name": "get_local_time", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    _, _, response = ask(ALICE, {"input": "client please", "tools": [tool]})
    call = response["output"][-1]
    assert call["type"] == "function_call"
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "stolen"}
    status, _, answer = ask(BOB, {"input": [result], "tools": [tool]})
    assert (status, answer["error"]["code"]) == (400, "no_tool_call_found")
    for item in response["output"]:
        status, _, answer = ask(BOB, {"input": [{"type": "item_reference", "id": item["id"]}, result], "tools": [tool]})
        assert status in (400, 404) and "stolen" not in json.dumps(answer)
        # Whole items of another key are only words of the caller: nothing of that session comes along.
    status, _, answer = ask(BOB, {"input": [user("recall it"), *response["output"], result], "tools": [tool]})
    assert status in (200, 400) and "open since Tuesday" not in json.dumps(answer.get("output", "")).replace(json.dumps(response["output"]), "")
    assert ask(ALICE, {"input": [result], "tools": [tool]})[0] == 200


def test_ids_of_the_caller_are_not_looked_up(post):
    said = {"type": "message", "role": "assistant", "id": "msg_of_the_caller", "status": "completed"}
    said["content"] = [{"type": "output_text", "text": "Hello.", "annotations": []}]
    calls = [
        {"type": "function_call", "id": "fc_x", "call_id": "call_x", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "id": "fco_x", "call_id": "call_x", "output": "x"},
        {"type": "reasoning", "id": "rs_x", "summary": [], "encrypted_content": "x"},
        {"type": "web_search_call", "id": "ws_x", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "code_interpreter_call", "id": "ci_x", "status": "completed", "code": "1", "container_id": "c", "outputs": None},
        {"type": "mcp_list_tools", "id": "mcpl_x", "server_label": "s", "tools": []},
        {"type": "mcp_call", "id": "mcp_x", "server_label": "s", "name": "n", "arguments": "{}", "output": "o"},
    ]
    assert post({"input": [user("hello"), said, *calls, user("plain question")], "tools": [FUNCTION]}) == (200, None)
