"""The description of the API against the built binary: it is a valid document, and the binary answers generated requests
as it says. A server error, or a status, header, media type or body that is not described, is a failure.

    run.py BINARY [OPTION OF SCHEMATHESIS …]
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from openapi_spec_validator import validate

from upstream import serving

HERE = Path(__file__).resolve().parent
SEED = 20
# Most generated requests of an operation and a phase, and how many there must be in all.
EXAMPLES, LEAST = 60, 3000
# Seconds for loopwright to come up and to stop.
READY, STOP = 30, 40

# Every chat request is offered the tool, so that most of them go through the loop.
CONFIG = """
listen = "127.0.0.1:0"
upstream = "{origin}/v1"
session_store = "sqlite:{work}/sessions.db"

[[tools]]
name = "look_up"
description = "Looks something up."
url = "{origin}/run"
"""
# With API keys less is forwarded, and a key that is no operator's may not read the metrics.
KEY = "a-key-that-only-stands-here"
KEYS = """
[[api_keys]]
name = "alice"
env = "ALICE"
[[api_keys]]
name = "operator"
env = "OPERATOR"
operator = true
"""
# What is added to the settings, and the options of schemathesis.
RUNS = [("", []), (KEYS, ["--phases", "coverage", "--header", f"authorization: Bearer {KEY}"])]


@contextmanager
def loopwright(binary, settings, work):
    """Starts the binary, gives its origin, and stops it."""
    config, log = work / "loopwright.toml", work / "loopwright.log"
    config.write_text(settings)
    environment = {"PATH": os.environ["PATH"], "NO_PROXY": "*", "ALICE": KEY, "OPERATOR": f"another-{KEY}"}
    with log.open("w") as stderr:
        process = subprocess.Popen([binary, "serve", "--config", config], stderr=stderr, cwd=work, env=environment)
    try:
        yield ready(process, log)
        process.send_signal(signal.SIGTERM)
        status = process.wait(STOP)
        if status or "panic" in log.read_text():
            sys.exit(f"loopwright ended with status {status}:\n{log.read_text()[-4000:]}")
    finally:
        process.kill()
        process.wait()


def ready(process, log):
    until = time.monotonic() + READY
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r"ready on (http://\S+)", log.read_text()):
            return found[1]
        time.sleep(0.1)
    sys.exit(f"loopwright did not become ready; it said:\n{log.read_text()}")


def generated(document, origin, options):
    """Sends the generated requests, and gives their number."""
    command = [
        Path(sys.executable).parent / "schemathesis", "--config-file", HERE / "schemathesis.toml",
        "run", document, "--url", origin, "--seed", str(SEED), "--max-examples", str(EXAMPLES), *options,
    ]
    # Nothing here leaves the machine.
    environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
    said = subprocess.run(command, cwd=document.parent, env=environment, stdout=subprocess.PIPE, text=True)
    print(said.stdout)
    if said.returncode:
        sys.exit(said.returncode)
    return int(re.search(r"(\d+) generated", said.stdout)[1])


def main(binary, *options):
    binary = Path(binary).resolve()
    printed = subprocess.run([binary, "openapi"], check=True, stdout=subprocess.PIPE, env={}).stdout
    validate(json.loads(printed))
    print("the document is valid")
    count = 0
    for more, more_options in RUNS:
        with tempfile.TemporaryDirectory() as folder, serving() as upstream:
            document = Path(folder) / "openapi.json"
            document.write_bytes(printed)
            settings = CONFIG.format(origin=upstream, work=folder) + more
            with loopwright(binary, settings, Path(folder)) as origin:
                count += generated(document, origin, [*more_options, *options])
    if count < LEAST:
        sys.exit(f"only {count} requests were generated, not {LEAST}; raise EXAMPLES")


if __name__ == "__main__":
    main(*sys.argv[1:])
