"""The Debian package, unpacked and used as it would be once installed."""

import json
import pathlib
import shutil
import subprocess
import urllib.request

import pytest
import server as heddle

BUILD = heddle.BINARY.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The root of a system with nothing but the package."""
    if not (BUILD / "CPackConfig.cmake").exists():
        pytest.skip(f"{BUILD} is no build folder: there is no package of {heddle.BINARY}")
    folder = tmp_path_factory.mktemp("package")
    made = subprocess.run(
        ["cpack", "-G", "DEB", "-B", folder, "--config", BUILD / "CPackConfig.cmake"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    (package,) = folder.glob("heddle_*.deb")
    root = folder / "root"
    subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    root.joinpath("control").write_text(
        subprocess.run(["dpkg-deb", "-f", package], check=True, capture_output=True, text=True).stdout
    )
    return root


def test_it_wants_what_the_program_is_linked_with(installed):
    control = installed.joinpath("control").read_text()
    depends = next(line for line in control.splitlines() if line.startswith("Depends: "))
    for library in ("libc6", "libssl3", "libcurl4", "libsqlite3-0", "libjemalloc2", "libyaml-cpp0"):
        assert library in depends, depends


def test_the_program_runs_and_its_schema_is_its_own(installed):
    program = installed / "usr/bin/heddle"
    version = subprocess.run([program, "version"], capture_output=True, text=True, timeout=60)
    assert version.returncode == 0 and version.stdout.startswith("heddle ")
    told = subprocess.run([program, "config", "schema"], capture_output=True, text=True, timeout=60)
    assert told.stdout == (installed / "usr/share/heddle/heddle.schema.json").read_text()


def test_shells_and_man_find_their_texts(installed):
    share = installed / "usr/share"
    assert "complete" in (share / "bash-completion/completions/heddle").read_text()
    assert (share / "zsh/vendor-completions/_heddle").read_text().startswith("#compdef heddle\n")
    assert "complete -c heddle" in (share / "fish/vendor_completions.d/heddle.fish").read_text()
    (page,) = (share / "man/man1").glob("heddle.1*")
    assert page.stat().st_size > 1000


def test_the_configuration_that_comes_with_it_is_served(installed, tmp_path):
    text = (installed / "etc/heddle/heddle.yaml").read_text()
    assert "dataDir: /var/lib/heddle " in text
    config = tmp_path / "heddle.yaml"
    text = text.replace("/var/lib/heddle", str(tmp_path / "data")).replace(":8080", ":0")
    config.write_text(text + "devices: [{name: cpu0, kind: cpu, memory: 64MiB}]\nhost: {memory: 64MiB}\n")  # Not half of the machine.
    checked = subprocess.run([installed / "usr/bin/heddle", "config", "check", config], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with heddle.Server(config.read_text()) as server:
        with urllib.request.urlopen(server.url + "/v1/models", timeout=30) as answer:
            assert json.load(answer)["data"] == []


def test_the_unit_is_a_sound_one(installed, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: the unit was not looked at")
    unit = (installed / "usr/lib/systemd/system/heddle.service").read_text()
    for path in ("/usr/bin/heddle", "/etc/heddle/heddle.yaml"):
        assert path in unit and (installed / path[1:]).exists()
    here = tmp_path / "heddle.service"
    here.write_text(unit.replace("/usr/bin/heddle", str(installed / "usr/bin/heddle")))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", here], capture_output=True, text=True, timeout=60)
    assert verified.returncode == 0 and str(here) not in verified.stderr, verified.stderr
