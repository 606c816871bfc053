"""Loopwright in front of llama-cpp-python itself, whose forms and checks no script of ours could know so well."""

import json
import uuid

import pytest

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Bergen"]}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": PARAMETERS},
}
FORCED = {"type": "function", "function": {"name": "get_weather"}}

both_forms = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
every_model = pytest.mark.parametrize("model", ["template", "known", "decides"])


def question(model, **more):
    """A request whose answer is short and the same each time."""
    messages = [{"role": "user", "content": "How is the weather?"}]
    return {"model": model, "messages": messages, "max_tokens": 12, "temperature": 0, **more}


def forced(model, **more):
    """A request in which the model must call the tool first. One that decides by itself would then call it for ever."""
    cap = {"max_tool_rounds": 1} if model == "decides" else {}
    return question(model, tools=[WEATHER], tool_choice=FORCED, **{"max_tokens": 200, **cap, **more})


def session():
    return f"s-{uuid.uuid4()}"


def check_call(call):
    """The arguments came once, and as the tool wants them."""
    arguments = call["arguments"]
    assert arguments.keys() == {"city", "days"}
    assert arguments["city"] in ("Oslo", "Bergen")
    assert isinstance(arguments["days"], int)
    assert call["name"] == "get_weather"


@both_forms
@every_model
def test_a_plain_answer_passes_through(loopwright, model, streamed):
    text, agent = loopwright.ask(question(model), streamed)
    assert text and agent is None
    assert loopwright.calls == []


@both_forms
@every_model
def test_a_plain_answer_of_the_loop_is_the_same(loopwright, model, streamed):
    passed, _ = loopwright.ask(question(model), streamed=False)
    text, agent = loopwright.ask(question(model, session_id=session()), streamed)
    assert text == passed
    assert agent["stop_reason"] in ("length", "completed")


@both_forms
@every_model
def test_a_forced_call_runs_once_and_its_result_goes_back(loopwright, model, streamed):
    text, agent = loopwright.ask(forced(model), streamed)
    (call,) = loopwright.calls
    check_call(call)
    assert agent["rounds"] == 1 and agent["model_calls"] == 2
    assert text


@every_model
def test_the_answer_tells_of_the_call(loopwright, model):
    answer = loopwright.complete(forced(model))
    (call,) = answer["agentic_tool_calls"]
    assert call["status"] == "ok" and json.loads(call["result_content"]) == {"celsius": -3}
    assert json.loads(call["arguments"]) == loopwright.calls[0]["arguments"]


@every_model
def test_a_history_with_calls_is_taken_in_the_next_turn(loopwright, model):
    body = forced(model, session_id=session())
    for turn in (1, 2):
        text, agent = loopwright.ask(body, streamed=turn == 2)
        assert text and agent["rounds"] == 1
        assert len(loopwright.calls) == turn
    check_call(loopwright.calls[1])


@both_forms
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_model_that_always_calls_is_stopped_by_the_cap(loopwright, rounds, streamed):
    body = question("decides", tools=[WEATHER], tool_choice="auto", max_tool_rounds=rounds)
    text, agent = loopwright.ask(body, streamed)
    assert [call["round"] for call in loopwright.calls] == list(range(rounds))
    for call in loopwright.calls:
        check_call(call)
    assert agent["stop_reason"] == "max_tool_rounds" and agent["rounds"] == rounds
    assert text


@both_forms
def test_with_default_settings_a_session_goes_on_after_calls(by_default, streamed):
    body = forced("template", session_id=session())
    for turn in (1, 2):
        text, agent = by_default.ask(body, streamed)
        assert text and agent["rounds"] == 1 and agent["model_calls"] == 2
        assert len(by_default.calls) == turn
        check_call(by_default.calls[-1])
    # Without tools, and with calls in the history.
    text, agent = by_default.ask(question("template", session_id=body["session_id"]), streamed)
    assert text and agent["rounds"] == 0


@both_forms
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}], ids=["absent", "null", "empty"])
def test_with_default_settings_the_client_answers_its_own_calls(by_default, content, rounds, streamed):
    messages = [{"role": "user", "content": "How is the weather?"}]
    for number in range(rounds):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "mine", "arguments": "{}"}}
        messages.append({"role": "assistant", **content, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "cold"})
    # In a session of its own, so that it is not passed through as it is.
    text, agent = by_default.ask({**question("template", session_id=session()), "messages": messages}, streamed)
    assert text and agent["rounds"] == 0
    assert by_default.calls == []
