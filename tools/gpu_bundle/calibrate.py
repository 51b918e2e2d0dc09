"""calibrate.py --size SIZE --out DIR: `heddle calibrate` on the first GPU, with a model of random weights that is made here.

The weights are in memory (/dev/shm) where there is room for them twice, else beside OUT, and are gone in the end.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BYTES = {"8b": 16 << 30, "1b": 3 << 30, "10m": 64 << 20}
SMALL = {"10m"}  # Of which a GPU needs little memory: for the emulated driver.


def place(size, out):
    """A folder with room for the weights."""
    memory = pathlib.Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > 2 * BYTES[size]:
        return memory
    if shutil.disk_usage(out).free < BYTES[size]:
        sys.exit(f"{out} has {shutil.disk_usage(out).free >> 30} GiB free, and {BYTES[size] >> 30} are needed")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=BYTES, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    binary = os.environ.get("HEDDLE_BINARY", str(HERE / "bin/heddle"))
    with tempfile.TemporaryDirectory(prefix="heddle-calibrate-", dir=place(options.size, options.out)) as made:
        model = pathlib.Path(made, "model")
        subprocess.run([sys.executable, str(HERE / "tools/random_model.py"), str(model), "--size", options.size], check=True)
        memory = ", memory: 192MiB" if options.size in SMALL else ""
        text = f"listen: 127.0.0.1:0\nhost: {{memory: {(BYTES[options.size] >> 20) + 512}MiB}}\n"
        text += f"devices: [{{kind: cuda{memory}}}]\nmodels:\n  random: {{path: {model}}}\n"
        config = pathlib.Path(made, "heddle.yaml")
        config.write_text(text)
        command = [binary, "calibrate", str(config), "--device", "gpu0", "--model", "random", "--out", str(options.out)]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
