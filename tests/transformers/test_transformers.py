"""Loopwright with default settings in front of transformers itself.

Its server knows no `tool_choice`, and a model of random weights makes no call of its own. So the calls are those of a history.
"""

import uuid

import pytest

CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": PARAMETERS}}

both_forms = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def ask(model_name, by_default):
    """Asks the model, in a session of its own or in the one that is named."""

    def asking(messages, streamed, **more):
        body = {"model": model_name, "messages": messages, "max_tokens": 8, "session_id": f"s-{uuid.uuid4()}", **more}
        return by_default.ask(body, streamed)

    return asking


def user(text):
    return {"role": "user", "content": text}


def called(rounds, content):
    """A history in which the model has called a tool so often."""
    messages = [user("How is the weather?")]
    for number in range(rounds):
        call = {**CALL, "id": f"call_{number}"}
        messages.append({"role": "assistant", **content, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "cold"})
    return messages


@both_forms
def test_a_plain_answer(ask, streamed):
    _, agent = ask([user("Hello")], streamed)
    assert agent["stop_reason"] in ("length", "completed") and agent["model_calls"] == 1


@both_forms
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}], ids=["absent", "null", "empty"])
def test_a_history_with_calls_is_answered(ask, content, rounds, streamed):
    for more in ({}, {"tools": [WEATHER]}):
        _, agent = ask(called(rounds, content), streamed, **more)
        assert agent["stop_reason"] in ("length", "completed") and agent["model_calls"] == 1


@both_forms
def test_a_session_goes_on_after_calls(ask, by_default, streamed):
    session = f"s-{uuid.uuid4()}"
    ask(called(1, {"content": None}), streamed, session_id=session)
    for turn in range(2):
        _, agent = ask([user(f"And then {turn}?")], streamed, session_id=session, tools=[WEATHER])
        assert agent["stop_reason"] in ("length", "completed")
    assert by_default.calls == []
