"""`loopwright launch` with the real Codex and Claude Code, before a scripted model server.

LOOPWRIGHT_BIN                the binary
LOOPWRIGHT_TEST_AGENTS_DIR    a directory with the node_modules of package.json
"""

import http.server
import os
import pathlib
import subprocess
import threading

import pytest
from model import MODEL, WINDOW, Model

BINARY = os.environ["LOOPWRIGHT_BIN"]
MODULES = pathlib.Path(os.environ["LOOPWRIGHT_TEST_AGENTS_DIR"]).resolve() / "node_modules"
READY = "loopwright ready on "
KEY = "key-of-the-launch-tests"
COMMAND = "echo from-the-shell-$((6*7))"
# The packages of the programs themselves. The scripts in front of them are set up when a package is installed.
PROGRAMS = {
    "codex": "@openai/codex-linux-*/vendor/*/bin/codex",
    "claude": "@anthropic-ai/claude-code-linux-*/claude",
}
WORDS = {
    "codex": ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Run it."],
    "claude": ["-p", "Run it.", "--allowedTools", "Bash"],
}


class Refusing(http.server.BaseHTTPRequestHandler):
    """A proxy that notes who is asked for, and lets nobody through."""

    def refuse(self):
        self.server.asked.append(self.requestline)
        self.send_error(502)

    do_CONNECT = do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = refuse

    def log_message(self, *args):
        pass


@pytest.fixture
def proxy():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def model(request):
    server = Model(COMMAND, has_messages=getattr(request, "param", True))
    yield server
    server.close()


@pytest.fixture
def url(model, tmp_path):
    (tmp_path / "server").mkdir()
    settings = tmp_path / "server/loopwright.toml"
    settings.write_text('[[api_keys]]\nname = "tests"\nenv = "TESTS_KEY"\n')
    arguments = ["--config", settings, "--listen", "127.0.0.1:0", "--session-store", "memory:"]
    environment = {"PATH": os.environ["PATH"], "TESTS_KEY": KEY}
    process = subprocess.Popen(
        [BINARY, "serve", *arguments, "--upstream", model.base_url],
        cwd=settings.parent,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = iter(process.stderr.readline, "")
    ready = next(line for line in lines if READY in line)
    # The log must not fill the pipe.
    threading.Thread(target=lambda: list(lines), daemon=True).start()
    yield ready.split(READY)[1].strip()
    process.terminate()
    assert process.wait(40) == 0


@pytest.fixture
def launch(url, proxy, tmp_path):
    """Launches an agent as a user does, and holds that nothing of the user's has changed."""
    home, temporary, project, programs = (tmp_path / name for name in ("home", "tmp", "project", "bin"))
    for directory in (home / ".codex", home / ".claude", temporary, project, programs):
        directory.mkdir(parents=True)
    for name in (".codex/config.toml", ".claude.json", ".claude/settings.json", ".gitconfig"):
        (home / name).write_text("not a setting of this file\n" if name.endswith(".toml") else "{}")
    for name, pattern in PROGRAMS.items():
        (programs / name).symlink_to(next(MODULES.glob(pattern)))
    through = f"http://127.0.0.1:{proxy.server_address[1]}"
    proxies = {name: through for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy")}
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "LOOPWRIGHT_API_KEY": KEY,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        **proxies,
    }

    def run(*words):
        before = contents(home)
        done = subprocess.run(
            [BINARY, "launch", "--url", url, *words],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert contents(home) == before
        assert not list(temporary.glob("loopwright-launch-*"))
        assert proxy.asked == []
        return done

    return run


def contents(directory):
    """All files and directories, with their contents."""
    paths = sorted(directory.rglob("*"))
    return [(str(path), path.read_bytes() if path.is_file() else None) for path in paths]


@pytest.mark.parametrize("agent", ["codex", "claude"])
def test_a_command_runs_and_its_output_is_in_the_answer(agent, launch, model):
    done = launch(agent, *WORDS[agent])
    assert done.returncode == 0, done.stderr
    assert "It said:" in done.stdout and "from-the-shell-42" in done.stdout, done.stdout
    asked = [body for method, path, _, body in model.requests if method == "POST" and body.get("messages")]
    assert len(asked) >= 2
    assert {body["model"] for body in asked} == {MODEL}
    if agent == "claude":
        assert all(body["max_tokens"] <= WINDOW // 2 for body in asked)


@pytest.mark.parametrize("agent", ["codex", "claude"])
def test_the_exit_status_of_the_agent_is_passed_on(agent, launch):
    done = launch(agent, "--no-such-flag")
    assert done.returncode != 0
    assert "--no-such-flag" in done.stderr and "loopwright:" not in done.stderr


@pytest.mark.parametrize("model", [False], indirect=True)
def test_claude_is_not_started_before_a_server_without_messages(launch, model):
    done = launch("claude", *WORDS["claude"])
    assert done.returncode == 1
    assert "has no Messages API" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("agent", ["codex", "claude", "aider"])
def test_what_would_be_set_is_shown_without_the_key(agent, launch):
    done = launch(agent, "--print")
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stdout
    assert MODEL in done.stdout and str(WINDOW) in done.stdout
