#!/usr/bin/env python3
"""Renders the chart of deploy/helm with its defaults into deploy/kubernetes, for those who use no helm.

    tools/manifests.py            writes the manifests
    tools/manifests.py --check    tells whether they are of the chart as it is; needs no helm

helm is the one on the PATH, or $HEDDLE_HELM.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy/helm/heddle"
FOLDER = ROOT / "deploy/kubernetes"
NAMESPACE = "heddle"
# The least that the chart asks for. What is rendered does not depend on it.
KUBERNETES = "1.30.0"
# What each file has: arguments of helm for it.
MONITORING = ["--show-only", "templates/monitoring.yaml", "--set", "serviceMonitor.enabled=true,prometheusRule.enabled=true"]
FILES = {
    "heddle.yaml": [],
    "monitoring.yaml": MONITORING,
    "keda.yaml": ["--show-only", "templates/autoscaling.yaml", "--set", "keda.enabled=true"],
}


def helm():
    """Path of helm; None where there is none."""
    return os.environ.get("HEDDLE_HELM") or shutil.which("helm")


def digest():
    """SHA-256 of all that manifests are made from."""
    whole = hashlib.sha256(KUBERNETES.encode())
    for path in sorted(path for path in CHART.rglob("*") if path.is_file() and path.suffix != ".md"):
        content = path.read_bytes()
        whole.update(f"{path.relative_to(CHART)} {len(content)}\n".encode() + content)
    return whole.hexdigest()


def template(*arguments):
    """What helm makes of the chart. CalledProcessError, with what helm says, where it cannot."""
    command = [helm(), "template", "heddle", CHART, "--namespace", NAMESPACE, "--kube-version", KUBERNETES, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def render(name):
    """The text of a file of deploy/kubernetes."""
    head = f"# Made by tools/manifests.py from deploy/helm/heddle; changes belong there. Chart: {digest()}\n"
    return head + template(*FILES[name])


def is_current(name):
    """Whether the file was rendered from the chart as it is."""
    path = FOLDER / name
    return path.exists() and path.open(encoding="utf-8").readline().rstrip().endswith(digest())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        stale = [name for name in FILES if not is_current(name)]
        if stale:
            sys.exit(f"of another chart: {', '.join(stale)}; run tools/manifests.py where helm is")
        return
    if helm() is None:
        sys.exit("helm is not on the PATH, and HEDDLE_HELM does not name it")
    FOLDER.mkdir(exist_ok=True)
    for name in FILES:
        (FOLDER / name).write_text(render(name), encoding="utf-8")


if __name__ == "__main__":
    main()
