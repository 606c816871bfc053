"""The servers that `run` has started, as the tests see them."""

import json
import os
import urllib.request
from dataclasses import dataclass

import pytest

MODEL = "scripted-model"
ALICE, BOB = (os.environ.get(f"LOOPWRIGHT_TEST_{name}_KEY", "") for name in ("ALICE", "BOB"))


def function(name, **properties):
    """A function tool of a request, strict so that the SDKs' helpers take it."""
    parameters = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "strict": True, "parameters": parameters}}


# The first two belong to the webhook, the last one to the client (`--dispatch-tools` says so).
GET_TICKET = function("get_ticket", id="integer")
CHARGE_CARD = function("charge_card", reference="string")
GET_LOCAL_TIME = function("get_local_time", city="string")

# What the scripted model says; the braces are the webhook's result.
TICKET_TEXT = "Let me look. \n\nThe ticket says: {"
TICKET_STATE = "open since Tuesday"


def user(text):
    return {"role": "user", "content": text}


@dataclass(frozen=True)
class Servers:
    url: str
    """Loopwright without keys, with a dispatch URL."""
    keyed_url: str
    """Loopwright with keys, with a tool of its own."""
    responses_url: str
    keyed_responses_url: str
    """The two behind a proxy that checks the answers of the Responses API."""
    upstream: str
    webhook: str

    def all_model_calls(self):
        """Every model call so far: body and `authorization`."""
        return fetch(f"{self.upstream}/calls")

    def model_calls(self, prompt):
        """The bodies of the model calls whose last user message is this one."""
        bodies = [call["body"] for call in self.all_model_calls()]
        said = [[each["content"] for each in body["messages"] if each["role"] == "user"] for body in bodies]
        return [body for body, texts in zip(bodies, said) if texts[-1] == prompt]

    def tool_calls(self, **arguments):
        """The calls that the webhook got with these arguments."""
        return [call for call in fetch(f"{self.webhook}/calls") if call["arguments"] == arguments]


def fetch(url):
    # Not through a proxy of the machine: everything is on loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as answer:
        return json.load(answer)


@pytest.fixture(scope="session")
def servers():
    names = ("URL", "KEYED_URL", "RESPONSES_URL", "KEYED_RESPONSES_URL", "UPSTREAM", "WEBHOOK")
    return Servers(*(os.environ[f"LOOPWRIGHT_TEST_{name}"] for name in names))
