"""LangChain's ChatOpenAI with `use_responses_api` against loopwright."""

import uuid

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from conftest import ALICE, GET_LOCAL_TIME, MODEL, TICKET_STATE

NINE = "half past nine"
STREAMED = pytest.mark.parametrize("streamed", [False, True])


@pytest.fixture(scope="module")
def chat(servers):
    options = {"base_url": servers.keyed_responses_url, "api_key": ALICE, "model": MODEL, "max_retries": 0}
    return lambda **more: ChatOpenAI(use_responses_api=True, **options, **more)


def asked(model, messages, streamed):
    if not streamed:
        return model.invoke(messages)
    first, *rest = model.stream(messages)
    for chunk in rest:
        first += chunk
    return first


@STREAMED
def test_plain_text(chat, streamed):
    message = asked(chat(), "plain question", streamed)
    assert message.text == "The capital of Norway is Oslo."
    assert message.usage_metadata["total_tokens"] == 15


@STREAMED
def test_a_tool_of_the_server(chat, streamed):
    message = asked(chat(), "ticket please", streamed)
    assert TICKET_STATE in message.text and message.tool_calls == []
    assert "mcp_call" in [part["type"] for part in message.content if isinstance(part, dict)] or message.content_blocks


@STREAMED
@pytest.mark.parametrize("more", [{}, {"use_previous_response_id": True}, {"store": False}])
def test_a_client_tool_beside_it(chat, servers, streamed, more):
    prompt = f"client {uuid.uuid4()}"
    bound = chat(**more).bind_tools([GET_LOCAL_TIME])
    messages = [HumanMessage(prompt)]
    message = asked(bound, messages, streamed)
    (call,) = message.tool_calls
    assert (call["name"], call["args"]) == ("get_local_time", {"city": "Oslo"})
    messages += [message, ToolMessage(NINE, tool_call_id=call["id"])]
    message = asked(bound, messages, streamed)
    assert TICKET_STATE in message.text and f"It is {NINE}." in message.text
    assert len(servers.model_calls(prompt)) == 2
    messages += [message, HumanMessage("plain question")]
    assert asked(bound, messages, streamed).text == "The capital of Norway is Oslo."


@STREAMED
def test_search(chat, streamed):
    message = asked(chat().bind_tools([{"type": "web_search"}]), "search please", streamed)
    assert message.text.startswith("Åpenbart: Oslo")
    annotations = [each for block in message.content_blocks for each in block.get("annotations") or []]
    assert [each["type"] for each in annotations] == ["citation"]


def test_structured_output(chat):
    class Ticket(BaseModel):
        id: int
        summary: str

    ticket = chat().with_structured_output(Ticket, method="json_schema", strict=True).invoke("json please")
    assert ticket.id == 42 and TICKET_STATE in ticket.summary
