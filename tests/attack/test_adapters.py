"""LoRA adapters that clients have loaded while the server runs: from elsewhere on the machine, under the names of others, by who may not."""

import concurrent.futures
import os
import shutil

import lora
import pytest
import server as heddle

BASE = heddle.MODELS / "reverser"
KEYS = """apiKeys:
  - ask
  - {key: scrape, role: metrics}
  - {key: rule, role: admin}
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """What may be loaded from, and what may not, each with an adapter."""
    root = tmp_path_factory.mktemp("adapters")
    lora.make(BASE, root / "allowed" / "good", seed=1)
    shutil.copytree(root / "allowed" / "good", root / "secret" / "good")
    (root / "allowed" / "link").symlink_to(root / "secret" / "good")
    files = root / "allowed" / "files"
    files.mkdir()
    (files / "adapter_config.json").symlink_to("/etc/passwd")
    (files / "adapter_model.safetensors").symlink_to(root / "secret" / "good" / "adapter_model.safetensors")
    pipe = root / "allowed" / "pipe"
    shutil.copytree(root / "allowed" / "good", pipe)
    (pipe / "adapter_config.json").unlink()
    os.mkfifo(pipe / "adapter_config.json")
    huge = root / "allowed" / "huge"
    shutil.copytree(root / "allowed" / "good", huge)
    (huge / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4, "x": "' + "a" * (2 << 20) + '"}')
    return root


@pytest.fixture(scope="module")
def server(folders):
    rows = [f"  reverser: {{path: {BASE}, dtype: float32, adapter_rank: 8}}\n", "sorter"]
    extra = KEYS + f"adapters: {{directories: [{folders / 'allowed'}]}}\n"
    with heddle.Server(heddle.config(memory="12MiB", models=rows, extra=extra)) as running:
        yield running


def load(server, name, path, key="rule", **fields):
    body = {"lora_name": name, "lora_path": str(path), **fields}
    return server.call("/v1/load_lora_adapter", body, headers={"Authorization": f"Bearer {key}"})


def unload(server, name, key="rule"):
    return server.call("/v1/unload_lora_adapter", {"lora_name": name}, headers={"Authorization": f"Bearer {key}"})


def names(server):
    return {model["id"] for model in server.call("/v1/models", headers={"Authorization": "Bearer ask"})[2]["data"]}


def test_keys_without_the_role_change_nothing(server):
    for key, status in (("ask", 403), ("scrape", 403), ("wrong", 401)):
        assert load(server, "mine", "good", key)[0] == status
        assert unload(server, "reverser", key)[0] == status
    assert names(server) == {"reverser", "sorter"}


def test_nothing_outside_of_the_folders_is_read(server, folders):
    outside = {load(server, "mine", path)[2]["error"]["message"].split('" is in')[-1] for path in (
        folders / "secret" / "good", folders / "secret" / "nothing", "../secret/good", "good/../../secret/good",
        "link", "files", "/", "/proc/self", "..", ".", folders / "allowed",
    )}
    assert len(outside) == 1, "what exists elsewhere is not told"
    assert "adapters.directories" in outside.pop()
    assert load(server, "mine", "good\0/../../secret")[0] == 400
    assert load(server, "mine", "a" * 5000)[0] == 400
    assert names(server) == {"reverser", "sorter"}


def test_what_is_no_adapter_is_refused_and_hangs_nobody(server, folders):
    for path, status in (("pipe", 404), ("huge", 400), ("nothing", 404), ("good/adapter_config.json", 404)):
        got, _, said = load(server, "mine", path)
        assert got == status, said
        assert str(folders) not in said["error"]["message"], "no path of this machine"
    assert "root:" not in str(load(server, "mine", "files"))


def test_names_of_others_are_not_taken(server):
    for name in ("reverser", "sorter", "", " ", "a b", "a\nb", "\x00", "x" * 257, "<script>", "é"):
        assert load(server, name, "good")[0] == 400, name
        assert load(server, name, "good", load_inplace=True)[0] == 400, name
    assert unload(server, "sorter")[0] == 404
    assert load(server, "mine", "good", base_model_name="nobody")[0] == 404
    assert names(server) == {"reverser", "sorter"}


def test_many_changes_at_once_come_one_after_the_other(server):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        loads = list(pool.map(lambda i: load(server, f"n{i % 4}", "good")[0], range(12)))
        assert sorted(loads) == [200] * 4 + [400] * 8
        assert names(server) == {"reverser", "sorter", "n0", "n1", "n2", "n3"}
        gone = list(pool.map(lambda i: unload(server, f"n{i % 4}")[0], range(8)))
        assert sorted(gone) == [200] * 4 + [404] * 4
    assert names(server) == {"reverser", "sorter"}


def test_without_folders_nothing_is_loaded(folders):
    rows = [f"  reverser: {{path: {BASE}, adapter_rank: 8}}\n"]
    with heddle.Server(heddle.config(memory="12MiB", models=rows)) as plain:
        status, _, said = plain.call("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": str(folders / "allowed" / "good")})
        assert status == 400 and "adapters.directories" in said["error"]["message"]
