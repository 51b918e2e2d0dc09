"""The server on a GPU, which is the emulated driver's: what the host does about it is real, its speed is not."""

import os
import signal
import time

import pytest
import server as heddle
from test_failures import stream

EMULATOR = os.environ["HEDDLE_CUDA_EMULATOR_LIBRARY"]
NVML = os.environ["HEDDLE_NVML_EMULATOR_LIBRARY"]
FIRST, SECOND = (f"GPU-e0000000-0000-0000-0000-00000000000{n}" for n in range(2))


def machine(**keys):
    """The environment of a machine with such GPUs."""
    told = {"devices": 1, "memory": "64MiB", "granularity": 65536, **keys}
    return {
        "HEDDLE_CUDA_DRIVER": EMULATOR,
        "HEDDLE_NVML": NVML,
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


def wait_for(what, seconds=60):
    """What `what()` returns once that is true."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
    return found


def device(server, name):
    (found,) = (each for each in server.call("/api/devices")[2]["devices"] if each["name"] == name)
    return found


def test_models_share_a_workspace_and_pages_for_recordings():
    """Charged once for all models, as much as the hungriest needs, and given back with it."""
    env = machine()
    with heddle.Server(config(memory="16MiB"), env=env) as server:

        def overhead():
            return device(server, "gpu0")["pages"]["overhead"]["held"]

        first, *others = heddle.demo_models()
        for model in (first, *others):
            prompt, answer = heddle.eval_set(model, 1)[0]
            assert server.chat(model, prompt) == answer
            if model == first:
                alone = wait_for(overhead)
        assert device(server, "gpu0")["pages_free"] > 0
        assert alone <= overhead() < 2 * alone
        for model in others:
            assert server.call("/models/unload", {"model": model})[0] == 200
        wait_for(lambda: overhead() == alone)
        told = {**os.environ, **env, "HEDDLE_HOST": server.url}
        shown = heddle.subprocess.run([heddle.BINARY, "ps"], capture_output=True, text=True, check=True, env=told)
        assert f"overhead {alone * 64} KiB" in shown.stdout or f"overhead {alone / 16:.2f} MiB" in shown.stdout


def test_images_come_over_both_gpus_links():
    """Copies take time here, so that the other GPU's link is of use; what came which way is counted."""
    with heddle.Server(config(devices=2, memory="16MiB"), env=machine(devices=2, link=20_000_000)) as server:

        def peer_loaded():
            for model in heddle.demo_models():
                prompt, answer = heddle.eval_set(model, 1)[0]
                assert server.chat(model, prompt) == answer
            server.call("/unload", method="POST")
            wait_for(lambda: all(each["up"] for each in server.call("/api/devices")[2]["devices"]))
            return sum(each["peer_load_bytes"] for each in server.call("/api/devices")[2]["devices"])

        wait_for(peer_loaded)
        devices = server.call("/api/devices")[2]["devices"]
        assert sum(each["peer_assist_bytes"] for each in devices) >= sum(each["peer_load_bytes"] for each in devices)
        assert all(each["peer_load_bytes"] <= each["copied_bytes"] for each in devices)
        metrics = server.metrics()
        by_link = {
            link: sum(metrics[f'heddle_worker_copied_bytes_total{{device="gpu{n}",link="{link}"}}'] for n in range(2))
            for link in ("own", "peer")
        }
        assert by_link["own"] > 0 and by_link["peer"] > 0


def test_the_death_of_the_gpu_that_lends_its_link_is_no_matter():
    with heddle.Server(config(devices=2, memory="16MiB"), env=machine(devices=2, link=20_000_000)) as server:
        for turn in range(4):
            for model in heddle.demo_models():
                prompt, answer = heddle.eval_set(model, 4)[turn]
                assert server.chat(model, prompt) == answer
            os.kill(server.workers()[turn % 2], signal.SIGKILL)
            wait_for(lambda: all(each["up"] for each in server.call("/api/devices")[2]["devices"]))


def test_a_model_comes_into_pages_that_an_answer_has_just_left():
    """A step that was enqueued ahead of the answer's end still writes KV there."""
    with heddle.Server(config(models=["morse", "reverser"], memory="16MiB"), env=machine()) as server:
        assert server.chat("morse", "morse ab") == ".- -..."  # Too short for a block of the prefix cache.
        for prompt, answer in heddle.eval_set("reverser", 3):
            assert server.chat("reverser", prompt) == answer


def test_what_others_hold_is_not_planned_with_and_is_shown(tmp_path):
    held = tmp_path / "held"
    total = 64 << 20
    held.write_text(f"{FIRST} {total} {20 << 20} {os.getpid()}:{20 << 20}\n")
    env = {**machine(granularity=2 << 20), "HEDDLE_NVML_EMULATOR": str(held)}
    text = heddle.config(devices="").replace("devices:\n", "")
    with heddle.Server(text, env=env) as server:
        prompt, answer = heddle.eval_set("adder", 1)[0]
        assert server.chat("adder", prompt) == answer
        pages = device(server, "gpu0")["pages_total"]
        assert pages == (44 << 20) // 10 * 9 // (2 << 20), "nine tenths of what others leave"
        worker = server.workers()[0]
        held.write_text(f"{FIRST} {total} {total} {worker}:{40 << 20} {os.getpid()}:{7 << 20}\n")
        wait_for(lambda: device(server, "gpu0").get("others_bytes") == 7 << 20)
        assert server.metrics()['heddle_device_others_bytes{device="gpu0"}'] == 7 << 20
        told = {**os.environ, "HEDDLE_HOST": server.url}
        shown = heddle.subprocess.run([heddle.BINARY, "ps"], capture_output=True, text=True, check=True, env=told)
        assert "gpu0: other programs hold 7.00 MiB of it" in shown.stdout
        server.process.send_signal(signal.SIGHUP)  # A reload leaves the device as it is.
        wait_for(lambda: "configuration reloaded" in server.log())
        assert device(server, "gpu0")["pages_total"] == pages


def test_without_a_management_library_the_log_says_so_once():
    env = {**machine(), "HEDDLE_NVML": "/nonexistent/libnvidia-ml.so.1"}
    with heddle.Server(config(), env=env) as server:
        prompt, answer = heddle.eval_set("adder", 1)[0]
        assert server.chat("adder", prompt) == answer
        wait_for(lambda: "what others hold of GPUs is not known" in server.log())
        assert server.log().count("/nonexistent/libnvidia-ml.so.1") == 1
        assert "others_bytes" not in device(server, "gpu0")


def test_a_gpu_that_others_have_is_named_with_them_and_other_devices_serve(tmp_path):
    held = tmp_path / "held"
    held.write_text(f"{FIRST} {64 << 20} {62 << 20} {os.getpid()}:{62 << 20}\n")
    env = {**machine(held="62MiB"), "HEDDLE_NVML_EMULATOR": str(held)}
    devices = "  - {kind: cuda, memory: 4MiB, page: 64KiB}\n  - {name: cpu0, kind: cpu, memory: 5MiB, page: 64KiB}\n"
    with heddle.Server(heddle.config(devices=devices), env=env) as server:
        for model in heddle.demo_models():
            prompt, answer = heddle.eval_set(model, 1)[0]
            assert server.chat(model, prompt) == answer
        assert not device(server, "gpu0")["up"]
        told = {**os.environ, "HEDDLE_HOST": server.url}
        shown = heddle.subprocess.run([heddle.BINARY, "ps"], capture_output=True, text=True, check=True, env=told)
        assert "gpu0: down, is being started" in shown.stdout and "cpu0: weights " in shown.stdout
        assert "cannot be had: of its 64 MiB, 2 MiB are free, and others hold 62 MiB: " in server.log()
        assert f"({os.getpid()}) 62.0 MiB" in server.log()


def ask_each(server, turn):
    for model in heddle.demo_models():
        prompt, answer = heddle.eval_set(model, 50)[turn % 50]
        assert server.chat(model, prompt) == answer


def fail_next(server, faults, text):
    """Has the next worker of the first GPU fail so. Those of now have begun: what is planned is for the first to begin."""
    wait_for(lambda: all(found["up"] for found in server.call("/api/devices")[2]["devices"]))
    faults.write_text(text)
    os.kill(server.workers()[0], signal.SIGKILL)
    wait_for(lambda: not faults.exists())


def after_fault(server, faults, text):
    """Has the next worker fail so, and asks until it has; what is asked is answered right. Gives the log's lines."""

    def lost():
        return [line for line in server.log().splitlines() if "device lost" in line]

    fail_next(server, faults, text)
    turn, deadline = 0, time.monotonic() + 120
    while not lost():  # How much comes to this device is the manager's to say.
        assert time.monotonic() < deadline, "it never failed"
        ask_each(server, turn)
        turn += 1
    ask_each(server, turn)
    return lost()


@pytest.mark.parametrize(
    "fault, says",
    [
        ("kernel 20 700", "an illegal memory access"),
        ("kernel 7 214", "uncorrectable ECC error"),
        ("cuMemcpyAsync 30 719", "unspecified launch failure"),
    ],
)
def test_a_lost_gpu_is_named_and_nothing_is_lost_with_it(tmp_path, fault, says):
    faults = tmp_path / "faults"
    env = {**machine(devices=2), "HEDDLE_CUDA_EMULATOR_FAULTS": str(faults)}
    with heddle.Server(config(devices=2), env=env) as server:
        lost = after_fault(server, faults, fault)
        assert len(lost) == 1, lost
        assert "emulated GPU" in lost[0] and says in lost[0]


def test_memory_that_runs_out_in_a_load_is_named_and_the_load_done_again(tmp_path):
    faults = tmp_path / "faults"
    env = {**machine(), "HEDDLE_CUDA_EMULATOR_FAULTS": str(faults)}
    with heddle.Server(config(), env=env) as server:
        fail_next(server, faults, "cuMemSetAccess 2 2")  # The first is that of all pages, at the start.
        prompt, answer = heddle.eval_set("adder", 1)[0]
        body = {"model": "adder", "messages": [{"role": "user", "content": prompt}], "temperature": 0}
        status, _, said = server.call("/v1/chat/completions", body)
        assert status == 200 and said["choices"][0]["message"]["content"] == answer, said
        (failed,) = (line for line in server.log().splitlines() if "load failed" in line)
        for word in ("model=adder device=gpu0", "pages: cuMemSetAccess", "CUDA_ERROR_OUT_OF_MEMORY"):
            assert word in failed
        assert "device lost" not in server.log()
        server.call("/unload", method="POST")
        wait_for(lambda: device(server, "gpu0")["pages_free"] == device(server, "gpu0")["pages_total"])


@pytest.mark.parametrize(
    "env, says",
    [
        (machine(devices=0), "there is no GPU that heddle could use"),
        ({"HEDDLE_CUDA_DRIVER": "/nonexistent/libcuda.so.1"}, "/nonexistent/libcuda.so.1"),
        (machine(memory="1MiB"), "of a GPU with 1.00 MiB"),
        (machine(vmm=0), "no virtual memory management"),
        (machine(capability=75), "has compute capability 7.5, and 8.0 or later is needed"),
        (machine(driver=11040), "it supports CUDA 11.4, and 12.4 or later is needed"),
        (machine(granularity=2 << 20), "page: 65536 bytes; this GPU maps 2.00 MiB at once"),
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


@pytest.mark.parametrize(
    "env, says",
    [
        ({"HEDDLE_CUDA_DRIVER": "/nonexistent/libcuda.so.1"}, ["GPUs: 0 (no CUDA driver: /nonexistent/libcuda.so.1"]),
        (machine(devices=2), ["GPUs: 2", "  1: emulated GPU", "64.0 MiB"]),
        (machine(vmm=0), ["GPUs: 1", "64.0 MiB, has no virtual memory management"]),
    ],
)
def test_the_version_tells_what_gpus_there_are_and_why_none(env, says):
    told = heddle.subprocess.run(
        [heddle.BINARY, "version"], capture_output=True, text=True, check=True, env={**os.environ, **env}
    )
    for words in says:
        assert words in told.stdout


def test_a_gpu_too_small_for_a_model_is_named_with_what_the_model_needs(tmp_path):
    path = tmp_path / "heddle.yaml"
    path.write_text(config(memory="256KiB"))
    checked = heddle.subprocess.run(
        [heddle.BINARY, "config", "check", path],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **machine()},
    )
    assert checked.returncode != 0
    said = checked.stdout + checked.stderr
    assert "models.adder" in said and "the largest device, gpu0, has 4 (256 KiB)" in said


def test_a_model_in_stages_on_two_gpus_answers_right():
    models = [f"  adder: {{path: {heddle.MODELS / 'adder'}, dtype: float32, pipeline_parallel: 2}}\n"]
    with heddle.Server(config(devices=2, models=models), env=machine(devices=2)) as running:
        for prompt, answer in heddle.eval_set("adder", 2):
            assert running.chat("adder", prompt) == answer
        assert [device["stage"]["stage"] for device in running.call("/api/devices")[2]["devices"]] == [0, 1]
