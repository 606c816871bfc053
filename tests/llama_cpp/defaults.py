"""Fixtures for a model server behind loopwright with default settings; `upstream` is the address of the model server."""

import pytest

import servers


@pytest.fixture(scope="session")
def served_by_default(upstream, tmp_path_factory):
    """Loopwright with the address of the model server as the only setting."""
    work = tmp_path_factory.mktemp("defaults")
    with servers.loopwright(work, ["--upstream", f"{upstream}/v1"]) as server:
        yield server


@pytest.fixture
def by_default(served_by_default):
    """Loopwright with default settings, with no calls of tools yet."""
    served_by_default.calls.clear()
    return served_by_default
