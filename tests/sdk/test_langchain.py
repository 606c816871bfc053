"""LangChain's ChatOpenAI against loopwright."""

import asyncio
import uuid

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

from conftest import GET_LOCAL_TIME, GET_TICKET, MODEL, TICKET_STATE, TICKET_TEXT


@pytest.fixture(scope="module")
def chat(servers):
    return ChatOpenAI(base_url=servers.url, api_key="not-needed", model=MODEL, stream_usage=True)


def test_invoke(chat):
    assert chat.invoke("plain question").content == "The capital of Norway is Oslo."


def test_a_tool_of_the_server_never_reaches_the_chain(chat):
    message = chat.bind_tools([GET_TICKET]).invoke("ticket please")
    assert message.tool_calls == [] and message.invalid_tool_calls == []
    assert message.content.startswith(TICKET_TEXT) and TICKET_STATE in message.content
    assert message.response_metadata["finish_reason"] == "stop"
    assert message.usage_metadata["total_tokens"] == 52


def test_a_stream_adds_up_to_the_same_message(chat):
    bound = chat.bind_tools([GET_TICKET])
    chunks = list(bound.stream("ticket please"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.content == bound.invoke("ticket please").content
    assert whole.tool_calls == [] and whole.tool_call_chunks == []
    assert whole.response_metadata["finish_reason"] == "stop"
    assert whole.usage_metadata["total_tokens"] == 52


def test_the_async_methods(chat):
    async def both():
        bound = chat.bind_tools([GET_TICKET])
        streamed = "".join([chunk.content async for chunk in bound.astream("five tickets")])
        return (await bound.ainvoke("five tickets")).content, streamed

    whole, streamed = asyncio.run(both())
    assert whole == streamed
    assert whole.startswith("Step 1.\n\nStep 2.")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_of_the_client_beside_one_of_the_server(chat, streamed):
    bound = chat.bind_tools([GET_TICKET, GET_LOCAL_TIME])

    def turn(messages):
        if not streamed:
            return bound.invoke(messages)
        first, *rest = bound.stream(messages)
        for chunk in rest:
            first += chunk
        return first

    messages = [HumanMessage(f"client tools {uuid.uuid4()}")]
    message = turn(messages)
    (call,) = message.tool_calls
    assert (call["name"], call["args"]) == ("get_local_time", {"city": "Oslo"})
    messages += [message, ToolMessage("half past nine", tool_call_id=call["id"])]
    message = turn(messages)
    assert message.tool_calls == []
    assert TICKET_STATE in message.content and "It is half past nine." in message.content


def test_structured_output(chat):
    class Ticket(BaseModel):
        id: int
        summary: str

    structured = chat.with_structured_output(Ticket, method="json_schema", tools=[GET_TICKET], strict=True)
    ticket = structured.invoke("json please")
    assert ticket.id == 42 and TICKET_STATE in ticket.summary


def test_a_session(chat, servers):
    session = {"session_id": f"langchain-{uuid.uuid4()}"}
    chat = ChatOpenAI(base_url=servers.url, api_key="not-needed", model=MODEL, extra_body=session)
    chat.bind_tools([GET_TICKET]).invoke("ticket please")
    assert chat.invoke("recall it").content.startswith("Roles: user assistant tool assistant user.")


def test_embeddings(servers):
    embeddings = OpenAIEmbeddings(
        base_url=servers.url, api_key="not-needed", model=MODEL, check_embedding_ctx_length=False
    )
    assert embeddings.embed_documents(["a", "abc"]) == [[1.0, 0.25, -0.5], [3.0, 0.25, -0.5]]
