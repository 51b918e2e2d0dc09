"""The plan of a lease from start to end on the emulated driver: budgets, parts that fail, hang or are missing."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile
import time

import pytest
import server as heddle

EMULATOR = pathlib.Path(os.environ["HEDDLE_CUDA_EMULATOR_LIBRARY"])
BUILD = heddle.BINARY.parent
CALLS = ["truth", "numbers", "sweep", "robustness", "final"]
PASSED = "[==========] 3 tests from 1 test suite ran. (1 ms total)\n[  PASSED  ] 3 tests."


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The bundle, with stand-ins for programs that other tests run: what counts is who is run, and for how long."""
    folder = tmp_path_factory.mktemp("bundle")
    subprocess.run([heddle.ROOT / "tools/gpu_bundle/make.sh", BUILD, "--stage", folder], check=True)
    made = folder / "heddle-gpu"
    for program in ("device_gpu_test", "engine_test"):
        stand_in(made, f"bin/{program}", f"echo '{PASSED}'")
    stand_in(made, "bin/ops_cuda_test", "echo '[  FAILED  ] LinearTest.AgreesWithDouble (3 ms)'; exit 1")
    for program in ("cuda_device", "cuda_linear", "gpu_loop"):
        stand_in(made, f"bin/{program}", "echo stands in")
    stand_in(made, "bin/gpu_guests", 'echo \'{"what": "guests", "us": 7}\'')
    (made / "bin/cuda_ops").unlink(missing_ok=True)
    for script in ("serve_check.py", "memory_check.py"):
        (made / script).write_text("print('stands in')\n")
    images = made / "images-of-here"
    images.mkdir()
    for image in (made / "images").iterdir():
        (images / image.name).write_bytes(image.read_bytes())
    return made


def stand_in(made, path, commands):
    (made / path).unlink(missing_ok=True)
    (made / path).write_text(f"#!/bin/sh\n{commands}\n")
    (made / path).chmod(0o755)


def runs(path):
    """Whether the process whose number is there does; one that has ended may still have its number."""
    try:
        return pathlib.Path("/proc", path.read_text().strip(), "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def environment(**changed):
    told = {
        "HEDDLE_CUDA_DRIVER": str(EMULATOR),
        "HEDDLE_CUBLASLT": str(EMULATOR.parent / "libheddle_cublaslt_emulator.so"),
        "HEDDLE_CUDA_EMULATOR": "memory=256MiB",
    }
    return {key: value for key, value in {**os.environ, **told, **changed}.items() if value is not None}


def start(bundle, out, *arguments, **changed):
    command = [bundle / "run.sh", *arguments, "--small", "--out", out]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(**changed)
    )


def run(bundle, out, *arguments, **changed):
    """(status, what was said)."""
    process = start(bundle, out, *arguments, **changed)
    said = process.communicate(timeout=300)[0]
    return process.returncode, said


def rows_of(out):
    return [json.loads(line) for line in (out / "gpu.jsonl").read_text().splitlines()]


def parts_of(rows):
    """How each part ended, in order; each has ended once."""
    ended = [row for row in rows if "status" in row]
    names = [row["part"] for row in ended]
    assert len(names) == len(set(names))
    return {row["part"]: row for row in ended}


def kept_in(out, call):
    with tarfile.open(out / f"results-{call}.tar.gz") as archive:
        return {pathlib.PurePath(name).name for name in archive.getnames()}


@pytest.fixture(scope="module")
def lease(bundle, tmp_path_factory):
    """All five calls, as `./dev test-gpu` makes them."""
    out = tmp_path_factory.mktemp("out")
    status, said = run(bundle, out, HEDDLE_TUNE_SPLIT_STEPS="3")
    return out, status, said


def test_all_calls_run_and_each_leaves_an_archive(lease):
    out, status, said = lease
    for call in CALLS:
        assert {"gpu.log", "gpu.jsonl", "summary.txt"} <= kept_in(out, call)
    assert [row["call"] for row in rows_of(out) if "at" in row] == CALLS
    assert {"report.md", "gpus.yaml"} <= kept_in(out, "final")
    failed = [name for name, part in parts_of(rows_of(out)).items() if part["status"] not in ("passed", "skipped")]
    assert failed == ["ops", "ops_wgmma", "own_products"] and status == 1, said


