"""OpenAI's Python SDK over a connection that breaks: with an `idempotency-key` of the caller, one effect."""

import uuid

import httpx
import openai
import pytest
from openai import OpenAI

from conftest import CHARGE_CARD, MODEL, user
from relay import relay_to

# Places where the connection is cut: right after the request, and after so many tenths of the answer.
PLACES = [None, *range(10)]
LOST = (openai.APIConnectionError, httpx.TransportError)


def pay(client, prompt, key, stream):
    """One request of the caller; the SDK retries it by itself where it sees that it may."""
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[user(prompt)],
        tools=[CHARGE_CARD],
        stream=stream,
        extra_headers={"idempotency-key": key} if key else None,
    )
    if not stream:
        return answer.choices[0].message.content
    return "".join(chunk.choices[0].delta.content or "" for chunk in answer)


def persist(client, prompt, key, stream):
    """What a caller does whose answer breaks off where the SDK no longer retries: the same call, with the same key."""
    for _ in range(3):
        try:
            return pay(client, prompt, key, stream)
        except LOST:
            continue
    raise AssertionError("the connection was cut once only")


def new_prompt():
    return f"pay {uuid.uuid4()}"


def connect(url):
    return OpenAI(base_url=url, api_key="not-needed", max_retries=2)


@pytest.fixture(scope="module")
def lengths(servers):
    """The bytes of a whole answer, by its form."""
    found = {}
    for stream in (False, True):
        with relay_to(servers.url, None) as (relay, url), connect(url) as client:
            pay(client, new_prompt(), str(uuid.uuid4()), stream)
            found[stream] = relay.passed
    return found


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_a_connection_that_is_cut_anywhere_charges_once(servers, lengths, stream, place):
    prompt, key = new_prompt(), f"order-{uuid.uuid4()}"
    cut = -1 if place is None else max(1, lengths[stream] * place // 10)
    with relay_to(servers.url, cut) as (relay, url), connect(url) as client:
        text = persist(client, prompt, key, stream)
        assert relay.connections >= 2, "it was cut, and something asked again"
    assert text == f"Paid: {prompt}."
    assert len(servers.tool_calls(reference=prompt)) == 1
    # One turn: a call, and the answer with its result.
    assert len(servers.model_calls(prompt)) == 2


def test_the_sdk_itself_asks_again_while_there_is_no_answer(servers):
    prompt, key = new_prompt(), f"order-{uuid.uuid4()}"
    with relay_to(servers.url, -1) as (relay, url), connect(url) as client:
        assert pay(client, prompt, key, False) == f"Paid: {prompt}."
        assert relay.connections == 2
    assert len(servers.tool_calls(reference=prompt)) == 1


def test_the_sdk_sends_no_key_of_its_own(servers):
    prompt = new_prompt()
    with connect(servers.url) as client:
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[user(prompt)], tools=[CHARGE_CARD]
        )
    assert "idempotency-key" not in raw.http_request.headers


def test_the_same_key_gives_the_same_answer_and_says_so(servers):
    prompt, key = new_prompt(), f"order-{uuid.uuid4()}"

    def ask(client):
        return client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[user(prompt)], tools=[CHARGE_CARD], extra_headers={"idempotency-key": key}
        )

    with connect(servers.url) as client:
        first, second = ask(client), ask(client)
        assert "idempotency-replayed" not in first.headers
        assert second.headers["idempotency-replayed"] == "true"
        assert first.parse().model_dump() == second.parse().model_dump()
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            pay(client, new_prompt(), key, False)
        assert caught.value.code == "idempotency_key_reused"
    assert len(servers.tool_calls(reference=prompt)) == 1
