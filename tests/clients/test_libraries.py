"""LiteLLM and LangChain: their suites run with their own interpreter."""

import environments
import pytest


@pytest.mark.parametrize("suite", ["suite_litellm.py", "suite_langchain.py"])
def test_the_library(server, tmp_path, suite):
    environments.run_suite(suite, server, tmp_path)
