"""Holds the deployment files together: they parse, name files and metrics that exist, and have one version.

    python3 tests/deploy/check.py --binary target/debug/loopwright

Needs PyYAML. `kubectl` and `systemd-analyze` add to what is checked, where they are there.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
KUBERNETES = DOCKER / "kubernetes"
OBSERVABILITY = DOCKER / "observability"
DASHBOARD = OBSERVABILITY / "grafana/dashboards/loopwright.json"
ALERTS = OBSERVABILITY / "alerts.yaml"
# Every series of a fresh server.
SNAPSHOT = ROOT / "tests/integration/snapshots/integration__metrics__a_fresh_server_shows_every_series.snap"
# Seconds until the demo has ended its tour; it has called every kind of tool then.
TOUR = 60
# Seconds that a command or a stopping server may take.
PATIENCE = 60

faults = []


def fault(where, what):
    """Notes something that has to be mended."""
    name = where.relative_to(ROOT) if isinstance(where, Path) else where
    faults.append(f"{name}: {what}")


def expect(holds, where, what):
    """Notes `what` as a fault unless it holds."""
    if not holds:
        fault(where, what)


def run(*command):
    """Runs a command to its end; its output is both streams."""
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False
    )


def documents(path):
    """The documents of a YAML file."""
    try:
        return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]
    except yaml.YAMLError as error:
        fault(path, f"is no YAML: {error}")
        return []


# Metrics


@contextlib.contextmanager
def demo(binary):
    """A running demo after its tour; the value is its base URL."""
    command = [binary, "demo", "--listen", "127.0.0.1:0"]
    with tempfile.TemporaryFile("w+") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            yield tour_ended(server, output)
        finally:
            server.terminate()
            try:
                server.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def tour_ended(server, output):
    deadline = time.monotonic() + TOUR
    while time.monotonic() < deadline and server.poll() is None:
        # Read from the start, without moving the place where the server writes.
        text = os.pread(output.fileno(), 1 << 20, 0).decode(errors="replace")
        if found := re.search(r"^Still serving at (http://[\w.:\[\]]+)", text, re.MULTILINE):
            return found[1]
        time.sleep(0.1)
    text = os.pread(output.fileno(), 1 << 20, 0).decode(errors="replace")
    sys.exit(f"the demo did not come to the end of its tour:\n{text}")


SAMPLE = re.compile(r"^(loopwright_\w+)(?:\{(.*)\})?(?: \S+)?$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


def read_series(text):
    """The values of each label of each series in a text such as /metrics has."""
    series = {}
    for name, labels in SAMPLE.findall(text):
        values = series.setdefault(name, {})
        for label, value in LABEL.findall(labels):
            values.setdefault(label, set()).add(value)
    return series


def known_series(binary):
    """What the demo shows, what every fresh server shows, and the names that the manual has besides."""
    with demo(binary) as base:
        request = urllib.request.Request(f"{base}/metrics")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            shown = read_series(answer.read().decode())
    fresh = read_series(SNAPSHOT.read_text())
    # What has no series before it is first needed.
    documented = set(re.findall(r"`(loopwright_\w+)`", (ROOT / "src/server/commands/manual/operations.md").read_text()))
    return shown, fresh, documented


SELECTOR = re.compile(r"\b(loopwright_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
# Labels that Prometheus adds.
ADDED = {"instance", "job", "le"}


def check_expression(where, expression, shown, fresh, documented):
    """Metrics exist; and labels, where there are series; and values, where a fresh server has all of them."""
    for name, matchers in SELECTOR.findall(expression):
        if name not in shown and name not in fresh:
            base = re.sub(r"_(bucket|count|sum)$", "", name)
            expect(documented & {name, base}, where, f"there is no metric {name}")
            continue
        labels = {**shown.get(name, {}), **fresh.get(name, {})}
        for label, operator, value in MATCHER.findall(matchers):
            if label in ADDED:
                continue
            expect(label in labels, where, f"{name} has no label {label}")
            if label in fresh.get(name, {}):
                values = value.split("|") if "~" in operator else [value]
                expect(fresh[name][label].issuperset(values), where, f"{name} has no {label}={value}")


def check_metrics(binary):
    known = known_series(binary)
    dashboard = json.loads(DASHBOARD.read_text())
    identifiers = [panel["id"] for panel in dashboard["panels"]]
    expect(len(set(identifiers)) == len(identifiers), DASHBOARD, "two panels have one id")
    expressions = 0
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            expressions += 1
            check_expression(f"{DASHBOARD.name}, {panel['title']}", target["expr"], *known)
    for group in documents(ALERTS)[0]["groups"]:
        for rule in group["rules"]:
            expressions += 1
            check_expression(f"{ALERTS.name}, {rule['alert']}", rule["expr"], *known)
            expect(rule["labels"].get("severity") in ("page", "ticket"), ALERTS, f"{rule['alert']} has no severity")
            expect(rule["annotations"].get("summary"), ALERTS, f"{rule['alert']} has no summary")
    print(f"{expressions} expressions of dashboard and alerts use metrics that exist")


# Files


def check_kustomization(path):
    """The files and folders that it names are there."""
    for document in documents(path):
        named = document.get("resources", []) + document.get("components", [])
        named += [patch["path"] for patch in document.get("patches", []) if "path" in patch]
        for generator in document.get("configMapGenerator", []):
            named += generator.get("files", [])
        for name in named:
            expect((path.parent / name).exists(), path, f"there is no {name}")


def check_kubernetes(version):
    for path in sorted(KUBERNETES.rglob("*.yaml")):
        if path.name == "kustomization.yaml":
            check_kustomization(path)
            continue
        for document in documents(path):
            for key in ("apiVersion", "kind", "metadata"):
                expect(key in document, path, f"a document has no {key}")
    base = documents(KUBERNETES / "base/kustomization.yaml")[0]
    expect(base["images"] == [{"name": "loopwright", "newTag": version}], "base/kustomization.yaml", f"its image is not {version}")
    if not shutil.which("kubectl"):
        return
    folders = sorted(path.parent for path in KUBERNETES.glob("overlays/*/kustomization.yaml"))
    with tempfile.TemporaryDirectory() as scratch:
        for overlay in folders:
            for component in [None, *sorted(KUBERNETES.glob("components/*"))]:
                check_build(Path(scratch), overlay, component)


def check_build(scratch, overlay, component):
    """What an overlay with a component comes to."""
    names = {"resources": [os.path.relpath(overlay, scratch.resolve())]}
    if component:
        names["components"] = [os.path.relpath(component, scratch.resolve())]
    (scratch / "kustomization.yaml").write_text(yaml.safe_dump(names))
    built = run("kubectl", "kustomize", str(scratch.resolve()))
    if built.returncode:
        return fault(overlay, built.stdout)
    objects = [document for document in yaml.safe_load_all(built.stdout) if document]
    maps = {one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"}
    for one in objects:
        if one["kind"] != "Deployment":
            continue
        pod = one["spec"]["template"]["spec"]
        profile = pod["securityContext"]["seccompProfile"]["type"]
        expect(profile == ("Localhost" if component else "RuntimeDefault"), overlay, f"its seccomp profile is {profile}")
        for container in pod["containers"]:
            tag = container["image"].rpartition(":")[2]
            expect(re.fullmatch(r"\d+\.\d+\.\d+", tag), overlay, f"{container['image']} is no image with a version")
        used = {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
        expect(used <= maps, overlay, f"there is no ConfigMap of {used - maps}")


def check_compose(version):
    for path in sorted(DOCKER.glob("compose*.yml")):
        for document in documents(path):
            volumes = set(document.get("volumes", {}))
            for name, service in document["services"].items():
                image = service["image"]
                expect(not image.startswith("loopwright") or image == f"loopwright:{version}", path, f"{name} is {image}")
                for mount in service.get("volumes", []):
                    # A variable with a default stands for the default.
                    source = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", mount).split(":")[0]
                    exists = (DOCKER / source).exists() if source.startswith(".") else source in volumes
                    expect(exists, path, f"{name} mounts {source}, which is not there")


def check_settings(binary):
    """The settings of containers and pods are valid."""
    environment = os.environ | {
        "LOOPWRIGHT_UPSTREAM": "http://127.0.0.1:8000/v1",
        "LOOPWRIGHT_API_KEY": "a-key-that-only-stands-here",
        "LOOPWRIGHT_CLUSTER_KEY": "a-key-that-only-stands-here-too-and-is-longer",
        "AWS_REGION": "eu-central-1",
    }
    files = sorted([*DOCKER.glob("*.toml"), *KUBERNETES.rglob("*.toml")])
    for path in files:
        replicas = {"LOOPWRIGHT_CLUSTER_URL": "http://10.0.0.1:8081", "LOOPWRIGHT_SESSION_STORE": "postgres://u@h/d"}
        variables = environment | (replicas if path.parent.name == "scale" else {})
        command = [binary, "check-config", "--config", str(path)]
        checked = subprocess.run(
            command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False
        )
        expect(checked.returncode == 0, path, checked.stdout)


def check_unit(binary):
    """systemd takes the unit, with the program that is tested in the place of the installed one."""
    unit = (DOCKER / "loopwright.service").read_text()
    installed = "/usr/local/bin/loopwright"
    expect(f"ExecStart={installed} serve" in unit, DOCKER / "loopwright.service", f"does not start {installed}")
    if not shutil.which("systemd-analyze"):
        return
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "loopwright.service"
        copy.write_text(unit.replace(f"ExecStart={installed}", f"ExecStart={binary}"))
        verified = run("systemd-analyze", "verify", str(copy))
        # Faults of other units of the machine are not ours.
        lines = [line for line in verified.stdout.splitlines() if "loopwright" in line]
        expect(not lines, DOCKER / "loopwright.service", "\n".join(lines))


def check_versions(version):
    changes = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## (\d\S*)", changes, re.MULTILINE)
    expect(released[:1] == [version], "CHANGELOG.md", f"its newest version is {released[:1]}, not {version}")
    expect(re.search(r"^## Unreleased$", changes, re.MULTILINE), "CHANGELOG.md", "there is no section Unreleased")
    image = (ROOT / "Dockerfile").read_text()
    labels = re.findall(r'image\.version="([^"]*)"', image)
    expect(labels and set(labels) == {version}, "Dockerfile", f"its labels say {labels}, not {version}")
    for path in (ROOT / "Dockerfile", DOCKER / "README.md"):
        tags = set(re.findall(r"loopwright:(\d[\w.]*)", path.read_text()))
        expect(tags == {version}, path, f"its tags are {tags}, not {version}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("--binary", required=True, help="the built program")
    binary = os.path.realpath(arguments.parse_args().binary)
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    check_versions(version)
    check_compose(version)
    check_kubernetes(version)
    for path in sorted(OBSERVABILITY.rglob("*.yaml")):
        documents(path)
    check_settings(binary)
    check_unit(binary)
    check_metrics(binary)
    if faults:
        sys.exit("\n".join(faults))
    print("the deployment files hold together")


main()
