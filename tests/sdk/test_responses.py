"""The Responses API in OpenAI's Python SDK against loopwright. What comes is checked besides by `recorder.py`."""

import asyncio
import json
import os
import uuid

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from conftest import ALICE, BOB, MODEL, TICKET_STATE, user

PLAIN_TEXT = "The capital of Norway is Oslo."
NINE = "half past nine"


def function(name, **properties):
    parameters = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "name": name, "strict": True, "parameters": parameters}


GET_TICKET = function("get_ticket", id="integer")
GET_LOCAL_TIME = function("get_local_time", city="string")
CHARGE_CARD = function("charge_card", reference="string")


@pytest.fixture(scope="module")
def client(servers):
    with OpenAI(base_url=servers.responses_url, api_key="not-needed", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def alice(servers):
    with OpenAI(base_url=servers.keyed_responses_url, api_key=ALICE, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def bob(servers):
    with OpenAI(base_url=servers.keyed_responses_url, api_key=BOB, max_retries=0) as client:
        yield client


def created(client, **request):
    return client.responses.create(model=MODEL, **request)


def streamed(client, **request):
    """The loop of every example on the web."""
    for event in client.responses.create(model=MODEL, stream=True, **request):
        if event.type in ("response.completed", "response.incomplete", "response.failed"):
            return event.response
    raise AssertionError("the stream has no terminal event")


def helper(client, **request):
    """The helper that adds the events up by itself."""
    with client.responses.stream(model=MODEL, **request) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


# The three ways to ask, which come to the same answer.
WAYS = pytest.mark.parametrize("way", [created, streamed, helper])


def unique(scenario):
    return f"{scenario} {uuid.uuid4()}"


def kinds(response):
    return [item.type for item in response.output]


def result(call, text):
    return {"type": "function_call_output", "call_id": call.call_id, "output": text}


def client_call(response):
    (call,) = [item for item in response.output if item.type == "function_call"]
    return call


def collect(client, **request):
    return list(client.responses.create(model=MODEL, stream=True, **request))


# --- text --------------------------------------------------------------------------------------------------------------


@WAYS
def test_plain_text(client, way):
    response = way(client, input="plain question")
    assert response.output_text == PLAIN_TEXT
    assert (response.status, response.error, response.incomplete_details) == ("completed", None, None)
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (10, 5, 15)


@WAYS
def test_instructions_and_items(client, servers, way):
    prompt = unique("plain")
    message = {"role": "user", "content": [{"type": "input_text", "text": prompt}]}
    response = way(client, instructions="Be short.", input=[message], metadata={"a": "b"}, temperature=0.5)
    assert response.output_text == PLAIN_TEXT
    assert (response.instructions, response.metadata, response.temperature) == ("Be short.", {"a": "b"}, 0.5)
    (call,) = [body for body in map(lambda call: call["body"], servers.all_model_calls()) if prompt in json.dumps(body)]
    assert call["messages"][0] == {"role": "system", "content": "Be short."}
    assert call["temperature"] == 0.5


@WAYS
def test_reasoning(client, way):
    response = way(client, input="think hard")
    assert kinds(response) == ["reasoning", "message"]
    reasoning = response.output[0]
    assert (reasoning.summary, reasoning.content[0].text) == ([], "Let me see. Six times seven.")
    response = way(client, input="think hard", reasoning={"summary": "auto"})
    assert response.output[0].summary[0].text == "Let me see. Six times seven."
    assert not response.output[0].content


def test_encrypted_reasoning_comes_back(client, servers):
    request = {"store": False, "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}
    first = created(client, input="think hard", **request)
    assert first.output[0].encrypted_content
    items = [item.model_dump(exclude_unset=True) for item in first.output]
    assert created(client, input=[user("think hard"), *items, user("plain question")], **request).output_text == PLAIN_TEXT
    items[0]["encrypted_content"] = "of another server"
    assert created(client, input=[user("think hard"), *items, user("plain question")], **request).output_text == PLAIN_TEXT


def test_the_words_come_as_the_model_says_them(client):
    events = collect(client, input="plain question")
    assert sum(event.type == "response.output_text.delta" for event in events) > 3


def test_the_arguments_come_as_the_model_says_them(client):
    tools = [{"type": "namespace", "name": "clock", "description": "Clocks.", "tools": [GET_LOCAL_TIME]}]
    events = collect(client, input="clock please", tools=tools)
    assert sum(event.type == "response.function_call_arguments.delta" for event in events) > 1


@WAYS
def test_log_probabilities(client, servers, way):
    prompt = unique("plain")
    response = way(client, input=prompt, include=["message.output_text.logprobs"], top_logprobs=1)
    logprobs = response.output[0].content[0].logprobs
    assert "".join(each.token for each in logprobs) == PLAIN_TEXT
    assert logprobs[0].top_logprobs[0].logprob == -0.25 and response.top_logprobs == 1
    (call,) = servers.model_calls(prompt)
    assert (call["logprobs"], call["top_logprobs"]) == (True, 1)


def test_a_text_that_is_cut_off(client):
    for way in (created, streamed):
        response = way(client, input="cut please", max_output_tokens=20)
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert response.output_text == "The capital of Norway" and response.max_output_tokens == 20


@WAYS
def test_a_refusal(client, way):
    response = way(client, input="decline please")
    (message,) = response.output
    (part,) = message.content
    assert (part.type, part.refusal) == ("refusal", "I will not say that.")


def test_an_image(client, servers):
    prompt, image = unique("plain"), "data:image/png;base64,iVBORw0KGgo="
    parts = [{"type": "input_image", "image_url": image, "detail": "low"}, {"type": "input_text", "text": prompt}]
    created(client, input=[{"role": "user", "content": parts}])
    (call,) = [each["body"] for each in servers.all_model_calls() if prompt in json.dumps(each["body"])]
    expected = {"type": "image_url", "image_url": {"url": image, "detail": "low"}}
    assert call["messages"][-1]["content"] == [expected, {"type": "text", "text": prompt}]


def test_system_texts(client, servers):
    """The leading ones are one message; those after the first question are reminders."""
    prompt = unique("plain")
    said = [
        {"role": "system", "content": "One."},
        {"role": "developer", "content": [{"type": "input_text", "text": "Two."}]},
        user(prompt),
        {"role": "developer", "content": "Three."},
    ]
    assert created(client, input=said, instructions="Zero.").output_text == PLAIN_TEXT
    (call,) = [each["body"] for each in servers.all_model_calls() if prompt in json.dumps(each["body"])]
    system, first, reminder = call["messages"]
    assert system == {"role": "system", "content": "Zero.\n\nOne.\n\nTwo."}
    assert first["content"] == prompt and reminder["role"] == "user"
    text = reminder["content"]
    assert text.startswith("<system-reminder>") and "Three." in text and text.endswith("</system-reminder>")


def test_a_budget_for_the_whole_response(client, servers):
    prompt = unique("five")
    for way in (created, streamed):
        response = way(client, input=prompt, tools=[GET_TICKET], max_output_tokens=20)
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    # Each round takes seven tokens.
    budgets = [call["max_completion_tokens"] for call in servers.model_calls(prompt)]
    assert budgets == [20, 13, 6] * 2


def test_what_a_stream_begins_with(client):
    raw = client.responses.with_raw_response.create(model=MODEL, input="ticket please", tools=[GET_TICKET], stream=True)
    assert raw.headers["content-type"].startswith("text/event-stream")
    assert raw.headers["x-request-id"]
    first = next(iter(raw.parse()))
    assert (first.response.output, first.response.usage) == ([], None)
    # The answers of one run differ in the prefix of their ids only.
    assert raw.headers["x-completion-id"].partition("_")[2] == first.response.id.partition("_")[2]


def test_what_loopwright_adds(client):
    for way in (created, streamed):
        response = way(client, input="ticket please", tools=[GET_TICKET])
        extra = response.model_extra
        assert extra["session_id"] and extra["agent"]["stop_reason"] == "completed"
        assert (extra["agent"]["rounds"], extra["agent"]["model_calls"]) == (1, 2)


def test_the_choice_of_a_tool(client, servers):
    def choice(tool_choice):
        prompt = unique("plain")
        response = created(client, input=prompt, tools=[GET_LOCAL_TIME, CHARGE_CARD], tool_choice=tool_choice)
        assert json.loads(response.model_dump_json())["tool_choice"] == tool_choice
        return servers.model_calls(prompt)[0]

    for plain in ("none", "auto", "required"):
        assert choice(plain)["tool_choice"] == plain
    named = {"type": "function", "name": "get_local_time"}
    assert choice(named)["tool_choice"] == {"type": "function", "function": {"name": "get_local_time"}}
    allowed = choice({"type": "allowed_tools", "mode": "required", "tools": [named]})
    assert "get_local_time" in json.dumps(allowed["tool_choice"]) or len(allowed["tools"]) == 1


def test_fields_of_the_same_name(client, servers):
    fields = {"temperature": 0.25, "top_p": 0.5, "parallel_tool_calls": False, "user": "ada", "safety_identifier": "s1",
              "prompt_cache_key": "k1"}  # fmt: skip
    prompt = unique("plain")
    response = created(client, input=prompt, tools=[GET_LOCAL_TIME], reasoning={"effort": "low"}, **fields)
    (call,) = servers.model_calls(prompt)
    for name, value in fields.items():
        assert (getattr(response, name), call[name]) == (value, value)
    assert (response.reasoning.effort, call["reasoning_effort"]) == ("low", "low")


# --- a tool of the server in the middle --------------------------------------------------------------------------------


@WAYS
def test_a_dispatched_tool_is_an_mcp_call(client, way):
    response = way(client, input="ticket please", tools=[GET_TICKET])
    assert kinds(response) == ["message", "mcp_call", "message"]
    before, call, after = response.output
    assert (before.content[0].text, before.phase) == ("Let me look. \n\n", "commentary")
    assert response.output_text == "Let me look. \n\n" + after.content[0].text
    assert (call.server_label, call.name, call.status) == ("loopwright", "get_ticket", "completed")
    assert json.loads(call.arguments) == {"id": 42}
    assert json.loads(call.output) == {"ticket": 42, "state": TICKET_STATE}
    assert TICKET_STATE in after.content[0].text and after.phase == "final_answer"
    assert response.usage.total_tokens == 52
    assert response.tools[0].name == "get_ticket"


@WAYS
def test_a_tool_that_fails(client, way):
    response = way(client, input="fail please", tools=[GET_TICKET])
    call, message = response.output
    assert (call.type, call.status) == ("mcp_call", "failed")
    assert "there is no ticket -1" in call.error.model_dump_json()
    assert "there is no ticket -1" in message.content[0].text


def desk(token="token-of-the-desk", **more):
    """The MCP server that a request may declare."""
    url = f"{os.environ['LOOPWRIGHT_TEST_DESK']}/mcp"
    server = {"type": "mcp", "server_label": "desk", "server_url": url, "require_approval": "never"}
    return [{**server, "authorization": token, **more}]


@WAYS
def test_an_mcp_server_of_the_request(alice, way):
    response = way(alice, input="hours Monday", tools=desk())
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    listed, call, message = response.output
    assert (listed.server_label, [tool.name for tool in listed.tools]) == ("desk", ["get_hours"])
    assert (call.server_label, call.name, call.status, call.output) == ("desk", "get_hours", "completed", "nine to five on Monday")
    assert "nine to five on Monday" in message.content[0].text
    # The token is nobody's to read.
    assert "token-of-the-desk" not in response.model_dump_json()
    assert "token-of-the-desk" not in alice.responses.retrieve(response.id).model_dump_json()


@WAYS
def test_an_mcp_server_that_fails(alice, way):
    response = way(alice, input="hours Sunday", tools=desk())
    call = next(item for item in response.output if item.type == "mcp_call")
    assert call.status == "failed" and "closed on Sunday" in call.error.model_dump_json()


def test_what_an_mcp_server_of_a_request_must_say(alice):
    for more in ({"require_approval": "sometimes"}, {"server_url": None}, {"connector_id": "connector_gmail", "server_url": None}):
        with pytest.raises(openai.BadRequestError) as refused:
            created(alice, input="hours Monday", tools=desk(**more))
        assert refused.value.param.startswith("tools[0]")


def test_a_tool_that_the_server_declares_itself(alice):
    assert kinds(created(alice, input="ticket please")) == ["message", "mcp_call", "message"]


@WAYS
def test_two_calls_at_once(client, way):
    response = way(client, input="pair please", tools=[GET_TICKET])
    assert kinds(response) == ["reasoning", "message", "mcp_call", "mcp_call", "message"]
    assert [json.loads(item.arguments)["id"] for item in response.output[2:4]] == [1, 2]
    assert [json.loads(item.output)["ticket"] for item in response.output[2:4]] == [1, 2]


def test_calls_at_once_are_shown_before_they_end(client):
    events = collect(client, input="pair please", tools=[GET_TICKET])
    calls = [event for event in events if getattr(event, "item", None) and event.item.type == "mcp_call"]
    assert [event.type.rpartition(".")[2] for event in calls] == ["added", "added", "done", "done"]
    assert [event.output_index for event in calls[:2]] == [2, 3]


@WAYS
def test_five_rounds(client, way):
    response = way(client, input="five tickets", tools=[GET_TICKET])
    assert kinds(response) == ["message", "mcp_call"] * 5 + ["message"]
    assert len({item.id for item in response.output}) == 11


@pytest.mark.parametrize("progress, expected", [("none", 0), ("declared", 0), ("auto", 1), ("named", 1)])
def test_progress_modes(client, alice, progress, expected):
    for more in ({"extra_body": {"agent": {"progress": progress}}}, {"extra_headers": {"x-loopwright-progress": progress}}):
        for way in (created, streamed):
            # A function that the client declares is no tool of an MCP server to it.
            response = way(client, input="ticket please", tools=[GET_TICKET], **more)
            assert kinds(response).count("mcp_call") == expected
            assert TICKET_STATE in response.output_text
            response = way(alice, input="ticket please", **more)
            assert kinds(response).count("mcp_call") == expected
            response = way(alice, input="search please", tools=[{"type": "web_search"}], **more)
            assert kinds(response).count("web_search_call") == (0 if progress == "none" else 1)


@WAYS
def test_search_and_its_citations(alice, way):
    include = ["web_search_call.action.sources"]
    response = way(alice, input="search please", tools=[{"type": "web_search"}], include=include)
    search, message = response.output
    assert (search.type, search.status, search.action.type) == ("web_search_call", "completed", "search")
    assert search.action.query == "capital of Norway"
    assert [source.url.endswith("/oslo") for source in search.action.sources] == [True]
    (citation,) = message.content[0].annotations
    assert citation.type == "url_citation" and citation.url.endswith("/oslo")
    assert message.content[0].text[citation.start_index : citation.end_index] == "[1]"


def test_sources_only_where_they_are_asked_for(alice):
    response = created(alice, input="search please", tools=[{"type": "web_search"}])
    assert "sources" not in response.output[0].action.model_dump(exclude_unset=True)


@WAYS
def test_code_its_output_and_its_files(alice, way):
    uploaded = alice.files.create(file=("in.csv", b"40\n2\n"), purpose="user_data")
    container = {"type": "auto", "file_ids": [uploaded.id]}
    tools = [{"type": "code_interpreter", "container": container}]
    response = way(alice, input="code please", tools=tools, include=["code_interpreter_call.outputs"])
    assert kinds(response) == ["message", "code_interpreter_call", "message"]
    call = response.output[1]
    assert call.container_id.startswith("cntr_") and "in.csv" in call.code
    logs = "".join(each.logs for each in call.outputs if each.type == "logs")
    assert "seen 40" in logs and "seen 2" in logs
    (cited,) = [each for each in response.output[2].content[0].annotations if each.type == "container_file_citation"]
    assert (cited.filename, cited.container_id) == ("out.csv", call.container_id)
    content = alice.containers.files.content.retrieve(cited.file_id, container_id=cited.container_id)
    assert content.read() == b"total\n42\n"
    assert alice.files.content(cited.file_id).read() == b"total\n42\n"
    assert alice.containers.retrieve(cited.container_id).id == cited.container_id
    listed = list(alice.containers.files.list(cited.container_id))
    assert cited.file_id in [file.id for file in listed]
    file = alice.containers.files.retrieve(cited.file_id, container_id=cited.container_id)
    assert (file.bytes, file.container_id) == (len(b"total\n42\n"), cited.container_id)


def test_outputs_of_code_only_where_they_are_asked_for(alice):
    tools = [{"type": "code_interpreter", "container": {"type": "auto"}}]
    response = created(alice, input="code please", tools=tools)
    (call,) = [item for item in response.output if item.type == "code_interpreter_call"]
    assert call.outputs is None


def test_containers_of_another_key_do_not_exist(alice, bob):
    tools = [{"type": "code_interpreter", "container": {"type": "auto"}}]
    response = created(alice, input="code please", tools=tools)
    container = next(item.container_id for item in response.output if item.type == "code_interpreter_call")
    for ask in (
        lambda: bob.containers.retrieve(container),
        lambda: bob.containers.files.list(container),
        lambda: created(bob, input="plain", tools=[{"type": "code_interpreter", "container": container}]),
    ):
        with pytest.raises(openai.NotFoundError):
            ask()


# --- a tool of the client, and the second turn -------------------------------------------------------------------------


def by_id(client, way, first, prompt, items, tools):
    return way(client, previous_response_id=first.id, input=items, tools=tools)


def by_items(client, way, first, prompt, items, tools):
    said = [item.model_dump(exclude_unset=True) for item in first.output]
    return way(client, input=[user(prompt), *said, *items], tools=tools)


def by_items_without_store(client, way, first, prompt, items, tools):
    said = [item.model_dump(exclude_unset=True) for item in first.output]
    return way(client, input=[user(prompt), *said, *items], tools=tools, store=False)


def by_references(client, way, first, prompt, items, tools):
    said = [{"type": "item_reference", "id": item.id} for item in first.output]
    return way(client, input=[user(prompt), *said, *items], tools=tools)


def by_call_alone(client, way, first, prompt, items, tools):
    """In the manner of the AI SDK: items of the server by reference, the client's own calls without id."""
    said = [
        {"type": "function_call", "call_id": item.call_id, "name": item.name, "arguments": item.arguments}
        if item.type == "function_call"
        else {"type": "item_reference", "id": item.id}
        for item in first.output
    ]
    return way(client, input=[user(prompt), *said, *items], tools=tools)


SECOND_TURNS = pytest.mark.parametrize(
    "second", [by_id, by_items, by_items_without_store, by_references, by_call_alone]
)


@WAYS
@SECOND_TURNS
def test_a_client_tool_beside_one_of_the_server(client, servers, way, second):
    tools, prompt = [GET_TICKET, GET_LOCAL_TIME], unique("client")
    first = way(client, input=prompt, tools=tools)
    # On a stream the client's call comes as the model makes it, before the server's have run.
    assert sorted(kinds(first)) == ["function_call", "mcp_call", "message"]
    call = client_call(first)
    assert (call.name, json.loads(call.arguments), call.status) == ("get_local_time", {"city": "Oslo"}, "completed")
    assert first.status == "completed"
    response = second(client, way, first, prompt, [result(call, NINE)], tools)
    assert TICKET_STATE in response.output_text and f"It is {NINE}." in response.output_text
    # Whatever way it came, the model is told the same, and no tool runs twice.
    *_, last = servers.model_calls(prompt)
    roles = [message["role"] for message in last["messages"]]
    assert roles == ["user", "assistant", "tool", "tool"]
    assert last["messages"][1]["content"] == "Let me look. "
    assert [call["function"]["name"] for call in last["messages"][1]["tool_calls"]] == ["get_ticket", "get_local_time"]
    assert last["messages"][3]["content"] in (NINE, [{"type": "text", "text": NINE}])
    assert len(servers.model_calls(prompt)) == 2


@WAYS
@pytest.mark.parametrize("store", [True, False])
def test_a_result_alone_leads_back_to_its_turn(client, servers, way, store):
    tools, prompt = [GET_TICKET, GET_LOCAL_TIME], unique("client")
    call = client_call(way(client, input=prompt, tools=tools, store=store))
    response = way(client, input=[result(call, NINE)], tools=tools, store=store)
    assert TICKET_STATE in response.output_text and f"It is {NINE}." in response.output_text
    assert len(servers.model_calls(prompt)) == 2


@WAYS
@SECOND_TURNS
def test_a_question_after_a_tool_of_the_server(client, servers, way, second):
    prompt, again = unique("ticket"), unique("plain")
    first = way(client, input=prompt, tools=[GET_TICKET])
    response = second(client, way, first, prompt, [user(again)], [GET_TICKET])
    assert response.output_text == PLAIN_TEXT
    (call,) = servers.model_calls(again)
    assert [message["role"] for message in call["messages"]] == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize("scenario", ["five", "search", "code", "think", "fail"])
def test_the_model_is_told_the_same_whatever_way_it_came(alice, servers, scenario):
    prompt = unique(scenario)
    tools = [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
    first = created(alice, input=prompt, tools=tools)
    told = {}
    for second in (by_id, by_items, by_items_without_store, by_references, by_id):
        again = unique("plain")
        assert second(alice, created, first, prompt, [user(again)], tools).output_text == PLAIN_TEXT
        (call,) = servers.model_calls(again)
        told[second.__name__] = call["messages"][:-1]
    for name, messages in told.items():
        assert messages == told["by_id"], name


@WAYS
def test_a_conversation(client, servers, way):
    conversation = client.conversations.create(metadata={"topic": "tickets"})
    assert conversation.id.startswith("conv_") and conversation.metadata == {"topic": "tickets"}
    tools, prompt = [GET_TICKET, GET_LOCAL_TIME], unique("client")
    first = way(client, conversation=conversation.id, input=prompt, tools=tools)
    assert first.conversation.id == conversation.id
    call = client_call(first)
    response = way(client, conversation={"id": conversation.id}, input=[result(call, NINE)], tools=tools)
    assert f"It is {NINE}." in response.output_text
    items = list(client.conversations.items.list(conversation.id, order="asc"))
    expected = ["message", "message", "mcp_call", "function_call", "function_call_output", "message"]
    assert sorted(item.type for item in items) == sorted(expected)
    assert [items[index].type for index in (0, 1, -2, -1)] == ["message", "message", "function_call_output", "message"]
    for item in items:
        assert client.conversations.items.retrieve(item.id, conversation_id=conversation.id).type == item.type
    assert client.conversations.retrieve(conversation.id).id == conversation.id
    assert client.conversations.update(conversation.id, metadata={"topic": "time"}).metadata == {"topic": "time"}
    assert client.conversations.delete(conversation.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(conversation.id)


def test_every_kind_of_item_in_a_conversation(alice):
    conversation = alice.conversations.create()
    tools = [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
    for prompt in ("search please", "code please", "think hard", "pair please", "fail please"):
        created(alice, conversation=conversation.id, input=prompt, tools=tools)
    items = list(alice.conversations.items.list(conversation.id, order="asc", limit=4))
    expected = ["message", "web_search_call", "message", "message", "message", "code_interpreter_call", "message"]
    expected += ["message", "reasoning", "message", "message", "reasoning", "message", "mcp_call", "mcp_call", "message"]
    expected += ["message", "mcp_call", "message"]
    assert [item.type for item in items] == expected
    assert len({item.id for item in items}) == len(items)
    assert [item.id for item in alice.conversations.items.list(conversation.id, limit=3)] == [item.id for item in items][::-1]
    assert [item.status for item in items if item.type == "mcp_call"] == ["completed", "completed", "failed"]


def test_responses_of_a_deleted_conversation_are_gone(client):
    conversation = client.conversations.create()
    response = created(client, conversation=conversation.id, input="plain question")
    client.conversations.delete(conversation.id)
    with pytest.raises(openai.BadRequestError):
        created(client, previous_response_id=response.id, input="plain question")


def test_items_added_to_a_conversation(client, servers):
    conversation = client.conversations.create(items=[{"type": "message", "role": "user", "content": "I am Ada."}])
    added = client.conversations.items.create(
        conversation.id, items=[{"type": "message", "role": "assistant", "content": "Hello Ada."}]
    )
    assert [item.type for item in added.data] == ["message"]
    again = unique("plain")
    assert created(client, conversation=conversation.id, input=again).output_text == PLAIN_TEXT
    (call,) = servers.model_calls(again)
    assert [message["role"] for message in call["messages"]] == ["user", "assistant", "user"]


def test_two_questions_after_one_response_at_once(client, servers):
    first = created(client, input=unique("ticket"), tools=[GET_TICKET])
    asked = [unique("plain") for _ in range(4)]

    async def ask():
        async with AsyncOpenAI(base_url=servers.responses_url, api_key="not-needed", max_retries=0) as several:
            each = [several.responses.create(model=MODEL, previous_response_id=first.id, input=text) for text in asked]
            return await asyncio.gather(*each)

    assert [response.output_text for response in asyncio.run(ask())] == [PLAIN_TEXT] * 4
    for text in asked:
        (call,) = servers.model_calls(text)
        assert [message["role"] for message in call["messages"]] == ["user", "assistant", "tool", "assistant", "user"]


def test_a_deleted_response_in_the_middle(client, servers):
    first = created(client, input=unique("ticket"), tools=[GET_TICKET])
    second = created(client, previous_response_id=first.id, input="plain question")
    client.responses.delete(first.id)
    again = unique("plain")
    created(client, previous_response_id=second.id, input=again)
    (call,) = servers.model_calls(again)
    roles = ["user", "assistant", "tool", "assistant", "user", "assistant", "user"]
    assert [message["role"] for message in call["messages"]] == roles
    assert [item.content[0].text for item in client.responses.input_items.list(second.id)] == ["plain question"]


def test_an_older_response_is_forked(client, servers):
    first = created(client, input=unique("ticket"), tools=[GET_TICKET])
    for _ in range(2):
        again = unique("plain")
        assert created(client, previous_response_id=first.id, input=again).output_text == PLAIN_TEXT
        (call,) = servers.model_calls(again)
        assert [message["role"] for message in call["messages"]] == ["user", "assistant", "tool", "assistant", "user"]


def test_instructions_are_of_one_turn(client, servers):
    first = created(client, input="plain question", instructions="Be short.")
    again = unique("plain")
    created(client, previous_response_id=first.id, input=again)
    (call,) = servers.model_calls(again)
    assert [message["role"] for message in call["messages"]] == ["user", "assistant", "user"]


@WAYS
def test_a_custom_tool(client, way):
    tools = [{"type": "custom", "name": "take_note", "description": "Takes a note as text."}]
    prompt = unique("note")
    first = way(client, input=prompt, tools=tools)
    (call,) = first.output
    assert (call.type, call.name, call.input) == ("custom_tool_call", "take_note", "buy milk\nand bread")
    output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "noted"}
    assert way(client, previous_response_id=first.id, input=[output], tools=tools).output_text == "Noted: noted"


@WAYS
def test_a_tool_in_a_namespace(client, way):
    inside = {**GET_LOCAL_TIME, "description": "Tells the time."}
    tools = [{"type": "namespace", "name": "clock", "description": "Clocks.", "tools": [inside]}]
    first = way(client, input="clock please", tools=tools)
    (call,) = first.output
    assert (call.type, call.name, call.namespace) == ("function_call", "get_local_time", "clock")
    response = way(client, previous_response_id=first.id, input=[result(call, NINE)], tools=tools)
    assert response.output_text == f"It is {NINE}."


def test_parts_as_the_output_of_a_call(client):
    tools, prompt = [GET_TICKET, GET_LOCAL_TIME], unique("client")
    first = created(client, input=prompt, tools=tools)
    parts = [{"type": "input_text", "text": "half past"}, {"type": "input_text", "text": "nine"}]
    response = created(client, previous_response_id=first.id, input=[result(client_call(first), parts)], tools=tools)
    assert "It is half past\nnine." in response.output_text


# --- helpers of the SDK ------------------------------------------------------------------------------------------------


class Ticket(BaseModel):
    id: int
    summary: str


def test_parse(client):
    response = client.responses.parse(model=MODEL, input="json please", tools=[GET_TICKET], text_format=Ticket)
    assert response.output_parsed.id == 42 and TICKET_STATE in response.output_parsed.summary


def test_parse_on_a_stream(client):
    with client.responses.stream(model=MODEL, input="json please", tools=[GET_TICKET], text_format=Ticket) as stream:
        assert any(event.type == "response.output_text.delta" for event in stream)
        assert stream.get_final_response().output_parsed.id == 42


def test_the_schema_goes_to_the_model(client, servers):
    prompt = unique("json")
    client.responses.parse(model=MODEL, input=prompt, tools=[GET_TICKET], text_format=Ticket)
    first, *_ = servers.model_calls(prompt)
    assert first["response_format"]["type"] == "json_schema"
    assert first["response_format"]["json_schema"]["name"] == "Ticket"


def test_the_asynchronous_client(servers):
    async def ask():
        async with AsyncOpenAI(base_url=servers.responses_url, api_key="not-needed") as client:
            whole = await client.responses.create(model=MODEL, input="ticket please", tools=[GET_TICKET])
            async with client.responses.stream(model=MODEL, input="ticket please", tools=[GET_TICKET]) as stream:
                return whole.output_text, (await stream.get_final_response()).output_text

    whole, streamed = asyncio.run(ask())
    assert whole == streamed


# --- state -------------------------------------------------------------------------------------------------------------


@WAYS
def test_a_stored_response(client, way):
    response = way(client, input="ticket please", tools=[GET_TICKET])
    again = client.responses.retrieve(response.id)
    assert again.model_dump() == client.responses.retrieve(response.id).model_dump()
    assert (again.output_text, again.usage, again.status) == (response.output_text, response.usage, "completed")
    assert client.responses.cancel(response.id).output_text == response.output_text
    (item,) = client.responses.input_items.list(response.id)
    assert (item.type, item.role, item.content[0].text) == ("message", "user", "ticket please")
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError) as refused:
        created(client, previous_response_id=response.id, input="plain question")
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")


def test_pages_of_input_items(client):
    said = [user(f"plain {number}") for number in range(5)]
    response = created(client, input=said)
    texts = [item.content[0].text for item in client.responses.input_items.list(response.id, limit=2)]
    assert texts == [f"plain {number}" for number in (4, 3, 2, 1, 0)]
    page = client.responses.input_items.list(response.id, limit=2, order="asc")
    assert page.has_more and [item.content[0].text for item in page.data] == ["plain 0", "plain 1"]


def test_nothing_is_stored_where_that_is_asked_for(client):
    response = created(client, input="ticket please", tools=[GET_TICKET], store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError):
        created(client, previous_response_id=response.id, input="plain question")


def test_what_belongs_to_another_key_does_not_exist(alice, bob):
    response = created(alice, input="ticket please")
    conversation = alice.conversations.create()
    with pytest.raises(openai.NotFoundError):
        bob.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError):
        bob.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        bob.responses.cancel(response.id)
    with pytest.raises(openai.NotFoundError):
        bob.responses.input_items.list(response.id)
    with pytest.raises(openai.NotFoundError):
        bob.conversations.retrieve(conversation.id)
    with pytest.raises(openai.NotFoundError):
        created(bob, conversation=conversation.id, input="plain question")
    with pytest.raises(openai.BadRequestError) as refused:
        created(bob, previous_response_id=response.id, input="plain question")
    assert refused.value.code == "previous_response_not_found"
    with pytest.raises(openai.NotFoundError) as refused:
        created(bob, input=[{"type": "item_reference", "id": response.output[0].id}, user("plain question")])
    assert refused.value.code == "item_not_found"
    assert alice.responses.retrieve(response.id).output_text == response.output_text


def test_in_the_background(client):
    response = created(client, input="five tickets", tools=[GET_TICKET], background=True)
    assert response.status in ("queued", "in_progress") and response.background
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    assert response.status == "completed" and kinds(response) == ["message", "mcp_call"] * 5 + ["message"]


def test_a_stream_in_the_background_goes_on_where_it_broke_off(client):
    stream = client.responses.create(
        model=MODEL, input="five tickets", tools=[GET_TICKET], background=True, stream=True
    )
    seen = []
    for event in stream:
        seen.append(event)
        if len(seen) == 20:
            break
    stream.close()
    name, at = seen[0].response.id, seen[-1].sequence_number
    rest = list(client.responses.retrieve(name, stream=True, starting_after=at))
    assert [event.sequence_number for event in rest[:2]] == [at + 1, at + 2]
    assert rest[-1].type == "response.completed"
    whole = [event.to_dict() for event in [*seen, *rest]]
    assert [event.to_dict() for event in client.responses.retrieve(name, stream=True)] == whole
    for at in range(0, len(whole), 5):
        again = client.responses.retrieve(name, stream=True, starting_after=at)
        assert [event.to_dict() for event in again] == whole[at + 1 :]


def test_a_response_is_cancelled(client):
    stream = client.responses.create(model=MODEL, input="slow please", background=True, stream=True)
    events = iter(stream)
    first = next(events)
    while next(events).type != "response.output_text.delta":
        pass
    assert client.responses.retrieve(first.response.id).status == "in_progress"
    client.responses.cancel(first.response.id)
    *_, last = events
    assert (last.type, last.response.status) == ("response.incomplete", "cancelled")
    again = client.responses.retrieve(first.response.id)
    assert again.status == "cancelled" and again.output_text.startswith("and ")
    assert client.responses.cancel(first.response.id).status == "cancelled"


def test_what_runs_is_read_and_followed_by_its_id(client):
    """Not in the background: as long as somebody reads it."""
    with client.responses.create(model=MODEL, input="slow please", stream=True) as stream:
        first = next(iter(stream))
        assert client.responses.retrieve(first.response.id).status == "in_progress"
        with client.responses.retrieve(first.response.id, stream=True) as second:
            assert next(iter(second)).to_dict() == first.to_dict()
        client.responses.cancel(first.response.id)
        *_, last = stream
    assert last.response.status == "cancelled"


def test_the_two_dialects_read_the_same_run(client):
    response = created(client, input="ticket please", tools=[GET_TICKET])
    completion = client.chat.completions.retrieve(response.id.replace("resp_", "chatcmpl-"))
    assert TICKET_STATE in completion.choices[0].message.content
    assert client.responses.retrieve(completion.id.replace("chatcmpl-", "resp_")).output_text == response.output_text
    # Each endpoint takes each prefix.
    assert client.chat.completions.retrieve(response.id).id == completion.id
    assert client.responses.retrieve(completion.id).id == response.id


@pytest.mark.parametrize("scenario", ["search", "code", "think", "pair", "fail", "five"])
def test_an_answer_of_chat_is_read_as_a_response(alice, scenario):
    # With a key for repetitions it is kept although nothing of it was stored.
    options = {"extra_body": {"web_search_options": {}, "enable_code_execution": True}}
    headers = {"idempotency-key": str(uuid.uuid4())}
    completion = alice.chat.completions.create(
        model=MODEL, messages=[user(f"{scenario} please")], extra_headers=headers, **options
    )
    response = alice.responses.retrieve(completion.id)
    assert response.output_text.replace("\n", "") == completion.choices[0].message.content.replace("\n", "")
    assert response.usage.total_tokens == completion.usage.total_tokens


def test_a_session_goes_on_in_the_other_dialect(client):
    session = {"session_id": f"dialects-{uuid.uuid4()}"}
    created(client, input="ticket please", tools=[GET_TICKET], extra_body=session)
    answer = client.chat.completions.create(model=MODEL, messages=[user("recall it")], extra_body=session)
    assert answer.choices[0].message.content.startswith("Roles: user assistant tool assistant user.")
    response = created(client, input="recall it", extra_body=session)
    assert response.output_text.startswith("Roles: user assistant tool assistant user assistant user.")
    # The session is a conversation by its own id.
    name = session["session_id"]
    assert client.conversations.retrieve(name).id == name
    items = [item.type for item in client.conversations.items.list(name, order="asc")]
    assert items == ["message", "message", "mcp_call", *["message"] * 5]
    assert created(client, input="recall it", conversation=name).conversation.id == name


def test_input_tokens(client):
    assert client.responses.input_tokens.count(model=MODEL, input="plain question").input_tokens > 0


# --- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_of_the_model_server_before_the_answer(client):
    for way in (created, streamed):
        with pytest.raises(openai.BadRequestError) as refused:
            way(client, input="refuse this", tools=[GET_TICKET])
        assert "temperature must be below 2" in str(refused.value)


def test_an_error_after_a_tool(client):
    with pytest.raises(openai.APIError):
        streamed(client, input=unique("charge"), tools=[CHARGE_CARD])


def test_a_retry_with_a_key_runs_no_tool_twice(client, servers):
    prompt, headers = unique("charge"), {"idempotency-key": str(uuid.uuid4())}
    for _ in range(2):
        with pytest.raises(openai.APIError):
            streamed(client, input=prompt, tools=[CHARGE_CARD], extra_headers=headers)
    assert len(servers.tool_calls(reference=prompt)) == 1


@pytest.mark.parametrize(
    "first, second, charges",
    [
        ({"prompt_cache_key": "a"}, {"prompt_cache_key": "a"}, 1),
        ({"extra_headers": {"session-id": "a"}}, {"extra_headers": {"session-id": "a"}}, 1),
        ({"prompt_cache_key": "a"}, {"prompt_cache_key": "b"}, 2),
        ({"prompt_cache_key": "a"}, {"prompt_cache_key": "a", "metadata": {"other": "body"}}, 2),
        ({}, {}, 2),
    ],
)
def test_a_turn_that_failed_goes_on_where_its_retry_is_known(client, servers, first, second, charges):
    prompt = unique("charge")
    for way, more in ((streamed, first), (created, second)):
        with pytest.raises(openai.APIError):
            way(client, input=prompt, tools=[CHARGE_CARD], **more)
    assert len(servers.tool_calls(reference=prompt)) == charges


def test_a_second_request_with_a_key_gets_the_first_answer(client, servers):
    prompt, headers = unique("pay"), {"idempotency-key": str(uuid.uuid4())}
    first, second = (created(client, input=prompt, tools=[CHARGE_CARD], extra_headers=headers) for _ in range(2))
    assert first.model_dump() == second.model_dump()
    assert len(servers.tool_calls(reference=prompt)) == 1


def test_an_answer_that_breaks_off(client):
    seen = []
    with pytest.raises(openai.APIError):
        for event in client.responses.create(model=MODEL, input="break off", stream=True):
            seen.append(event)
    assert any(event.type == "response.output_text.delta" for event in seen)
    with pytest.raises(openai.APIError):
        helper(client, input="break off")


def test_a_stream_that_nobody_reads_to_the_end_harms_nobody(client):
    with client.responses.create(model=MODEL, input="five tickets", tools=[GET_TICKET], stream=True) as stream:
        assert next(iter(stream)).type == "response.created"
    assert created(client, input="plain question").output_text == PLAIN_TEXT


def test_a_limit_that_stops(client):
    limits = {"max_tool_rounds": 2, "agent": {"on_limit": "stop"}}
    for way in (created, streamed):
        response = way(client, input="five tickets", tools=[GET_TICKET], extra_body=limits)
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_tool_rounds")
    response = created(client, input="five tickets", tools=[GET_TICKET], extra_body={"max_tool_rounds": 2})
    assert response.status == "completed"


def test_max_tool_calls(client):
    response = created(client, input="five tickets", tools=[GET_TICKET], max_tool_calls=3)
    assert (response.status, response.max_tool_calls) == ("completed", 3)
    assert kinds(response).count("mcp_call") == 3
