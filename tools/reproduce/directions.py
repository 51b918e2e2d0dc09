"""Rows whose direction and order of magnitude count."""

EXPERIMENTS = []
