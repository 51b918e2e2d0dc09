import openai
import pytest
import server as heddle


@pytest.fixture(scope="module")
def server():
    """All demo models behind a memory that does not hold them all."""
    with heddle.Server(heddle.config()) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=60)
