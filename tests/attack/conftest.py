"""Attacks on a running server: each file is one way to harm it, and what it answers instead."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes; runs where HEDDLE_SLOW_TESTS is set")


def pytest_collection_modifyitems(items):
    if not os.environ.get("HEDDLE_SLOW_TESTS"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow; set HEDDLE_SLOW_TESTS"))