def test_what_fails_or_is_missing_stops_no_other_and_is_named(lease):
    out, _, said = lease
    parts = parts_of(rows_of(out))
    assert parts["device"]["status"] == "passed" and parts["device"]["tests"] == {"passed": 3}
    assert "LinearTest.AgreesWithDouble" in parts["ops"]["why"]
    assert "bin/cuda_ops is not here" in parts["bench_ops"]["why"]
    assert parts["first_numbers"]["status"] == parts["final_8b"]["status"] == "passed", said
    summary = (out / "summary.txt").read_text()
    assert re.search(r"^ops: failed after \d+ s, status 1: LinearTest.AgreesWithDouble$", summary, re.M)
    assert all(part["why"] for part in parts.values() if part["status"] == "skipped")


def test_exchanges_are_timed_where_gpus_are_linked(bundle, lease, tmp_path):
    alone = [row for row in rows_of(lease[0]) if row.get("what") == "all-reduce"]
    assert [row["skipped"] for row in alone] == ["one GPU, or none that it reaches"]
    status, said = run(bundle, tmp_path, "bench_exchange", HEDDLE_CUDA_EMULATOR="devices=4,memory=256MiB")
    assert status == 0, said
    timed = {row["what"]: row["us"] for row in rows_of(tmp_path) if row.get("what", "").startswith("all-reduce of")}
    ways = [(2, "one shot"), (4, "one shot"), (4, "two shots"), (2, "through the host"), (4, "through the host")]
    assert list(timed) == [f"all-reduce of {kib} KiB, {ranks} ranks, {way}" for ranks, way in ways for kib in (16, 256)]
    assert all(us > 0 for us in timed.values())


def test_what_hangs_is_ended_with_all_that_it_started(bundle, tmp_path):
    stand_in(bundle, "bin/gpu_guests", f"sleep 1000 & echo $! > {tmp_path}/child; echo it begins; wait")
    status, said = run(bundle, tmp_path / "out", "bench_guests", "bench_linear", "--limit", "2")
    parts = parts_of(rows_of(tmp_path / "out"))
    assert status == 1, said
    assert parts["bench_guests"]["status"] == "hung" and "it begins" in parts["bench_guests"]["why"]
    assert parts["bench_linear"]["status"] == "passed"
    assert not runs(tmp_path / "child")


def test_a_call_ends_within_its_budget_and_names_what_it_had_no_time_for(bundle, tmp_path):
    """Of 14 seconds 8 are kept for the call's end; what hangs gets the rest, though its own limit is longer."""
    stand_in(bundle, "bin/gpu_guests", "sleep 1000")
    status, said = run(bundle, tmp_path, "bench_guests", "bench_linear", "--budget", "14")
    parts = parts_of(rows_of(tmp_path))
    assert status == 1 and parts["bench_guests"]["status"] == "hung", said
    assert parts["bench_linear"]["status"] == "skipped" and "14 s are spent" in parts["bench_linear"]["why"]


def test_figures_are_rows_with_their_part_and_its_environment(lease):
    rows = rows_of(lease[0])
    decode = [row for row in rows if row.get("what") == "decode of 1, ahead" and row["part"] == "first_numbers"]
    assert len(decode) == 1 and decode[0]["call"] == "truth" and decode[0]["ms"] > 0
    operations = {row["what"] for row in rows if row.get("part") == "operations_8b" and "share" in row}
    assert {"decode of 1, attention", "prefill of 40, norm"} <= operations
    tuned = [row["value"] for row in rows if row.get("tunable") == "HEDDLE_TUNE_SPLIT_STEPS"]
    assert tuned and set(tuned) == {3}
    parts = parts_of(rows)
    assert parts["thin_before_blas_0"]["environment"] == {"HEDDLE_TUNE_THIN_BEFORE_BLAS": "0"}
    assert parts["images-of-here"]["status"] == "passed"
    log = (lease[0] / "images-of-here.txt").read_text()
    assert "kernels are a file's" in log and "images-of-here/rms_norm.fatbin" in log


