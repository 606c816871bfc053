"""A real model server (llama-cpp-python) with a model of random weights, a tool server, and loopwright between them."""

import json
import sys

import pytest

import model
import servers
from defaults import by_default, served_by_default  # noqa: F401

# The model server has one model under two names: with the template of the model's file, and with a chat format in which
# the model may decide by itself whether it calls a function. That one cannot stream what it decides.
SERVED = [{"model_alias": "template"}, {"model_alias": "decides", "chat_format": "chatml-function-calling"}]
# As nobody's and as a known kind of server.
SETTINGS = """
session_store = "memory:"

[[upstreams]]
name = "unknown-kind"
base_url = "{upstream}/v1"
models = ["template"]

[[upstreams]]
name = "known-kind"
base_url = "{upstream}/v1"
models = ["known"]
model_map = {{ known = "template" }}
kind = "llama.cpp"

[[upstreams]]
name = "decides"
base_url = "{upstream}/v1"
models = ["decides"]
kind = "llama.cpp"
quirks = {{ streams = false }}
"""


@pytest.fixture(scope="session")
def upstream(tmp_path_factory):
    """The model server."""
    work = tmp_path_factory.mktemp("llama-cpp")
    weights = work / "model.gguf"
    model.write(weights)
    every = {"model": str(weights), "n_ctx": model.CONTEXT, "n_threads": 1, "verbose": False}
    settings = {"host": "127.0.0.1", "port": 0, "models": [{**every, **each} for each in SERVED]}
    (work / "server.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "llama_cpp.server", "--config_file", str(work / "server.json")]
    server = servers.Process(command, r"running on (http://[0-9.:]+)", work / "server.log", cwd=work)
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def served(upstream, tmp_path_factory):
    """Loopwright between the model server and a tool server."""
    work = tmp_path_factory.mktemp("loopwright")
    (work / "settings.toml").write_text(SETTINGS.format(upstream=upstream))
    with servers.loopwright(work, ["--config", "settings.toml"]) as server:
        yield server


@pytest.fixture
def loopwright(served):
    """Loopwright, with no calls of tools yet."""
    served.calls.clear()
    return served
