"""OpenAI's Agents SDK for Python with its default model class, against loopwright."""

import asyncio
import uuid

import pytest
from agents import Agent, CodeInterpreterTool, ModelSettings, OpenAIConversationsSession, OpenAIProvider, RunConfig, Runner, WebSearchTool, function_tool
from openai import AsyncOpenAI
from pydantic import BaseModel

from conftest import ALICE, MODEL, TICKET_STATE

PLAIN_TEXT = "The capital of Norway is Oslo."
NINE = "half past nine"


@function_tool
def get_local_time(city: str) -> str:
    """Tells the time of a city."""
    assert city == "Oslo"
    return NINE


STREAMED = pytest.mark.parametrize("streamed", [False, True])


def run(servers, streamed, agent, *turns, **options):
    """Runs an agent turn by turn; a turn gets the result of the one before and gives input and options."""

    async def all_turns():
        async with AsyncOpenAI(base_url=servers.keyed_responses_url, api_key=ALICE, max_retries=0) as client:
            config = RunConfig(model_provider=OpenAIProvider(openai_client=client), tracing_disabled=True)
            result = None
            for turn in turns:
                asked, more = turn(result) if callable(turn) else (turn, {})
                more = {**options, **more, "run_config": config, "max_turns": 4}
                if not streamed:
                    result = await Runner.run(agent, asked, **more)
                    continue
                result = Runner.run_streamed(agent, asked, **more)
                async for _ in result.stream_events():
                    pass
            return result

    return asyncio.run(all_turns())


def kinds(result):
    return [item.type for item in result.new_items]


@STREAMED
def test_a_plain_agent(servers, streamed):
    result = run(servers, streamed, Agent(name="a", model=MODEL, instructions="Be short."), "plain question")
    assert result.final_output == PLAIN_TEXT


@STREAMED
def test_a_tool_of_the_server(servers, streamed):
    result = run(servers, streamed, Agent(name="a", model=MODEL), "ticket please")
    assert TICKET_STATE in result.final_output
    # It has been run, and the agent knows of it.
    assert kinds(result) == ["message_output_item", "tool_call_item", "message_output_item"]
    assert result.new_items[1].raw_item.type == "mcp_call"


@STREAMED
def test_a_tool_of_the_agent_beside_it(servers, streamed):
    prompt = f"client {uuid.uuid4()}"
    result = run(servers, streamed, Agent(name="a", model=MODEL, tools=[get_local_time]), prompt)
    assert TICKET_STATE in result.final_output and f"It is {NINE}." in result.final_output
    assert len(servers.model_calls(prompt)) == 2


@STREAMED
@pytest.mark.parametrize("options", [{}, {"auto_previous_response_id": True}])
def test_a_second_turn(servers, streamed, options):
    """A tool of the agent, then another question, by items sent back and by `previous_response_id`."""
    agent = Agent(name="a", model=MODEL, tools=[get_local_time])
    again = f"plain {uuid.uuid4()}"

    def second(result):
        if options:
            return again, {"previous_response_id": result.last_response_id}
        return result.to_input_list() + [{"role": "user", "content": again}], {}

    result = run(servers, streamed, agent, f"client {uuid.uuid4()}", second, **options)
    assert result.final_output == PLAIN_TEXT
    (call,) = servers.model_calls(again)
    assert [message["role"] for message in call["messages"]] == ["user", "assistant", "tool", "tool", "assistant", "user"]


@STREAMED
def test_a_conversation(servers, streamed):
    async def create():
        async with AsyncOpenAI(base_url=servers.keyed_responses_url, api_key=ALICE) as client:
            return (await client.conversations.create()).id

    again = f"plain {uuid.uuid4()}"
    agent = Agent(name="a", model=MODEL, tools=[get_local_time])
    result = run(servers, streamed, agent, f"client {uuid.uuid4()}", again, conversation_id=asyncio.run(create()))
    assert result.final_output == PLAIN_TEXT
    (call,) = servers.model_calls(again)
    assert [message["role"] for message in call["messages"]] == ["user", "assistant", "tool", "tool", "assistant", "user"]


@STREAMED
def test_a_session_of_conversations(servers, streamed):
    """The agent keeps its history in a conversation, item by item, and takes its last turn back."""
    client = AsyncOpenAI(base_url=servers.keyed_responses_url, api_key=ALICE, max_retries=0)
    session = OpenAIConversationsSession(openai_client=client)
    agent = Agent(name="a", model=MODEL, tools=[get_local_time])
    config = RunConfig(model_provider=OpenAIProvider(openai_client=client), tracing_disabled=True)
    first, wrong, again = f"client {uuid.uuid4()}", f"plain {uuid.uuid4()}", f"plain {uuid.uuid4()}"

    async def ask(prompt):
        if not streamed:
            return (await Runner.run(agent, prompt, session=session, run_config=config)).final_output
        result = Runner.run_streamed(agent, prompt, session=session, run_config=config)
        async for _ in result.stream_events():
            pass
        return result.final_output

    async def turns():
        async with client:
            assert f"It is {NINE}." in await ask(first)
            assert await ask(wrong) == PLAIN_TEXT
            before = await session.get_items()
            assert [(await session.pop_item())["role"] for _ in range(2)] == ["assistant", "user"]
            assert await session.get_items() == before[:-2]
            assert await ask(again) == PLAIN_TEXT
            await session.clear_session()

    asyncio.run(turns())
    (call,) = servers.model_calls(again)
    assert [message["role"] for message in call["messages"]] == ["user", "assistant", "tool", "tool", "assistant", "user"]


@STREAMED
def test_hosted_tools(servers, streamed):
    result = run(servers, streamed, Agent(name="a", model=MODEL, tools=[WebSearchTool()]), "search please")
    assert result.final_output.startswith("Åpenbart: Oslo")
    assert kinds(result) == ["tool_call_item", "message_output_item"]
    tool = CodeInterpreterTool(tool_config={"type": "code_interpreter", "container": {"type": "auto"}})
    result = run(servers, streamed, Agent(name="a", model=MODEL, tools=[tool]), "code please")
    assert "It says:" in result.final_output and "tool_call_item" in kinds(result)


@STREAMED
def test_reasoning_and_its_return(servers, streamed):
    settings = ModelSettings(reasoning={"summary": "auto"}, include_usage=True)
    agent = Agent(name="a", model=MODEL, model_settings=settings)
    second = lambda result: (result.to_input_list() + [{"role": "user", "content": "plain question"}], {})  # noqa: E731
    result = run(servers, streamed, agent, "think hard", second)
    assert result.final_output == PLAIN_TEXT


@STREAMED
def test_an_agent_with_an_output_type(servers, streamed):
    class Ticket(BaseModel):
        id: int
        summary: str

    result = run(servers, streamed, Agent(name="a", model=MODEL, output_type=Ticket), "json please")
    assert result.final_output.id == 42 and TICKET_STATE in result.final_output.summary


@STREAMED
def test_an_answer_that_breaks_off_is_an_error(servers, streamed):
    with pytest.raises(Exception):
        run(servers, streamed, Agent(name="a", model=MODEL), "break off")
