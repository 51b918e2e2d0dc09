"""`vllm bench serve`, of vLLM's sources as they are. What stands in for the rest of vLLM are modules for images, sound,
adapters and ranks, and those that read a checkpoint's configuration: they need torch, and a benchmark of text calls none."""

import importlib.machinery
import pathlib
import sys
import types
from unittest import mock

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "build/clients/vllm/vllm"
STAND_INS = [
    "torch",
    "vllm.distributed",
    "vllm.distributed.parallel_state",
    "vllm.inputs",
    "vllm.lora",
    "vllm.lora.request",
    "vllm.lora.utils",
    "vllm.multimodal",
    "vllm.multimodal.audio",
    "vllm.multimodal.image",
    "vllm.multimodal.utils",
    "vllm.transformers_utils.config",
]


def prepare():
    package = types.ModuleType("vllm")
    package.__path__ = [str(SOURCES)]
    sys.modules["vllm"] = package
    for name in STAND_INS:
        sys.modules[name] = mock.MagicMock(name=name, __path__=[], __spec__=importlib.machinery.ModuleSpec(name, None))


def main():
    prepare()
    from vllm.benchmarks import serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    serve.main(parser.parse_args())


if __name__ == "__main__":
    main()
