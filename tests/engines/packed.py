#!/usr/bin/env python3
"""Writes a checkpoint of tests with the matrices of its layers rounded and packed as programs of others pack them:
packed.py FOLDER TARGET awq|gptq|gptq8|compressed|fp8|fp8row|fp8matrix.

Standard library only. Each number is rounded to the nearest that its scale allows, and nothing is done to make up for
it: what is tested is that heddle reads what is stored, not how well somebody rounds."""

import array
import bisect
import json
import pathlib
import shutil
import struct
import sys

import gguf

GROUP = 32
BLOCK = [32, 128]  # Outputs and inputs of a scale of FP8.
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # The outputs of eight places of a word.

CONFIGS = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False, "desc_act": True},
    "gptq8": {"quant_method": "gptq", "bits": 8, "group_size": GROUP, "sym": True, "desc_act": False},
    "compressed": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": True},
            }
        },
    },
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": BLOCK},
}
# FP8 whose inputs were to be FP8 as well, with a scale for each row and for all of a matrix.
BOTH = {
    "fp8row": {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
                "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
            }
        },
    },
    "fp8matrix": {"quant_method": "fp8", "activation_scheme": "static"},
}


def half(value):
    """Rounded to float16."""
    return struct.unpack("<e", struct.pack("<e", value))[0]


def e4m3_table():
    """{value: code} of the numbers of FP8 that are not below 0."""
    table = {}
    for code in range(127):
        exponent, mantissa = code >> 3, code & 7
        table[mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)] = code
    return table


E4M3 = e4m3_table()
E4M3_VALUES = sorted(E4M3)


def e4m3(value):
    at = bisect.bisect_left(E4M3_VALUES, abs(value))
    nearest = min(E4M3_VALUES[max(0, at - 1) : at + 1], key=lambda known: abs(known - abs(value)))
    return E4M3[nearest] | (0x80 if value < 0 else 0)


def words(rows):
    """Rows of lists of codes of `bits` each, as int32."""
    return b"".join(struct.pack("<I", word) for row in rows for word in row)


def joined(codes, bits, order=None):
    """Codes that follow each other, as words: the first in the lowest bits, or in `order`."""
    each = 32 // bits
    order = order or range(each)
    return [
        sum(codes[begin + which] << (bits * place) for place, which in enumerate(order))
        for begin in range(0, len(codes), each)
    ]


def turned(rows):
    return [list(column) for column in zip(*rows, strict=True)]


def rounded(values, bits, symmetric):
    """Codes, scale and zero of numbers that share a scale."""
    most = (1 << bits) - 1
    middle = 1 << (bits - 1)
    if symmetric:
        scale = half(max(max(abs(value) for value in values) / (middle - 1), 1e-6))
        zero = middle
    else:
        least, greatest = min(0.0, *values), max(0.0, *values)
        scale = half(max((greatest - least) / most, 1e-6))
        zero = min(most, max(1, round(-least / scale)))
    return [min(most, max(0, round(value / scale) + zero)) for value in values], scale, zero


def packed_matrix(rows, kind):
    """{ending: (dtype, shape, bytes)} of a matrix."""
    outputs, inputs = len(rows), len(rows[0])
    if kind == "fp8":
        return fp8_matrix(rows, BLOCK)
    if kind in BOTH:
        codes, scales = fp8_matrix(rows, [1 if kind == "fp8row" else outputs, inputs]).values()
        shape = [outputs, 1] if kind == "fp8row" else []
        parts = {"weight": codes, "weight_scale": ("F32", shape, scales[2])}
        return parts if kind == "fp8row" else {**parts, "input_scale": ("F32", [], struct.pack("<f", 0.125))}
    bits = 8 if kind == "gptq8" else 4
    each = 32 // bits
    groups = inputs // GROUP
    # Inputs in an order of their own, so that neighbours are of several groups.
    group_of = [(i * 7 % inputs) // GROUP if kind == "gptq" else i // GROUP for i in range(inputs)]
    members = [[i for i in range(inputs) if group_of[i] == group] for group in range(groups)]
    codes = [[0] * inputs for _ in rows]
    scales, zeros = [], []
    for output, row in enumerate(rows):
        scales.append([])
        zeros.append([])
        for group in members:
            made, scale, zero = rounded([row[i] for i in group], bits, symmetric=kind in ("gptq8", "compressed"))
            for i, code in zip(group, made, strict=True):
                codes[output][i] = code
            scales[-1].append(scale)
            zeros[-1].append(zero)
    halves = lambda table: b"".join(struct.pack("<e", value) for row in table for value in row)  # noqa: E731
    if kind == "compressed":
        return {
            "weight_packed": ("I32", [outputs, inputs // each], words([joined(row, bits) for row in codes])),
            "weight_scale": ("F16", [outputs, groups], halves(scales)),
            "weight_shape": ("I64", [2], struct.pack("<2q", outputs, inputs)),
        }
    order = AWQ_ORDER if kind == "awq" else None
    if kind == "awq":
        numbers = [joined(column, bits, order) for column in turned(codes)]
    else:
        numbers = turned([joined(row, bits) for row in codes])
    less = 0 if kind == "awq" else 1  # GPTQ's first format stores zeros less one.
    stored_zeros = [joined([zero - less for zero in column], bits, order) for column in turned(zeros)]
    parts = {
        "qweight": ("I32", [len(numbers), len(numbers[0])], words(numbers)),
        "qzeros": ("I32", [groups, outputs // each], words(stored_zeros)),
        "scales": ("F16", [groups, outputs], halves(turned(scales))),
    }
    if kind != "awq":
        parts["g_idx"] = ("I32", [inputs], struct.pack(f"<{inputs}i", *group_of))
        parts["bias"] = ("F16", [outputs], bytes(2 * outputs))
    return parts


def fp8_matrix(rows, block):
    """`block`: outputs and inputs of a scale."""
    outputs, inputs = len(rows), len(rows[0])
    codes = bytearray(outputs * inputs)
    scales = []
    for first in range(0, outputs, block[0]):
        for column in range(0, inputs, block[1]):
            own = [(r, c) for r in range(first, min(first + block[0], outputs))
                   for c in range(column, min(column + block[1], inputs))]
            scale = max(max(abs(rows[r][c]) for r, c in own) / 448, 1e-9)
            scales.append(scale)
            for r, c in own:
                codes[r * inputs + c] = e4m3(rows[r][c] / scale)
    shape = [-(-outputs // block[0]), -(-inputs // block[1])]
    return {
        "weight": ("F8_E4M3", [outputs, inputs], bytes(codes)),
        "weight_scale_inv": ("F32", shape, struct.pack(f"<{len(scales)}f", *scales)),
    }


def write(folder, target, kind):
    target.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.suffix in (".json", ".jinja") and "index" not in path.name:
            shutil.copy(path, target / path.name)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {**CONFIGS, **BOTH}[kind]
    (target / "config.json").write_text(json.dumps(config))
    parts = {}
    for name, (shape, values) in gguf.read_tensors(folder).items():
        if len(shape) == 2 and name.startswith("model.layers."):
            floats = array.array("f", values.tobytes())
            rows = [floats[row * shape[1] : (row + 1) * shape[1]] for row in range(shape[0])]
            for ending, part in packed_matrix(rows, kind).items():
                parts[name.removesuffix("weight") + ending] = part
        else:
            parts[name] = ("F32", shape, values.tobytes())
    header, at = {}, 0
    for name, (dtype, shape, data) in parts.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    raw = json.dumps(header).encode()
    with (target / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        for _, _, data in parts.values():
            file.write(data)


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
