"""Files of the built binary in another program's S3: moto's server, which knows nothing of the tests."""

import json
import os
import pathlib
import subprocess
import threading

import boto3
import pytest
import requests
from moto.server import ThreadedMotoServer

BINARY = os.environ["LOOPWRIGHT_BIN"]
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDOFTHETESTS", "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests"}
READY = "loopwright ready on "


@pytest.fixture(scope="module")
def endpoint():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint):
    storage = boto3.resource(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )
    return storage.create_bucket(Bucket="files")


@pytest.fixture
def server(endpoint, bucket, tmp_path: pathlib.Path):
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "AWS_ENDPOINT_URL": endpoint, **KEYS}
    arguments = ["--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9/v1", "--files-dir", "s3://files/a/b"]
    process = subprocess.Popen(
        [BINARY, "serve", *arguments], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    lines = iter(process.stderr.readline, "")
    ready = next(line for line in lines if READY in line)
    # The log must not fill the pipe.
    threading.Thread(target=lambda: list(lines), daemon=True).start()
    yield ready.split(READY)[1].strip()
    process.terminate()
    assert process.wait(40) == 0


def keys(bucket):
    return {entry.key for entry in bucket.objects.all() if not entry.key.endswith("/loopwright")}


@pytest.mark.parametrize("size", [0, 1, 300_000, 8 * 2**20, 20 * 2**20 + 1])
def test_a_file_comes_out_as_it_went_in(server, bucket, size):
    content = bytes(at % 251 for at in range(min(size, 251))) * (size // 251 + 1)
    content = content[:size]
    sent = requests.post(f"{server}/v1/files", files={"file": ("a.bin", content)}, timeout=60)
    assert sent.status_code == 200, sent.text
    file = sent.json()
    (key,) = keys(bucket)
    assert key.startswith("a/b/")
    assert bucket.Object(key).get()["Body"].read() == content
    url = f"{server}/v1/files/{file['id']}"
    assert requests.get(f"{url}/content", timeout=60).content == content
    if size > 200:
        part = requests.get(f"{url}/content", headers={"range": "bytes=100-199"}, timeout=60)
        assert (part.status_code, part.content) == (206, content[100:200])
    assert requests.get(f"{server}/readyz", timeout=60).json()["file_store"] == "ok"
    assert requests.delete(url, timeout=60).json()["deleted"] is True
    assert keys(bucket) == set()


def test_content_that_somebody_removed_is_said(server, bucket):
    file = requests.post(f"{server}/v1/files", files={"file": ("a", b"abc")}, timeout=60).json()
    bucket.objects.all().delete()
    gone = requests.get(f"{server}/v1/files/{file['id']}/content", timeout=60)
    assert (gone.status_code, json.loads(gone.text)["error"]["code"]) == (404, "not_found")
