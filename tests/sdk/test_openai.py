"""OpenAI's Python SDK against loopwright: code that knows nothing of loopwright must work as it stands."""

import asyncio
import json
import uuid

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat.chat_completion_message import Annotation
from pydantic import BaseModel

from conftest import (
    ALICE,
    BOB,
    CHARGE_CARD,
    GET_LOCAL_TIME,
    GET_TICKET,
    MODEL,
    TICKET_STATE,
    TICKET_TEXT,
    user,
)

PLAIN_TEXT = "The capital of Norway is Oslo."


@pytest.fixture(scope="module")
def client(servers):
    with OpenAI(base_url=servers.url, api_key="not-needed") as client:
        yield client


@pytest.fixture(scope="module")
def alice(servers):
    with OpenAI(base_url=servers.keyed_url, api_key=ALICE) as client:
        yield client


def ask(client, prompt, tools=(), **more):
    if tools:
        more["tools"] = list(tools)
    return client.chat.completions.create(model=MODEL, messages=[user(prompt)], **more)


def collect(stream):
    """The loop of every example on the web: no guards."""
    text = ""
    for chunk in stream:
        text += chunk.choices[0].delta.content or ""
    return text


def extra(thing):
    """Fields that the SDK has no types for."""
    return thing.model_extra


def unique(scenario):
    return f"{scenario} {uuid.uuid4()}"


# --- text --------------------------------------------------------------------------------------------------------------


def test_a_plain_answer(client):
    completion = ask(client, "plain question")
    assert completion.choices[0].message.content == PLAIN_TEXT
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage.total_tokens == 15


def test_a_plain_stream(client):
    assert collect(ask(client, "plain question", stream=True)) == PLAIN_TEXT


def test_a_passed_through_stream_ends_with_the_upstreams_usage(client):
    *_, last = ask(client, "plain question", stream=True, stream_options={"include_usage": True})
    assert (last.choices, last.usage.total_tokens) == ([], 15)


# --- a tool round in the middle ----------------------------------------------------------------------------------------


def test_a_tool_round_ends_in_one_clean_answer(client):
    completion = ask(client, "ticket please", [GET_TICKET])
    (choice,) = completion.choices
    assert choice.message.content.startswith(TICKET_TEXT)
    assert TICKET_STATE in choice.message.content
    assert choice.message.tool_calls is None
    assert choice.finish_reason == "stop"
    (call,) = extra(completion)["agentic_tool_calls"]
    assert (call["name"], call["status"], call["round"]) == ("get_ticket", "ok", 0)
    assert json.loads(call["arguments"]) == {"id": 42}
    assert json.loads(call["result_content"]) == {"ticket": 42, "state": TICKET_STATE}
    agent = extra(completion)["agent"]
    assert (agent["stop_reason"], agent["rounds"], agent["model_calls"]) == ("completed", 1, 2)


def test_a_collected_stream_is_the_plain_answer(client):
    whole = ask(client, "ticket please", [GET_TICKET]).choices[0].message.content
    assert collect(ask(client, "ticket please", [GET_TICKET], stream=True)) == whole


def test_every_chunk_of_a_stream_is_an_ordinary_one(client):
    chunks = list(ask(client, "ticket please", [GET_TICKET], stream=True))
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    assert chunks[0].object == "chat.completion.chunk"
    assert [chunk.choices[0].delta.role for chunk in chunks if chunk.choices[0].delta.role] == ["assistant"]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert not any(chunk.choices[0].delta.tool_calls for chunk in chunks)
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices[0].finish_reason == "stop"
    # The model's words come as it says them, not in one piece.
    assert sum(1 for chunk in chunks if chunk.choices[0].delta.content) > 5


def test_progress_comes_between_the_rounds(client):
    chunks = list(ask(client, "ticket please", [GET_TICKET], stream=True))
    progress = [chunk for chunk in chunks if "phase" in extra(chunk)]
    assert [extra(chunk)["phase"] for chunk in progress] == ["calling", "complete"]
    for chunk in progress:
        assert extra(chunk)["type"] == "agentic_tool_call_progress"
        assert (extra(chunk)["tool_name"], extra(chunk)["round"]) == ("get_ticket", 0)
        assert chunk.choices[0].delta.model_dump(exclude_none=True) == {}
    said = [chunk.choices[0].delta.content or "" for chunk in chunks]
    before, after = chunks.index(progress[0]), chunks.index(progress[1])
    assert "".join(said[:before]) == "Let me look. "
    assert TICKET_STATE in "".join(said[after:])


