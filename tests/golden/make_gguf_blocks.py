#!/usr/bin/env python3
"""Writes gguf/blocks.gguf: random blocks of each type that heddle decodes, and what `gguf` makes of them.

    pip install gguf==0.19.0 && tests/golden/make_gguf_blocks.py

For each type T there are two tensors: "T" in that type, and "T.f32" with its numbers, dequantised by the package.
Scales are random float16 numbers of either sign, one of them subnormal and one zero; all other bits are random."""

import pathlib

import gguf
import numpy

TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "MXFP4"]
# Where the float16 numbers of a block stand.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}
ROWS, COLUMNS = 3, 256


def stored(kind, random):
    """ROWS rows of COLUMNS numbers, as bytes of the type."""
    if kind in ("F16", "BF16"):
        numbers = random.normal(size=(ROWS, COLUMNS)).astype(numpy.float32)
        return gguf.quantize(numbers, gguf.GGMLQuantizationType[kind])
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = random.integers(0, 256, size=(ROWS * COLUMNS // elements, size), dtype=numpy.uint8)
    if kind == "MXFP4":
        blocks[:3, 0] = 0, 1, 255  # Exponents; the first two make numbers that are subnormal.
    for at in HALVES.get(kind, []):
        scales = random.normal(scale=0.05, size=len(blocks)).astype(numpy.float16)
        scales[0], scales[1] = numpy.float16(6e-8), numpy.float16(0)
        blocks[:, at : at + 2] = scales.view(numpy.uint8).reshape(-1, 2)
    return blocks.reshape(ROWS, -1)


def main():
    path = pathlib.Path(__file__).parent / "gguf" / "blocks.gguf"
    path.parent.mkdir(exist_ok=True)
    random = numpy.random.default_rng(20261127)
    writer = gguf.GGUFWriter(path, "llama")
    for kind in TYPES:
        number = gguf.GGMLQuantizationType[kind]
        data = stored(kind, random)
        writer.add_tensor(kind, data, raw_dtype=number)
        writer.add_tensor(f"{kind}.f32", gguf.dequantize(data, number).astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{path}: {path.stat().st_size} bytes")


main()
