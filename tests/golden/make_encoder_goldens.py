#!/usr/bin/env python3
"""Makes tiny random encoders of every supported architecture and option, with what they give.

Each case is a folder in Hugging Face layout (`config.json`, safetensors) with random weights and a
`golden.safetensors` computed by `transformers` from those very files:

    input_ids     i32 [n]          one text, or a pair
    second_text   i32 [1]          where the second text's tokens begin; 0: it is one text
    hidden_f32    f32 [n, hidden]  hidden states; weights upcast to float32, eager attention
    score_f32     f32 [1]          the logit, of models that score

A case names what removing its option would be (`without`); the script refuses to write a golden that
does not notice. Run it from anywhere:

    pip install torch transformers safetensors numpy
    python tests/golden/make_encoder_goldens.py [case ...]
"""

import copy
import json
import pathlib
import shutil
import sys

import golden_table
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent / "encoders"
TOKENS, SECOND = 26, 11
NOTICEABLE = 1e-2


def bert(architecture="BertModel", **changes):
    config = {
        "architectures": [architecture],
        "model_type": "bert",
        "vocab_size": 61,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "hidden_act": "gelu",
        "max_position_embeddings": 32,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "torch_dtype": "float32",
    }
    config.update(changes)
    return config


def roberta(architecture="RobertaModel", **changes):
    common = {"model_type": "roberta", "pad_token_id": 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    return bert(architecture, **{**common, **changes})


ONE_LABEL = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
# The config, and what its option would be without.
CASES = {
    "bert": (bert(), {"layer_norm_eps": 0.5}),
    "bert-bf16": (bert(torch_dtype="bfloat16", layer_norm_eps=1e-3), {"layer_norm_eps": 0.5}),
    "roberta": (roberta(), {"pad_token_id": 0}),
    "xlm-roberta-padding": (
        roberta("XLMRobertaModel", model_type="xlm-roberta", pad_token_id=4, type_vocab_size=2),
        {"pad_token_id": 1},
    ),
    "bert-score": (bert("BertForSequenceClassification", **ONE_LABEL), {"layer_norm_eps": 0.5}),
    "roberta-score": (roberta("RobertaForSequenceClassification", **ONE_LABEL), {"pad_token_id": 0}),
}


def randomise(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Draws weights under which every part of the model visibly moves what it gives."""
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        if "LayerNorm.weight" in name:
            weight.data = 1 + 0.3 * noise
        elif name.endswith("bias"):
            weight.data = 0.3 * noise
        elif "embeddings" in name:
            weight.data = noise
        else:
            weight.data = noise / weight.shape[-1] ** 0.5


def load(folder: pathlib.Path, config=None) -> torch.nn.Module:
    named = json.loads((folder / "config.json").read_text())["architectures"][0]
    return (
        getattr(transformers, named)
        .from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", config=config)
        .eval()
    )


def answer(model: torch.nn.Module, ids: torch.Tensor, second: int) -> dict:
    types = torch.zeros_like(ids)
    if second > 0:
        types[second:] = 1
    out = model(ids[None], token_type_ids=types[None], output_hidden_states=True)
    found = {"hidden_f32": out.hidden_states[-1][0]}
    if "logits" in out:
        found["score_f32"] = out.logits[0]
    return found


@torch.no_grad()
def make(name: str) -> str:
    """Writes one case; returns its line for the table in README.md."""
    config, without = copy.deepcopy(CASES[name])
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(sum(name.encode()))
    kind = type(transformers.AutoConfig.for_model(config["model_type"]))
    model = getattr(transformers, config["architectures"][0])(kind.from_dict(copy.deepcopy(config)))
    randomise(model, generator)
    model.to(getattr(torch, config["torch_dtype"])).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    # No padding, whose positions differ.
    ids = torch.randint(5, config["vocab_size"], (TOKENS,), generator=generator)
    second = SECOND if config["type_vocab_size"] > 1 else 0
    found = answer(load(folder), ids, second)
    expected = found["hidden_f32"]
    changed = kind.from_dict(copy.deepcopy({**config, **without}))
    moved = (answer(load(folder, changed), ids, second)["hidden_f32"] - expected).abs().max()
    if moved / expected.abs().max() < NOTICEABLE:
        sys.exit(f"{name}: {without} moves hidden states by {moved:.1e} only")
    golden = {"input_ids": ids.int(), "second_text": torch.tensor([second], dtype=torch.int32), **found}
    save_file({key: value.contiguous() for key, value in golden.items()}, folder / "golden.safetensors")
    size = sum(file.stat().st_size for file in folder.iterdir())
    what = ", ".join(f"`{key}={json.dumps(value)}`" for key, value in without.items())
    return f"| `encoders/{name}` | {config['torch_dtype']} | {TOKENS} | {what} | {size / 1e3:.0f} |"


if __name__ == "__main__":
    golden_table.make_all(make, sys.argv[1:] or CASES)
