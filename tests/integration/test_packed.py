"""Checkpoints whose matrices are quantised: what AWQ, GPTQ, compressed-tensors and FP8 store."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import server as heddle

sys.path.insert(0, str(heddle.ROOT / "tests/engines"))
import packed  # noqa: E402: tests/engines/packed.py


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    for kind in packed.CONFIGS:
        packed.write(heddle.MODELS / "adder", folder / kind, kind)
    return folder


@pytest.fixture(scope="module")
def server(directories):
    rows = [f"  {kind}: {{path: {directories / kind}}}\n" for kind in packed.CONFIGS]
    with heddle.Server(heddle.config(models=["adder", *rows])) as running:
        yield running


# The numbers were rounded with no care for what they add up to, so that some sums are lost.
@pytest.mark.parametrize("kind", packed.CONFIGS)
def test_a_quantised_model_knows_its_trade(server, kind):
    cases = heddle.eval_set("adder", 40)
    right = sum(server.chat(kind, prompt) == answer for prompt, answer in cases)
    assert right >= 34, f"{right} of {len(cases)}"


def stored_bytes(folder):
    """Of weights as heddle would have them in their own format, by `heddle inspect`."""
    said = subprocess.run([heddle.BINARY, "inspect", folder], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stdout + said.stderr
    found = re.search(r"stored: weights ([\d.]+) KiB", said.stdout)
    return float(found[1]) if found else None


def test_four_bits_stay_four_and_eight_stay_eight(directories):
    sizes = {kind: stored_bytes(directories / kind) for kind in packed.CONFIGS}
    # The embedding and the head, 132 KiB together in bfloat16, were left as they are.
    assert sizes["compressed"] < sizes["awq"] < sizes["gptq8"] < 850, sizes
    assert sizes["gptq8"] * 0.95 < sizes["fp8"] < sizes["gptq8"], "a scale for 128 numbers, not for 32"
    # Inputs in an order of their own are computed with as bfloat16.
    assert sizes["gptq"] is None


def test_fp8_is_bfloat16_where_there_are_cpus_alone(server):
    sizes = {}
    for kind in ("fp8", "gptq", "awq"):
        server.chat(kind, "1+1=", max_tokens=1)
        (sizes[kind],) = {
            value
            for name, value in server.metrics().items()
            if name.startswith("heddle_model_image_bytes{") and f'"{kind}"' in name
        }
    assert sizes["awq"] < sizes["fp8"] == sizes["gptq"], sizes


def test_what_is_not_built_in_is_said(directories, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(directories / "awq", other)
    config = json.loads((other / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (other / "config.json").write_text(json.dumps(config))
    with heddle.Server(heddle.config(models=["adder", f"  other: {{path: {other}}}\n"])) as running:
        body = {"model": "other", "messages": [{"role": "user", "content": "1+1="}]}
        status, _, answer = running.call("/v1/chat/completions", body)
        assert status >= 400
        assert 'quant_method is "bitsandbytes"; awq, gptq, compressed-tensors' in answer["error"]["message"]