def test_a_word_to_end_leaves_the_archive_and_nothing_that_runs(bundle, tmp_path):
    stand_in(bundle, "bin/gpu_guests", f"echo $$ > {tmp_path}/started; echo it begins; sleep 1000")
    process = start(bundle, tmp_path / "out", "bench_linear", "bench_guests", "device")
    deadline = time.monotonic() + 60
    while not (tmp_path / "started").exists() or not (tmp_path / "started").read_text().strip():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 143, said
    parts = parts_of(rows_of(tmp_path / "out"))
    assert {name: part["status"] for name, part in parts.items()} == {
        "bench_linear": "passed",
        "bench_guests": "cut off",
    }
    assert {"gpu.log", "gpu.jsonl", "bench_linear.txt", "bench_guests.txt", "report.md"} <= kept_in(
        tmp_path / "out", "parts"
    )
    assert not runs(tmp_path / "started")


def test_without_cublaslt_what_would_measure_its_absence_fails(bundle, tmp_path):
    status, said = run(bundle, tmp_path, "first_numbers", "device", HEDDLE_CUBLASLT=None)
    parts = parts_of(rows_of(tmp_path))
    assert status == 1, said
    assert parts["first_numbers"]["status"] == "failed" and "--without-cublaslt" in parts["first_numbers"]["why"]
    assert parts["device"]["status"] == "passed"


def test_a_wrong_tunable_or_image_is_told_with_the_part(bundle, tmp_path):
    empty = tmp_path / "none"
    empty.mkdir()
    for changed, says in (
        ({"HEDDLE_TUNE_PIECE_MIB": "many"}, "HEDDLE_TUNE_PIECE_MIB=many: wanted is an integer from 2 to 4096"),
        ({"HEDDLE_CUDA_IMAGES": str(empty)}, f"{empty}/read_all.fatbin"),
    ):
        status, said = run(bundle, tmp_path / "out", "first_numbers", **changed)
        assert status == 1 and says in said


def test_the_plan_is_told_without_running_it(bundle, tmp_path):
    status, said = run(bundle, tmp_path, "--list")
    assert status == 0 and [line.split(":")[0] for line in said.splitlines()] == CALLS
    status, said = run(bundle, tmp_path, "--dry-run")
    assert status == 0 and "first_numbers" in said and "bin/cuda_ops is not here" in said
    assert not (tmp_path / "device.txt").exists()
    status, said = run(bundle, tmp_path, "nothing")
    assert status == 2 and "no call and no part 'nothing'" in said


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a GPU here")
def test_without_a_gpu_nothing_is_run(bundle, tmp_path):
    status, said = run(bundle, tmp_path, HEDDLE_CUDA_DRIVER="libcuda.so.1")
    assert status == 0 and "there is no NVIDIA GPU here" in said


def test_libraries_are_found_where_packages_put_them(bundle, tmp_path):
    """A folder as pip fills it; what does not load is passed over."""
    source = EMULATOR.parent / "libheddle_cublaslt_emulator.so"
    for place, text in (("broken/nvidia/cu13/lib", b"no library"), ("good/nvidia/cublas/lib", source.read_bytes())):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "libcublasLt.so.13").write_bytes(text)
    look = "import libraries; print(libraries.find_cublaslt({}))"
    told = subprocess.run(
        [sys.executable, "-c", look],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{bundle}:{tmp_path}/broken:{tmp_path}/good"},
    ).stdout
    assert f"'{tmp_path}/good/nvidia/cublas/lib/libcublasLt.so.13', 130000" in told


def test_calibrate_is_asked_about_a_gpu_with_the_model_that_is_named(bundle, tmp_path):
    (tmp_path / "heddle").write_text('#!/bin/sh\ncat "$2"; echo "$@"; exit 7\n')
    (tmp_path / "heddle").chmod(0o755)
    command = [sys.executable, bundle / "calibrate.py", "--model", heddle.MODELS / "adder", "--out", tmp_path / "out"]
    told = {**os.environ, "HEDDLE_BINARY": str(tmp_path / "heddle")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=told)
    assert done.returncode == 7, "its status is the part's"
    assert f"calibrate {tmp_path}/out/heddle.yaml --device gpu0 --model random --out {tmp_path}/out" in done.stdout
    checked = subprocess.run(
        [heddle.BINARY, "config", "check", tmp_path / "out/heddle.yaml"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(HEDDLE_CUDA_EMULATOR="memory=1GiB"),
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