def test_progress_can_be_switched_off(client):
    stream = ask(client, "ticket please", [GET_TICKET], stream=True, extra_body={"agent": {"progress": "none"}})
    assert not any("phase" in extra(chunk) for chunk in stream)


def test_usage_is_summed_over_the_rounds_in_both_forms(client):
    whole = ask(client, "ticket please", [GET_TICKET])
    options = {"include_usage": True}
    chunks = list(ask(client, "ticket please", [GET_TICKET], stream=True, stream_options=options))
    # OpenAI's one documented exception to `choices[0]`.
    assert [len(chunk.choices) for chunk in chunks] == [1] * (len(chunks) - 1) + [0]
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    # One user message; then call and result as well: (10 + 7) + (30 + 5).
    assert whole.usage.total_tokens == 52
    by_round = extra(whole)["agent"]["usage_by_round"]
    assert [usage["total_tokens"] for usage in by_round] == [17, 35]


def test_five_rounds(client):
    whole = ask(client, "five tickets", [GET_TICKET])
    steps = "".join(f"Step {number}.\n\n" for number in range(1, 6))
    assert whole.choices[0].message.content.startswith(f"{steps}Five results: {{")
    assert [call["round"] for call in extra(whole)["agentic_tool_calls"]] == [0, 1, 2, 3, 4]
    assert collect(ask(client, "five tickets", [GET_TICKET], stream=True)) == whole.choices[0].message.content


def test_a_lower_cap_ends_with_a_final_answer(client):
    whole = ask(client, "five tickets", [GET_TICKET], extra_body={"max_tool_rounds": 2})
    assert whole.choices[0].finish_reason == "stop"
    assert extra(whole)["agent"]["stop_reason"] == "max_tool_rounds"
    assert extra(whole)["agent"]["rounds"] == 2


def test_only_the_last_rounds_text_where_that_is_asked_for(client):
    final = {"agent": {"text": "final"}}
    whole = ask(client, "ticket please", [GET_TICKET], extra_body=final).choices[0].message.content
    assert whole.startswith("The ticket says: {")
    assert collect(ask(client, "ticket please", [GET_TICKET], stream=True, extra_body=final)) == whole


def test_a_stream_that_nobody_reads_to_the_end_harms_nobody(client):
    with ask(client, "five tickets", [GET_TICKET], stream=True) as stream:
        assert next(iter(stream)).choices[0].delta.role == "assistant"
    assert ask(client, "plain question").choices[0].message.content == PLAIN_TEXT


def test_a_tool_that_the_server_declares_itself(alice):
    whole = ask(alice, "ticket please")
    assert TICKET_STATE in whole.choices[0].message.content
    assert collect(ask(alice, "ticket please", stream=True)) == whole.choices[0].message.content


# --- helpers of the SDK ------------------------------------------------------------------------------------------------


def test_the_stream_helper(client):
    with client.chat.completions.stream(
        model=MODEL,
        messages=[user("ticket please")],
        tools=[GET_TICKET],
        stream_options={"include_usage": True},
    ) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    kinds = {event.type for event in events}
    assert "content.delta" in kinds and "content.done" in kinds
    assert not any(kind.startswith("tool_calls") for kind in kinds)
    said = "".join(event.delta for event in events if event.type == "content.delta")
    assert final.choices[0].message.content == said
    assert said.startswith(TICKET_TEXT)
    assert final.choices[0].finish_reason == "stop"
    assert final.usage.total_tokens == 52


class Ticket(BaseModel):
    id: int
    summary: str


def test_the_parse_helper(client):
    parsed = client.chat.completions.parse(
        model=MODEL, messages=[user("json please")], tools=[GET_TICKET], response_format=Ticket
    )
    assert parsed.choices[0].message.parsed.id == 42
    assert TICKET_STATE in parsed.choices[0].message.parsed.summary


def test_the_stream_helper_parses(client):
    with client.chat.completions.stream(
        model=MODEL, messages=[user("json please")], tools=[GET_TICKET], response_format=Ticket
    ) as stream:
        stream.until_done()
        assert stream.get_final_completion().choices[0].message.parsed.id == 42


