"""Loopwright with default settings in front of llama-server itself.

Its grammars let the model write text before a call, even one that is required, and a model of random weights writes nothing else.
So the calls are those of a history.
"""

import uuid

import pytest

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Bergen"]}, "sky": {"enum": ["clear", "grey"]}},
    "required": ["city", "sky"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": PARAMETERS},
}

both_forms = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def question(**more):
    messages = [{"role": "user", "content": "How is the weather?"}]
    return {"model": "model", "messages": messages, "max_tokens": 12, "temperature": 0, **more}


def session():
    return f"s-{uuid.uuid4()}"


def called(rounds, content):
    """A history in which the model has called a tool so often."""
    messages = [{"role": "user", "content": "How is the weather?"}]
    for number in range(rounds):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "mine", "arguments": "{}"}}
        messages.append({"role": "assistant", **content, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "cold"})
    return messages


@both_forms
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}], ids=["absent", "null", "empty"])
def test_a_history_with_calls_is_answered(by_default, content, rounds, streamed):
    for more in ({}, {"tools": [WEATHER]}):
        body = {**question(session_id=session(), **more), "messages": called(rounds, content)}
        _, agent = by_default.ask(body, streamed)
        assert agent["model_calls"] == 1 and agent["stop_reason"] in ("length", "completed")


@both_forms
def test_a_session_goes_on_after_calls(by_default, streamed):
    body = question(session_id=session())
    by_default.ask({**body, "messages": called(1, {"content": None})}, streamed)
    for more in ({}, {"tools": [WEATHER]}):
        _, agent = by_default.ask({**body, **more}, streamed)
        assert agent["model_calls"] == 1 and agent["stop_reason"] in ("length", "completed")
    assert by_default.calls == []
