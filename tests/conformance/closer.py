"""A model that ends what it says as soon as it may, for checks that want an answer to be over."""

import json
import shutil
import struct

from subject import heddle

SOURCE = heddle.MODELS / "adder"
LIKED = {"<|end|>": 4.0, '"': 3.0, "]": 2.0, "}": 2.0}


def write(directory, thinks=False):
    """A model directory: the adder's tokenizer and template; weights that know nothing but the last token. After a special token the
    model says "o", after any other it likes those tokens best that end something, so that in a form it closes what is open.
    With `thinks` its template has an answer begin within a thought, where `enable_thinking` is true; the "o" then is one."""
    directory.mkdir()
    for path in SOURCE.iterdir():
        if path.suffix in {".json", ".jinja"}:
            shutil.copy(path, directory)
    tokens = json.loads((SOURCE / "tokenizer.json").read_text())
    if thinks:
        template = directory / "chat_template.jinja"
        turn = '{{- "<|assistant|>" -}}'
        assert turn in template.read_text()
        switch = '{{- "<|assistant|>" ~ ("<think>" if enable_thinking is true else "") -}}'
        template.write_text(template.read_text().replace(turn, switch))
    ids = tokens["model"]["vocab"]
    special = {one["id"] for one in tokens["added_tokens"]} | ({ids[">"]} if thinks else set())
    with (SOURCE / "model.safetensors").open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        head = file.read(size)
    tensors = json.loads(head)
    end = max(one["data_offsets"][1] for name, one in tensors.items() if name != "__metadata__")
    data = bytearray(end)  # Zeros: no layer adds anything to what the embedding says.

    def put(name, row, column, value):
        width = tensors[name]["shape"][-1]
        offset = tensors[name]["data_offsets"][0] + 2 * (row * width + column)
        data[offset : offset + 2] = struct.pack("<f", value)[2:]  # bfloat16

    for column in range(tensors["model.norm.weight"]["shape"][0]):
        put("model.norm.weight", 0, column, 1.0)
    for token in ids.values():  # The first number says that there is a token, the second that it is special.
        put("model.embed_tokens.weight", token, 0, 1.0)
        put("model.embed_tokens.weight", token, 1, float(token in special))
    for text, liking in LIKED.items():
        put("lm_head.weight", ids[text], 0, liking)
    put("lm_head.weight", ids["<|end|>"], 1, -100.0)
    put("lm_head.weight", ids["o"], 1, 10.0)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", size) + head + data)
