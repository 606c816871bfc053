"""A real model server (llama-server) with a model of random weights, a tool server, and loopwright between them."""

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "llama_cpp"))

import model  # noqa: E402
import servers  # noqa: E402
from defaults import by_default, served_by_default  # noqa: E402, F401

# As those of well-known models, it fails for a message whose content is missing or null.
TEMPLATE = """{%- if tools %}[tools]{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}{{ '[user]<tool_response>' + message.content + '</tool_response>' }}
{%- else %}{{ '[' + message.role + ']' + message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}[assistant]{% endif %}"""


@pytest.fixture(scope="session")
def upstream(tmp_path_factory):
    """The model server."""
    work = tmp_path_factory.mktemp("llama-server")
    model.write(work / "model.gguf")
    command = [os.environ["LLAMA_SERVER"], "--model", "model.gguf", "--ctx-size", str(model.CONTEXT), "--threads", "1"]
    (work / "template.jinja").write_text(TEMPLATE)
    command += ["--jinja", "--chat-template-file", "template.jinja"]
    command += ["--host", "127.0.0.1", "--port", str(servers.free_port())]
    server = servers.Process(command, r"listening on (http://[0-9.:]+)", work / "server.log", cwd=work)
    yield server.url
    server.stop()
