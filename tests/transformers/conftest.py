"""A real model server (transformers serve) with a model of random weights, a tool server, and loopwright between them."""

import os
import sys
from pathlib import Path

import pytest

import model

sys.path.append(str(Path(__file__).parent.parent / "llama_cpp"))

import servers  # noqa: E402
from defaults import by_default, served_by_default  # noqa: E402, F401

# Starting Python with these libraries takes most of it.
servers.READY_WAIT = 180


@pytest.fixture(scope="session")
def model_name(tmp_path_factory):
    """The name of the model, which is its directory."""
    directory = str(tmp_path_factory.mktemp("model"))
    model.write(directory)
    return directory


@pytest.fixture(scope="session")
def upstream(model_name, tmp_path_factory):
    """The model server."""
    work = tmp_path_factory.mktemp("transformers")
    # Nothing is looked for on the network.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(work), "PYTHONUNBUFFERED": "1"}
    program = str(Path(sys.executable).parent / "transformers")
    address = ["--host", "127.0.0.1", "--port", str(servers.free_port())]
    command = [program, "serve", *address, "--device", "cpu", model_name]
    server = servers.Process(command, r"running on (http://[0-9.:]+)", work / "server.log", cwd=work, env=environment)
    yield server.url
    server.stop()
