"""tools/gpu_bundle/entry.py: the rows of a lease that never was come back as the entry they were made of."""

import json
import pathlib
import re
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools/gpu_bundle"))

import entry  # noqa: E402

MODEL = dict(hidden=4096, intermediate=14336, layers=32, heads=32, kv_heads=8, head_dim=128, vocab=128256)
MODEL |= dict(prompt=2048, context=1024)
PRODUCTS = {"qkv": (6144, 4096), "out": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336)}
FLOPS, BANDWIDTH = 989.5e12, 3350e9
TERMS = dict(compute=0.7, weights=0.9, kv=0.8, pointwise=0.6, prefill_self=0.3, prefill_cached=0.4)
OVERHEADS = dict(linear_overhead=20e-6, pointwise_overhead=11e-6, decode_overhead=10e-6, prefill_overhead=22e-6)


def operation(step, name, calls, seconds, moved, flops):
    """A row as gpu_model --operations has it; `seconds` of all calls."""
    rates = dict(gb_s=1e-9 * moved / seconds, tflop_s=1e-12 * flops / seconds)
    return dict(what=f"{step}, {name}", calls=calls, us=1e6 * seconds, share=0.1, of_ceiling=0.8, **rates)


def steps():
    """Operations of an H100 whose terms are as above, by the equations of src/sim/perf_model.h."""
    layers, prompt = MODEL["layers"], MODEL["prompt"]
    for name, (outputs, inputs) in PRODUCTS.items():
        moved = 2 * outputs * inputs
        seconds = moved / (BANDWIDTH * TERMS["weights"]) + OVERHEADS["linear_overhead"] / 4
        yield operation("decode of 1", name, layers, layers * seconds, layers * moved, layers * moved)
    weights = sum(2 * outputs * inputs for outputs, inputs in PRODUCTS.values())
    computing = weights * prompt / (FLOPS * TERMS["compute"])
    all_four = (computing**1.5 + (weights / (BANDWIDTH * TERMS["weights"])) ** 1.5) ** (2 / 3)
    for name, (outputs, inputs) in PRODUCTS.items():
        part = 2 * outputs * inputs / weights
        seconds = layers * part * (all_four + OVERHEADS["linear_overhead"])
        yield operation(
            f"prefill of {prompt}", name, layers, seconds, layers * part * weights, layers * part * weights * prompt
        )
    for batch in (1, 32, 128):
        moved = 4096 * 1024 * batch
        seconds = OVERHEADS["decode_overhead"] + moved / (BANDWIDTH * TERMS["kv"])
        yield operation(f"decode of {batch}", "attention", layers, layers * seconds, layers * moved, layers * 1e9)
    pairs = 4 * 32 * 128 * layers * prompt**2 / 2
    yield operation(f"prefill of {prompt}", "attention", layers, pairs / TERMS["prefill_self"] / FLOPS, 1e9, pairs)
    moved = 2 * prompt * (10 * 4096 + 2 * 40 * 128 + 3 * 14336) * layers
    pointwise = layers * OVERHEADS["pointwise_overhead"] + moved / (BANDWIDTH * TERMS["pointwise"])
    for name, part in (("norm", 0.3), ("silu", 0.5), ("rope", 0.2)):
        yield operation("decode of 1", name, layers, part * layers * OVERHEADS["pointwise_overhead"], 1e6, 0)
        yield operation(f"prefill of {prompt}", name, layers, part * pointwise, part * moved, 0)


def made_up():
    """Rows of gpu.jsonl, those of an earlier call before those that count."""
    at = dict(call="final", at="2026-12-01T10:00:00+00:00", version="abc1234", cublaslt="/usr/lib/libcublasLt.so.13")
    yield at
    yield dict(shape="llama-3-8b", device="GPU 0 (NVIDIA H100 80GB HBM3)")
    of = dict(call="numbers", part="model_8b", shape="llama-3-8b")
    yield of | dict(what="model", **MODEL)
    yield of | dict(what="load", ms=999.0, gb_s=1.0, of_ceiling=0.01)
    yield of | dict(what="load", ms=290.0, gb_s=52.0, of_ceiling=0.96)
    yield of | dict(what="map of 64", map_us_per_page=40.0, unmap_us_per_page=20.0)
    yield of | dict(what="map of 8", map_us_per_page=90.0, unmap_us_per_page=90.0)
    yield of | dict(what="decode of 32, ahead", ms=7.5, tokens_per_s=4267.0, of_ceiling=0.78)
    yield of | dict(what="ceilings", copy_gb_s=54.0, read_gb_s=3050.0, gemm_tflop_s=700.0)
    yield of | dict(what="decode while", skipped="no pages")
    for row in steps():
        yield of | row
    torch = dict(call="truth", part="torch_ceilings", shape="torch")
    yield torch | dict(what="copy in", gb_s=55.0)
    yield torch | dict(what="attention of 32 in decode", us=60.0, gb_s=2400.0)
    bench = dict(call="numbers", part="bench_ops")
    part = 4 * 32 * 128 / FLOPS
    alone, cached = part * 2048**2 / 2 / TERMS["prefill_self"], part * 2048 * 8192 / TERMS["prefill_cached"]
    for fresh, context, seconds in ((16, 0, 22e-6), (2048, 0, alone), (2048, 8192, alone + cached)):
        told = (
            f"attention  8B (32/8/128)  bf16    1 x {fresh:5} after {context:5} {1e6 * seconds:10.1f} us    12.3 GB/s"
        )
        yield bench | dict(text=told)
    for setting, ms in (("usual", 7.5), ("split_steps_4", 7.0)):
        yield dict(call="sweep", part=setting, shape="llama-3-8b", what="decode of 32, ahead", ms=ms, of_ceiling=0.1)
    yield dict(call="truth", part="ops", status="failed", seconds=3.0, why="status 1: LinearTest.AgreesWithDouble")


