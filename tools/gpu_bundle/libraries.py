"""Finds cuBLASLt where pip, conda, a toolkit or the system put it."""

import glob
import os
import pathlib
import site
import subprocess
import sys

NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")
# Loads it in a process of its own, as it stays loaded, and says its version.
LOOK = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).cublasLtGetVersion())"


def folders():
    """Where it may be, the likeliest first."""
    sites = [*sys.path, *site.getsitepackages(), site.getusersitepackages()]
    for pattern in (
        "/opt/*/lib/python3*/site-packages",
        "/usr/local/lib/python3*/*-packages",
        "/root/*/lib/python3*/site-packages",
    ):
        sites += sorted(glob.glob(pattern))
    if prefix := os.environ.get("CONDA_PREFIX"):
        sites += sorted(glob.glob(f"{prefix}/lib/python3*/site-packages"))
        yield f"{prefix}/lib"
    for place in dict.fromkeys(sites):
        for under in ("nvidia/cu13/lib", "nvidia/cublas/lib", "nvidia/cu12/lib", "torch/lib"):
            yield f"{place}/{under}"
    for pattern in (
        "/usr/local/cuda*/lib64",
        "/usr/local/cuda*/targets/*/lib",
        "/opt/conda/lib",
        "/usr/lib/*-linux-gnu",
        "/usr/lib64",
    ):
        yield from sorted(glob.glob(pattern), reverse=True)


def version_of(library):
    """As the library tells (130000 is 13.0.0), or None where it does not load."""
    try:
        told = subprocess.run([sys.executable, "-c", LOOK, library], capture_output=True, text=True, timeout=30)
        return int(told.stdout) if told.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def find_cublaslt(environment):
    """(path, version) of what programs are to use, or (None, why there is none)."""
    named = environment.get("HEDDLE_CUBLASLT")
    if named == "none":
        return None, "HEDDLE_CUBLASLT is none"
    if named:
        version = version_of(named)
        return (
            (named, version) if version is not None else (None, f"HEDDLE_CUBLASLT names {named}, which does not load")
        )
    if environment.get("HEDDLE_CUDA_DRIVER", "libcuda.so.1") != "libcuda.so.1":
        return None, "beside another driver than the machine's, HEDDLE_CUBLASLT is to name it"
    broken = []
    for name in NAMES:  # 13 before 12, and of each the loader's own first.
        for place in ("", *folders()):
            path = f"{place}/{name}" if place else name
            if place and not pathlib.Path(path).exists():
                continue
            version = version_of(path)
            if version is not None:
                return path, version
            if place:
                broken.append(path)
    told = f"; these do not load: {', '.join(broken)}" if broken else ""
    return None, f"no {' or '.join(NAMES)} is in the loader's path, in Python's packages or in /usr/local/cuda{told}"


def find_sanitizer(here, environment):
    """compute-sanitizer that starts here, the machine's own before the bundle's; or (None, why)."""
    if environment.get("HEDDLE_CUDA_DRIVER", "libcuda.so.1") != "libcuda.so.1":
        return None, "compute-sanitizer watches kernels of the machine's own driver alone"
    path = environment.get("PATH", "").split(":")
    places = [f"{each}/compute-sanitizer" for each in [*path, "/usr/local/cuda/bin"]]
    probe = ["--tool", "memcheck", str(here / "bin/device_gpu_test"), "--gtest_filter=DeviceGpuTest.IsDescribed"]
    said = "it is not here"
    for found in [*places, str(here / "sanitizer/bin/compute-sanitizer")]:
        if not os.access(found, os.X_OK):
            continue
        try:
            tried = subprocess.run([found, *probe], capture_output=True, text=True, timeout=60, env=environment)
        except (OSError, subprocess.TimeoutExpired) as failed:
            said = f"{found}: {failed}"
            continue
        if tried.returncode == 0:
            return found, ""
        said = f"{found} does not start here: {(tried.stdout + tried.stderr).strip()[-300:]}"
    return None, f"no compute-sanitizer: {said}"
