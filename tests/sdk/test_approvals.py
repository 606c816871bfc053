"""Calls that wait for a person: SDKs see a finished answer, and go on with their own means once it is decided."""

import asyncio
import os
import uuid

import openai
import pytest
from agents import Agent, HostedMCPTool, OpenAIProvider, RunConfig, Runner
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI

from conftest import ALICE, CHARGE_CARD, MODEL, user

WAITS = "This answer waits for a person's decision about: charge_card. Approvals: apr_"
HOURS = "nine to five on Monday"


@pytest.fixture(scope="module")
def client(servers):
    with OpenAI(base_url=servers.url, api_key="not-needed") as client:
        yield client


@pytest.fixture(scope="module")
def alice(servers):
    with OpenAI(base_url=servers.keyed_responses_url, api_key=ALICE) as client:
        yield client


@pytest.fixture
def prompt():
    """A payment that the rules of the server ask about."""
    return f"pay approval {uuid.uuid4()}"


def decide(client, approval_id, decision):
    return client.post(f"/agent/approvals/{approval_id}", body={"decision": decision}, cast_to=dict)


def ask(client, messages, **more):
    return client.chat.completions.create(model=MODEL, messages=messages, tools=[CHARGE_CARD], **more)


@pytest.mark.parametrize("decision, charges", [("approve", 1), ("deny", 0)])
def test_a_chat_goes_on_with_the_messages_that_the_client_has(client, servers, prompt, decision, charges):
    session = {"session_id": f"approval-{uuid.uuid4()}"}
    waiting = ask(client, [user(prompt)], extra_body=session)
    (choice,) = waiting.choices
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    assert choice.message.content.startswith(WAITS)
    (approval,) = waiting.model_extra["agent"]["approvals"]
    assert (approval["tool"], approval["reason"]) == ("charge_card", "money")
    assert servers.tool_calls(reference=prompt) == []
    assert decide(client, approval["approval_id"], decision) == {"status": "queued"}
    history = [user(prompt), choice.message.model_dump(include={"role", "content"})]
    done = ask(client, history, extra_body=session)
    assert done.choices[0].message.content == f"Paid: {prompt}."
    assert len(servers.tool_calls(reference=prompt)) == charges
    with pytest.raises(openai.ConflictError):
        decide(client, approval["approval_id"], "approve")


def test_a_stream_goes_on_once_it_is_decided(client, servers, prompt):
    stream = ask(client, [user(prompt)], stream=True)
    text = ""
    for chunk in stream:
        # The SDK gives events of other types to the loop as chunks without text.
        if chunk.model_extra.get("type") == "agentic_tool_approval_required":
            assert decide(client, chunk.model_extra["approval_id"], "approve") == {"status": "resolved"}
        text += chunk.choices[0].delta.content or ""
    assert text == f"Paid: {prompt}."
    assert len(servers.tool_calls(reference=prompt)) == 1


def test_langchain_sees_a_finished_answer(client, servers, prompt):
    session = f"approval-{uuid.uuid4()}"
    chat = ChatOpenAI(base_url=servers.url, api_key="not-needed", model=MODEL, extra_body={"session_id": session})
    chat = chat.bind_tools([CHARGE_CARD])
    waiting = chat.invoke(prompt)
    assert waiting.content.startswith(WAITS) and waiting.tool_calls == []
    assert waiting.response_metadata["finish_reason"] == "stop"
    approval = waiting.content.rsplit(" ", 1)[-1]
    assert decide(client, approval, "approve") == {"status": "queued"}
    done = chat.invoke([HumanMessage(prompt), waiting])
    assert done.content == f"Paid: {prompt}."
    assert len(servers.tool_calls(reference=prompt)) == 1


def desk():
    """The MCP server of the request, each of whose calls is asked about."""
    url = f"{os.environ['LOOPWRIGHT_TEST_DESK']}/mcp"
    return {"type": "mcp", "server_label": "desk", "server_url": url, "authorization": "token-of-the-desk", "require_approval": "always"}


@pytest.mark.parametrize("approve", [True, False])
def test_a_response_asks_and_is_answered(alice, approve):
    first = alice.responses.create(model=MODEL, input="hours Monday", tools=[desk()])
    assert [item.type for item in first.output] == ["mcp_list_tools", "mcp_approval_request"]
    request = first.output[1]
    assert (request.server_label, request.name) == ("desk", "get_hours")
    answer = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve}
    second = alice.responses.create(model=MODEL, previous_response_id=first.id, input=[answer], tools=[desk()])
    assert second.status == "completed"
    assert (HOURS in second.output_text) == approve


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("approve", [True, False])
def test_the_agents_sdk_asks_its_callback(servers, streamed, approve):
    asked = []

    def on_approval(request):
        asked.append(request.data.name)
        return {"approve": True} if approve else {"approve": False, "reason": "not today"}

    async def run():
        async with AsyncOpenAI(base_url=servers.keyed_responses_url, api_key=ALICE, max_retries=0) as client:
            config = RunConfig(model_provider=OpenAIProvider(openai_client=client), tracing_disabled=True)
            agent = Agent(name="a", model=MODEL, tools=[HostedMCPTool(tool_config=desk(), on_approval_request=on_approval)])
            options = {"run_config": config, "max_turns": 4, "auto_previous_response_id": True}
            if not streamed:
                return (await Runner.run(agent, "hours Monday", **options)).final_output
            result = Runner.run_streamed(agent, "hours Monday", **options)
            async for _ in result.stream_events():
                pass
            return result.final_output

    said = asyncio.run(run())
    assert asked == ["get_hours"]
    assert (HOURS in said) == approve and ("not today" in said) != approve
