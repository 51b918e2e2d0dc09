"""What both suites talk to."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import server as heddle  # noqa: E402

KEY = "sesame"
MODEL = heddle.demo_models()[0]
PROMPT, ANSWER = heddle.eval_set(MODEL, 1)[0]


def configuration(model_extra="", keys=f"[{KEY}]", **options):
    """Of a server with the one model, behind the keys."""
    row = f"  {MODEL}: {{path: {heddle.MODELS / MODEL}, tool_parser: hermes{model_extra}}}\n"
    return heddle.config(models=[row], extra=f"apiKeys: {keys}\ndataDir: data\n", **options)
