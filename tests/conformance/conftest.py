import pytest
from subject import configuration, heddle


@pytest.fixture(scope="session")
def server():
    with heddle.Server(configuration()) as running:
        yield running


@pytest.fixture(scope="session")
def slow_server():
    """The same with steps of 20 ms, and one request at a time: more get status 429."""
    with heddle.Server(configuration(", concurrencyLimit: 1", device_extra=", pace: {step: 20ms}")) as running:
        yield running
