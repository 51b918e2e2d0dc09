#!/usr/bin/env python3
"""Writes minilm/golden.json: what all-MiniLM-L6-v2 makes of three texts, computed in float64.

    pip install torch transformers numpy
    python tests/golden/make_minilm.py DIRECTORY
"""

import json
import pathlib
import sys

import torch
import transformers

TEXTS = [
    "The weaver throws the shuttle through the shed.",
    "Un tisserand lance la navette à travers la foule de fils.",
    "Stocks fell on Tuesday as investors weighed new figures on inflation, unemployment and trade.",
]


def main(directory: str) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModel.from_pretrained(directory, dtype=torch.float64).eval()
    rows = []
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            hidden = model(torch.tensor([ids])).last_hidden_state[0]
        mean = hidden.mean(0)
        vector = (mean / mean.norm()).tolist()
        rows.append({"text": text, "tokens": ids, "embedding": [round(x, 9) for x in vector]})
    path = pathlib.Path(__file__).parent / "minilm" / "golden.json"
    path.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
