"""What tests of `heddle pull` and of servers that fetch share: models, an environment, where things are."""

import os
import sys

import server as heddle

sys.path.insert(0, str(heddle.ROOT / "tests/fetch"))

import hub as fake  # noqa: E402

ADDER = fake.files_of(heddle.MODELS / "adder")
WANTED = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
          "model.safetensors"}
WANTED &= set(ADDER)
EXTRAS = {"pytorch_model.bin": b"b" * 9000, "adder.gguf": b"g" * 5000, "onnx/model.onnx": b"o"}
KEYS = {"AKIDEXAMPLE": "s3cret/key+x"}  # Of a bucket that checks signatures.


def environment(home, **variables):
    """Nothing of this machine's own: no credentials, proxies or caches."""
    kept = {key: os.environ[key] for key in ("PATH", "TMPDIR", "LANG") if key in os.environ}
    return {**kept, "HOME": str(home), **{key: str(value) for key, value in variables.items()}}
