"""LoRA adapters as PEFT writes them, made at random, and models that have one in their weights."""

import array
import json
import math
import pathlib
import random
import shutil
import struct
import sys

MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def read(path):
    """{name: (shape, numbers)} of a safetensors file of bfloat16 or float32."""
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = raw[8 + length + begin : 8 + length + end]
        if entry["dtype"] == "BF16":
            data = b"".join(b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2))
        tensors[name] = (entry["shape"], array.array("f", data))
    return tensors


def write(path, tensors):
    assert sys.byteorder == "little"
    header, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        begin, data = len(data), data + numbers.tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def stem_of(name):
    """What an adapter calls a matrix of the model; None where it leaves it alone."""
    known = name.endswith(".weight") and name.split(".")[-2] in MODULES
    return "base_model.model." + name.removesuffix(".weight") if known else None


def make(model, directory, seed, rank=4, strength=1.2, modules=MODULES):
    """An adapter of the model, strong enough to be seen in what it says; gives its tensors."""
    chance = random.Random(seed)
    tensors = {}
    for name, (shape, _) in sorted(read(pathlib.Path(model) / "model.safetensors").items()):
        stem = stem_of(name)
        if stem is None or name.split(".")[-2] not in modules:
            continue
        for half, (rows, columns) in (("A", (rank, shape[1])), ("B", (shape[0], rank))):
            spread = strength / math.sqrt(columns)
            numbers = array.array("f", (chance.uniform(-spread, spread) for _ in range(rows * columns)))
            tensors[f"{stem}.lora_{half}.weight"] = ([rows, columns], numbers)
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    write(directory / "adapter_model.safetensors", tensors)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none", "target_modules": "all-linear"}
    (directory / "adapter_config.json").write_text(json.dumps(config))
    return tensors


def merge(model, adapter, directory, scale=2.0):
    """The model with the adapter in its weights, in float32."""
    model, directory = pathlib.Path(model), pathlib.Path(directory)
    shutil.copytree(model, directory)
    tensors = read(model / "model.safetensors")
    for name, (shape, numbers) in tensors.items():
        stem = stem_of(name)
        if stem is None or f"{stem}.lora_A.weight" not in adapter:
            continue
        (rank, columns), a = adapter[f"{stem}.lora_A.weight"]
        b = adapter[f"{stem}.lora_B.weight"][1]
        for row in range(shape[0]):
            factors = [scale * b[row * rank + k] for k in range(rank)]
            for column in range(columns):
                delta = sum(factor * a[k * columns + column] for k, factor in enumerate(factors))
                numbers[row * columns + column] += delta
    write(directory / "model.safetensors", tensors)
