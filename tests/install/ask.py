"""Starts the demo with the command that it is given, asks it one question, and stops it with SIGTERM.

Prints how long it took until the demo was ready. Fails if it does not come up, does not answer, or does not stop.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

# Seconds until the demo is ready, until it answers, and until it has stopped.
START, ANSWER, STOP = 60, 60, 40
QUESTION = "What is the weather in Oslo?"


def program(starter):
    """The process that SIGTERM is for: the child of `unshare`, which keeps the signal, else the starter itself."""
    if sys.argv[1] != "unshare":
        return starter
    return int(Path(f"/proc/{starter}/task/{starter}/children").read_text().split()[0])


def main():
    begun = time.monotonic()
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    too_late = threading.Timer(START, server.kill)
    too_late.start()
    try:
        shown = []
        for line in server.stdout:
            shown.append(line)
            if ready := re.search(r"ready on (http://\S+)", line):
                break
        else:
            sys.exit("the demo did not come up:\n" + "".join(shown))
        too_late.cancel()
        print(f"ready after {time.monotonic() - begun:.2f} s")
        # What it prints further is read, so that it does not wait for a reader.
        threading.Thread(target=server.stdout.read, daemon=True).start()

        body = {"model": "loopwright-demo", "messages": [{"role": "user", "content": QUESTION}]}
        request = urllib.request.Request(
            f"{ready[1]}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=ANSWER) as answer:
            completion = json.load(answer)
        calls = [call["name"] for call in completion["agentic_tool_calls"]]
        text = completion["choices"][0]["message"]["content"]
        print(f"{QUESTION} {calls} {text}")
        if calls != ["get_weather"] or "Oslo" not in text:
            sys.exit("this is not the answer of the demo")

        os.kill(program(server.pid), signal.SIGTERM)
        if status := server.wait(STOP):
            sys.exit(f"the demo ended with status {status} after SIGTERM")
    finally:
        too_late.cancel()
        if server.poll() is None:
            server.kill()


main()