def test_raw_responses_have_their_headers(client):
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=[user("ticket please")],
        tools=[GET_TICKET],
        extra_headers={"x-client-request-id": "request-of-mine"},
        extra_body={"session_id": f"raw-{uuid.uuid4()}"},
    )
    assert raw.headers["x-request-id"] == "request-of-mine"
    assert raw.headers["x-session-id"] == extra(raw.parse())["session_id"]
    assert int(raw.headers["openai-processing-ms"]) >= 0
    assert raw.parse()._request_id == "request-of-mine"


def test_the_async_client(servers):
    async def both():
        async with AsyncOpenAI(base_url=servers.url, api_key="not-needed") as client:
            whole, stream = await asyncio.gather(
                ask(client, "ticket please", [GET_TICKET]),
                ask(client, "ticket please", [GET_TICKET], stream=True),
            )
            said = [chunk.choices[0].delta.content or "" async for chunk in stream]
            return whole.choices[0].message.content, "".join(said)

    whole, streamed = asyncio.run(both())
    assert whole == streamed
    assert whole.startswith(TICKET_TEXT)


# --- tools of the client -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_of_the_client_is_continued_without_a_session_id(client, streamed):
    prompt = unique("client tools")
    messages = [user(prompt)]
    tools = [GET_TICKET, GET_LOCAL_TIME]

    def turn():
        arguments = {"model": MODEL, "messages": messages, "tools": tools}
        if not streamed:
            return client.chat.completions.create(**arguments).choices[0]
        with client.chat.completions.stream(**arguments) as stream:
            return stream.get_final_completion().choices[0]

    choice = turn()
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me look. "
    (call,) = choice.message.tool_calls
    assert call.function.name == "get_local_time"
    assert json.loads(call.function.arguments) == {"city": "Oslo"}

    answer = {"role": "assistant", "content": choice.message.content}
    asked = {"id": call.id, "type": "function"}
    asked["function"] = {"name": call.function.name, "arguments": call.function.arguments}
    messages.append({**answer, "tool_calls": [asked]})
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "half past nine"})
    choice = turn()
    assert choice.finish_reason == "stop"
    assert choice.message.tool_calls is None
    assert TICKET_STATE in choice.message.content
    assert "It is half past nine." in choice.message.content


def test_the_servers_calls_of_a_shared_batch_run_once(client, servers):
    prompt = unique("client tools")
    messages = [user(prompt)]
    tools = [GET_TICKET, GET_LOCAL_TIME]
    message = client.chat.completions.create(model=MODEL, messages=messages, tools=tools).choices[0].message
    messages += [
        message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "noon"},
    ]
    client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
    first, second = servers.model_calls(prompt)
    assert [each["role"] for each in first["messages"]] == ["user"]
    assert [each["role"] for each in second["messages"]] == ["user", "assistant", "tool", "tool"]
    names = [call["function"]["name"] for call in second["messages"][1]["tool_calls"]]
    assert names == ["get_ticket", "get_local_time"]


def test_a_request_can_keep_its_tools_to_itself(client):
    choice = ask(client, "ticket please", [GET_TICKET], extra_body={"agent": {"client_tools": ["get_*"]}}).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert [call.function.name for call in choice.message.tool_calls] == ["get_ticket"]


# --- sessions ----------------------------------------------------------------------------------------------------------


def test_a_session_remembers_what_the_client_never_saw(client):
    session = {"session_id": f"sdk-{uuid.uuid4()}"}
    first = ask(client, "ticket please", [GET_TICKET], extra_body=session)
    assert extra(first)["session_id"] == session["session_id"]
    second = ask(client, "recall it", extra_body=session)
    text = second.choices[0].message.content
    assert text == "Roles: user assistant tool assistant user. You said: ticket please / recall it"


def test_the_session_of_a_stream_is_named_in_its_last_chunk(client):
    chunks = list(ask(client, "ticket please", [GET_TICKET], stream=True))
    session = extra(chunks[-1])["session_id"]
    text = collect(ask(client, "recall it", stream=True, extra_body={"session_id": session}))
    assert text.startswith("Roles: user assistant tool assistant user.")