@pytest.fixture
def out(tmp_path):
    lines = [json.dumps(row) for row in made_up()]
    (tmp_path / "gpu.jsonl").write_text("\n".join(lines) + '\n{"what": "cut off in the mid')
    entry.write(tmp_path)
    return tmp_path


def number(text):
    """Without its unit, times in seconds."""
    value, unit = re.fullmatch(r"([\d.e]+?)(us|GB/s|GB)?", str(text)).groups()
    return float(value) * {"us": 1e-6, "GB/s": 1e9, "GB": 1e9, None: 1}[unit]


def test_the_entry_has_the_terms_that_the_rows_were_made_of(out):
    text = (out / "gpus.yaml").read_text()
    found = yaml.safe_load(text)["gpus"]["H100-80G"]
    assert number(found["flops"]) == FLOPS and number(found["bandwidth"]) == BANDWIDTH
    for key, value in {**TERMS, **OVERHEADS}.items():
        assert number(found[key]) == pytest.approx(value, rel=0.02), key
    assert "all_reduce" in text.splitlines()[1] and "prefill_cached" not in text.splitlines()[1]


def test_the_entry_is_written_as_those_that_are_there(out):
    kept = yaml.safe_load((ROOT / "data/perf/gpus.yaml").read_text())["gpus"]["H100-80G"]
    made = yaml.safe_load((out / "gpus.yaml").read_text())["gpus"]["H100-80G"]
    assert set(made) <= set(kept) | {"decode_overhead"}
    for key, value in made.items():
        assert str(value)[-2:] == str(kept[key])[-2:] or isinstance(value, float), key


def test_the_platform_has_the_largest_map_and_the_last_load(out):
    (found,) = yaml.safe_load((out / "platforms.yaml").read_text())["platforms"].values()
    assert found == {"load": "0.0192s/GB", "map_page": "30us"}


def test_the_report_has_claims_ratios_operations_settings_and_parts(out):
    report = (out / "report.md").read_text()
    conditions = "llama-3-8b, GPU 0 (NVIDIA H100 80GB HBM3), cuBLASLt there"
    end = f"{conditions} | `gpu_model --shape llama-3-8b` | 12-01, abc1234 |"
    assert f"| a load, against one copy of pinned memory | 52.0 GB/s, 0.96 | 0.95 | {end}" in report
    assert f"| decode ahead, against the ceilings, 32 | 4267 tokens/s, 7.50 ms, 0.78 | 0.85 | {end}" in report
    assert "| copy from pinned memory [GB/s] | 54 | 55 | 0.98 |" in report
    assert re.search(r"\| attention of 32 in decode \[GB/s\] \| [\d.]+ \| 2400 \| 0\.9\d \|", report)
    assert "| decode of 1, gate_up | 32 |" in report
    assert "| split_steps_4 | decode of 32, ahead | 7.5 | 7 | 1.071 |" in report
    assert "| ops | failed | 3 s | status 1: LinearTest.AgreesWithDouble |" in report


def test_of_nothing_there_is_an_entry_that_says_so(tmp_path):
    entry.write(tmp_path)
    assert yaml.safe_load((tmp_path / "gpus.yaml").read_text()) == {"gpus": {}}
    assert "Not measured: flops, bandwidth" in (tmp_path / "gpus.yaml").read_text()
    assert "## Claims" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    "device, name",
    [
        ("GPU 0 (NVIDIA H100 80GB HBM3)", "H100-80G"),
        ("GPU 0 (NVIDIA H100 PCIe)", "H100-PCIe"),
        ("GPU 1 (NVIDIA H200)", "H200"),
        ("GPU 0 (NVIDIA A100-SXM4-80GB)", "A100-80G"),
        ("GPU 0 (NVIDIA L4)", "NVIDIA-L4"),
    ],
)
def test_gpus_are_called_as_the_data_has_them(device, name):
    assert entry.sheet_of(device)[0] == name
