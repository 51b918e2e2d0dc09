"""`heddle calibrate` on the first GPU: calibrate.py --out DIR [--model FOLDER].

Without a model it makes one of Llama 3 8B's shape with random weights, in memory (/dev/shm) where there is room for
them twice, else beside DIR; they are gone in the end.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BYTES = 16 << 30  # Of the model that is made here.


def place(out):
    """A folder with room for the weights."""
    memory = pathlib.Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > 2 * BYTES:
        return memory
    if shutil.disk_usage(out).free < BYTES:
        sys.exit(f"{out} has {shutil.disk_usage(out).free >> 30} GiB free, and {BYTES >> 30} are needed")
    return out


def calibrate(model, host, device, out):
    """The status of `heddle calibrate`, with so much memory of the host, and `device` said of the GPU."""
    config = out / "heddle.yaml"
    config.write_text(
        f"listen: 127.0.0.1:0\nhost: {{memory: {host}}}\ndevices: [{{kind: cuda{device}}}]\n"
        f"models:\n  random: {{path: {model}}}\n"
    )
    binary = os.environ.get("HEDDLE_BINARY", str(HERE / "bin/heddle"))
    command = [binary, "calibrate", str(config), "--device", "gpu0", "--model", "random", "--out", str(out)]
    return subprocess.run(command, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, help="a small one, of which two fit in 256 MiB")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.model:
        return calibrate(options.model.resolve(), "256MiB", ", memory: 256MiB", options.out)
    with tempfile.TemporaryDirectory(prefix="heddle-calibrate-", dir=place(options.out)) as made:
        model = pathlib.Path(made, "model")
        maker = [sys.executable, str(HERE / "tools/random_model.py"), str(model), "--size", "8b"]
        subprocess.run(maker, check=True)
        return calibrate(model, "17GiB", "", options.out)


if __name__ == "__main__":
    sys.exit(main())