def test_a_session_of_another_key_does_not_exist(alice, servers):
    session = extra(ask(alice, "ticket please"))["session_id"]
    path = f"/sessions/{session}"
    roles = [message["role"] for message in alice.get(path, cast_to=object)["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"]
    with OpenAI(base_url=servers.keyed_url, api_key=BOB) as bob, pytest.raises(openai.NotFoundError):
        bob.get(path, cast_to=object)


# --- errors ------------------------------------------------------------------------------------------------------------


def test_a_wrong_key_is_an_authentication_error(servers):
    with OpenAI(base_url=servers.keyed_url, api_key="wrong") as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            ask(client, "plain question")
        assert caught.value.code == "invalid_api_key"
        with pytest.raises(openai.AuthenticationError):
            client.models.list()


def test_a_key_of_ours_stays_with_us(alice, servers):
    prompt = unique("plain")
    ask(alice, prompt)
    assert len(servers.model_calls(prompt)) == 1
    assert ALICE not in json.dumps(servers.all_model_calls())


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"extra_body": {"agent": {"on_limits": "stop"}}}, "agent.on_limits"),
        ({"extra_body": {"session_id": "not an id"}}, "session_id"),
        ({"extra_body": {"enable_code_execution": True}}, "enable_code_execution"),
        ({"tools": [GET_TICKET], "n": 2}, "n"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
    ],
)
def test_a_bad_request_names_the_parameter(client, more, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, "plain question", **more)
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id


@pytest.mark.parametrize("tools", [(), (GET_TICKET,)])
@pytest.mark.parametrize("stream", [False, True])
def test_the_model_servers_own_refusal_comes_as_it_is(client, tools, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, "refuse me", tools, stream=stream)
    assert (caught.value.param, caught.value.type) == ("temperature", "BadRequestError")


def test_what_is_not_there_is_a_not_found_error(client):
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")
    with pytest.raises(openai.NotFoundError):
        client.get("/sessions/no-such-session", cast_to=object)


def test_the_sdk_asks_again_while_nothing_has_happened(client, servers):
    prompt = unique("down")
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client.with_options(max_retries=1), prompt, [GET_TICKET])
    assert caught.value.status_code == 503
    # Two requests of the SDK, each tried twice by loopwright (`max_attempts` in `run`).
    assert len(servers.model_calls(prompt)) == 4


def test_the_sdk_does_not_run_a_charge_twice(client, servers):
    prompt = unique("charge")
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client.with_options(max_retries=2), prompt, [CHARGE_CARD])
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(servers.tool_calls(reference=prompt)) == 1


def test_a_stream_that_fails_after_a_tool_raises(client, servers):
    prompt = unique("charge")
    with pytest.raises(openai.APIError) as caught:
        collect(ask(client, prompt, [CHARGE_CARD], stream=True))
    assert "engine died" in caught.value.message
    assert len(servers.tool_calls(reference=prompt)) == 1


# --- the other endpoints -----------------------------------------------------------------------------------------------


