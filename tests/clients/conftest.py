import environments
import pytest


@pytest.fixture(scope="session")
def server():
    row = f"  {environments.MODEL}: {{path: {environments.heddle.MODELS / environments.MODEL}, tool_parser: hermes}}\n"
    keys = f"apiKeys: [{environments.KEY}]\n"
    with environments.heddle.Server(environments.heddle.config(models=[row], extra=keys, device_extra=", pace: {step: 2ms}")) as running:
        yield running
