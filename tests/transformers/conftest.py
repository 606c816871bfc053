"""A real model server (transformers serve) with a model of random weights, a tool server, and loopwright between them."""

import os
import sys
from pathlib import Path

import pytest

import model

sys.path.append(str(Path(__file__).parent.parent / "llama_cpp"))

import servers  # noqa: E402

# Starting Python with these libraries takes most of it.
servers.READY_WAIT = 180


@pytest.fixture(scope="session")
def upstream(tmp_path_factory):
    """The model server, and the name of its model."""
    work = tmp_path_factory.mktemp("transformers")
    name = str(work / "model")
    model.write(name)
    # Nothing is looked for on the network.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(work), "PYTHONUNBUFFERED": "1"}
    program = str(Path(sys.executable).parent / "transformers")
    command = [program, "serve", "--host", "127.0.0.1", "--port", str(free_port()), "--device", "cpu", name]
    server = servers.Process(command, r"running on (http://[0-9.:]+)", work / "server.log", cwd=work, env=environment)
    yield server.url, name
    server.stop()


def free_port():
    """A port that was free a moment ago: this server cannot choose one of its own and say so."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def served(upstream, tmp_path_factory):
    """Loopwright with the address of the model server as the only setting."""
    work = tmp_path_factory.mktemp("loopwright")
    with servers.loopwright(work, ["--upstream", f"{upstream[0]}/v1"]) as server:
        yield server


@pytest.fixture
def loopwright(served):
    """Loopwright, with no calls of tools yet."""
    served.calls.clear()
    return served