def test_models(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_embeddings_pass_through(client):
    answer = client.embeddings.create(model=MODEL, input=["a", "abc"])
    assert [entry.embedding for entry in answer.data] == [[1.0, 0.25, -0.5], [3.0, 0.25, -0.5]]
    assert answer.usage.total_tokens == 2


# --- files -------------------------------------------------------------------------------------------------------------


def test_files_go_in_and_come_out(alice, servers):
    content = "name;value\nå;1\n".encode()
    file = alice.files.create(file=("Größe.csv", content), purpose="user_data")
    assert (file.object, file.filename, file.bytes, file.status) == ("file", "Größe.csv", len(content), "processed")
    assert extra(file)["mime_type"] == "text/csv"
    assert alice.files.retrieve(file.id) == file
    assert alice.files.content(file.id).read() == content
    with alice.files.with_streaming_response.content(file.id) as answer:
        assert b"".join(answer.iter_bytes()) == content
    # The SDK asks for page after page by itself.
    more = [alice.files.create(file=b"x", purpose="assistants", extra_body={"session_id": unique("s")[2:]})]
    more.append(alice.files.create(file=("b.txt", b"y", "text/plain"), purpose="vision"))
    listed = [each.id for each in alice.files.list(limit=1)]
    assert listed == [more[1].id, more[0].id, file.id]
    assert [each.id for each in alice.files.list(purpose="vision", order="asc")] == [more[1].id]
    with OpenAI(base_url=servers.keyed_url, api_key=BOB) as bob:
        with pytest.raises(openai.NotFoundError):
            bob.files.retrieve(file.id)
        assert list(bob.files.list()) == []
    for each in [file, *more]:
        deleted = alice.files.delete(each.id)
        assert (deleted.id, deleted.object, deleted.deleted) == (each.id, "file", True)
    with pytest.raises(openai.NotFoundError):
        alice.files.content(file.id)


@pytest.mark.parametrize("tools", [(), ({"type": "code_interpreter", "container": {"type": "auto"}},)])
def test_code_reads_a_file_and_a_stream_brings_what_it_wrote(alice, servers, tools):
    sent = alice.files.create(file=("in.csv", b"20\n22\n"), purpose="user_data")
    parts = [{"type": "text", "text": "code please"}, {"type": "file", "file": {"file_id": sent.id}}]
    more = {"tools": list(tools)} if tools else {"extra_body": {"enable_code_execution": True}}
    messages = [{"role": "user", "content": parts}]
    chunks = list(alice.chat.completions.create(model=MODEL, messages=messages, stream=True, **more))
    assert collect(chunks).startswith("Let me run that. \n\nIt says: stdout:\nseen 20\nseen 22\n\nresult:\n42")
    shown = [extra(chunk) for chunk in chunks if "type" in extra(chunk)]
    live = "".join(event["text"] for event in shown if event["type"] == "agentic_tool_output")
    assert live == "seen 20\nseen 22\n"
    (ended,) = [event for event in shown if event.get("phase") == "complete"]
    assert (ended["status"], ended["data"]["tool_type"], ended["data"]["result"]) == ("ok", "code_execution", "42")
    (made,) = [event["file"] for event in shown if event["type"] == "file_produced"]
    assert ended["file_ids"] == [made["id"]]
    assert alice.files.content(made["id"]).read() == b"total\n42\n"
    session = extra(chunks[-1])["session_id"]
    assert {file.id for file in alice.files.list(extra_query={"session_id": session})} == {sent.id, made["id"]}
    with OpenAI(base_url=servers.keyed_url, api_key=BOB) as bob, pytest.raises(openai.NotFoundError):
        bob.files.content(made["id"])
    # What was made in a session goes with it; what was uploaded on its own does not.
    alice.delete(f"/sessions/{session}", cast_to=object)
    with pytest.raises(openai.NotFoundError):
        alice.files.retrieve(made["id"])
    assert alice.files.delete(sent.id).deleted


def test_a_file_that_is_refused_names_the_field(alice):
    with pytest.raises(openai.BadRequestError) as refused:
        alice.files.create(file=b"x", purpose="fun")
    assert refused.value.param == "purpose"
    with pytest.raises(openai.APIStatusError) as refused:
        alice.with_options(max_retries=0).files.create(file=bytes(70 * 1024 * 1024), purpose="user_data")
    assert (refused.value.status_code, refused.value.param) == (413, "file")


# --- search ------------------------------------------------------------------------------------------------------------

SEARCH = {"search_context_size": "low"}
CITING_TEXT = "Åpenbart: Oslo [1], not [9]."


def assert_cites_oslo(message):
    assert message.content == CITING_TEXT
    (annotation,) = message.annotations
    assert isinstance(annotation, Annotation) and annotation.type == "url_citation"
    citation = annotation.url_citation
    assert message.content[citation.start_index : citation.end_index] == "[1]"
    assert (citation.title, citation.url.rpartition("/")[2]) == ("Oslo", "oslo")


def test_a_search_answer_has_typed_annotations(alice):
    completion = ask(alice, "search it", web_search_options=SEARCH)
    assert_cites_oslo(completion.choices[0].message)


def test_a_streamed_search_answer_has_annotations_before_its_end(alice):
    chunks = list(ask(alice, "search it", web_search_options=SEARCH, stream=True))
    assert collect(chunks) == CITING_TEXT
    # The SDK has no type for this field of a delta, but keeps it.
    cited = [extra(chunk.choices[0].delta).get("annotations") for chunk in chunks]
    (found,) = [each for each in cited if each]
    place = found[0]["url_citation"]
    assert CITING_TEXT[place["start_index"] : place["end_index"]] == "[1]"
    assert cited.index(found) < len(chunks) - 1 and chunks[-1].choices[0].finish_reason == "stop"


def test_the_stream_helper_ends_with_typed_annotations(alice):
    with alice.chat.completions.stream(
        model=MODEL, messages=[user("search it")], web_search_options=SEARCH
    ) as stream:
        for _ in stream:
            pass
        assert_cites_oslo(stream.get_final_completion().choices[0].message)
