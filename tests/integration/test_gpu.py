"""The server on a GPU, which is the emulated driver's: what the host does about it is real, its speed is not."""

import os
import signal

import pytest
import server as heddle
from test_failures import stream

EMULATOR = os.environ["HEDDLE_CUDA_EMULATOR_LIBRARY"]


def machine(**keys):
    """The environment of a machine with such GPUs."""
    told = {"devices": 1, "memory": "64MiB", "granularity": 65536, **keys}
    return {
        "HEDDLE_CUDA_DRIVER": EMULATOR,
        "HEDDLE_CUDA_EMULATOR": ",".join(f"{key}={value}" for key, value in told.items()),
    }


def config(memory="4MiB", devices=1, **options):
    """A heddle.yaml over the demo models and GPUs that hold one or two of them."""
    rows = "".join(f"  - {{kind: cuda, memory: {memory}, page: 64KiB}}\n" for _ in range(devices))
    return heddle.config(devices=rows, **options)


@pytest.fixture(scope="module")
def gpu():
    with heddle.Server(config(), env=machine()) as running:
        yield running


def test_models_take_turns_and_answer_right(gpu):
    for turn in range(3):
        for model in heddle.demo_models():
            prompt, answer = heddle.eval_set(model, 3)[turn]
            assert gpu.chat(model, prompt) == answer
    loads = gpu.metrics()['heddle_model_loads_total{model_name="adder",reason="request"}']
    assert loads >= 2, "they do not fit together"


def test_what_it_holds_is_counted_as_on_any_device(gpu):
    prompt, answer = heddle.eval_set("adder", 1)[0]
    assert gpu.chat("adder", prompt) == answer
    (device,) = gpu.call("/api/devices")[2]["devices"]
    assert device["name"] == "gpu0"
    assert device["pages_total"] == 64
    assert device["pages"]["weights_idle"]["held"] > 0
    assert device["pages_free"] == 64 - sum(kind["held"] for kind in device["pages"].values())


def test_a_stream_goes_on_when_its_worker_is_killed(gpu):
    prompt, answer = max(heddle.eval_set("adder", 50), key=lambda pair: len(pair[1]))

    def kill_at_second(tokens):
        if tokens == 2:
            os.kill(gpu.workers()[0], signal.SIGKILL)

    assert stream(gpu, "adder", prompt, kill_at_second)[0] == answer


def test_two_gpus_share_the_load_and_all_are_devices_when_none_is_named():
    text = heddle.config(devices="").replace("devices:\n", "")
    with heddle.Server(text, env=machine(devices=2, granularity=2 << 20)) as server:
        devices = server.call("/api/devices")[2]["devices"]
        assert [device["name"] for device in devices] == ["gpu0", "gpu1"]
        for model in heddle.demo_models():
            prompt, answer = heddle.eval_set(model, 1)[0]
            assert server.chat(model, prompt) == answer


@pytest.mark.parametrize(
    "env, says",
    [
        (machine(devices=0), "there is no GPU that heddle could use"),
        ({"HEDDLE_CUDA_DRIVER": "/nonexistent/libcuda.so.1"}, "/nonexistent/libcuda.so.1"),
        (machine(memory="1MiB"), "of a GPU with 1.00 MiB"),
        (machine(vmm=0), "no virtual memory management"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_named_before_the_start(tmp_path, env, says):
    path = tmp_path / "heddle.yaml"
    path.write_text(config())
    checked = heddle.subprocess.run(
        [heddle.BINARY, "config", "check", path],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
    )
    assert checked.returncode != 0
    assert says in checked.stdout + checked.stderr
