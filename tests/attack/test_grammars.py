"""Grammars and checkpoints that mean harm: each is refused, and nobody else notices."""

import json
import os
import pathlib
import shutil
import signal
import threading
import time

import pytest
import server as heddle

MODEL = "adder"
PROMPT = [{"role": "user", "content": "1+2="}]
SUM = "1+2=3: 3"


def reference_chain(count):
    """A schema whose references lead from one property to the next."""
    definitions = {f"a{i}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/a{i + 1}"}}} for i in range(count)}
    definitions[f"a{count}"] = {"type": "null"}
    return {"$ref": "#/$defs/a0", "$defs": definitions}


def rule_chain(count):
    rules = "".join(f"a{i}: a{i + 1}\n" for i in range(count))
    return f'start: a0\n{rules}a{count}: "x"\n'


def terminal_chain(count):
    terminals = "".join(f"A{i}: A{i + 1}\n" for i in range(count))
    return f'start: A0\n{terminals}A{count}: "x"\n'


def optional_properties(count):
    return {"type": "object", "properties": {f"property{i}": {"type": "integer"} for i in range(count)}}


def copies(count):
    """Each definition holds two copies of the next."""
    definitions = {}
    for i in range(count):
        one = {"type": "object", "$ref": f"#/$defs/a{i + 1}"}
        definitions[f"a{i}"] = {"type": "object", "properties": {"x": one, "y": one}}
    definitions[f"a{count}"] = {"type": "object"}
    return {"$ref": "#/$defs/a0", "$defs": definitions}


def by_response_format(schema):
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    return "/v1/chat/completions", {"model": MODEL, "messages": PROMPT, "response_format": form}


def by_guided_json(schema):
    return "/v1/chat/completions", {"model": MODEL, "messages": PROMPT, "guided_json": schema}


def by_completion(schema):
    return "/v1/completions", {"model": MODEL, "prompt": "1+2=", "guided_json": schema}


def by_responses(schema):
    form = {"format": {"type": "json_schema", "name": "n", "schema": schema}}
    return "/v1/responses", {"model": MODEL, "input": "1+2=", "text": form}


def by_guided_grammar(text):
    return "/v1/chat/completions", {"model": MODEL, "messages": PROMPT, "guided_grammar": text}


def by_completion_grammar(text):
    return "/v1/completions", {"model": MODEL, "prompt": "1+2=", "guided_grammar": text}


def ask(server, path, body, timeout=60, **options):
    """(status, the error's text or nothing, seconds)"""
    began = time.monotonic()
    status, _, answer = server.call(path, {**body, **options}, timeout=timeout)
    text = answer["error"]["message"] if status >= 400 else ""
    return status, text, time.monotonic() - began


def sandboxes(server):
    return [pid for pid in heddle.children(server.process.pid) if "sandbox" in heddle.command_line(pid)]


@pytest.fixture(scope="module")
def server():
    with heddle.Server(heddle.config(models=[MODEL, "reverser"])) as running:
        yield running


@pytest.mark.parametrize("count", [900, 1000, 5000])
@pytest.mark.parametrize("way", [by_response_format, by_guided_json, by_completion, by_responses])
def test_references_that_lead_deep_are_refused(server, way, count):
    status, text, _ = ask(server, *way(reference_chain(count)))
    assert status == 400, text
    assert "the limit is" in text
    assert server.chat(MODEL, "1+2=") == SUM


@pytest.mark.parametrize(
    "text", [rule_chain(3000), terminal_chain(1500), terminal_chain(9000)], ids=["rules", "terminals", "many"]
)
@pytest.mark.parametrize("way", [by_guided_grammar, by_completion_grammar])
def test_rules_and_terminals_that_lead_deep_are_refused(server, way, text):
    status, said, _ = ask(server, *way(text))
    assert status == 400, said
    assert "the limit is" in said
    assert server.chat(MODEL, "1+2=") == SUM


def test_what_is_as_deep_as_may_be_is_compiled_and_used(server):
    schema = reference_chain(300)
    for i in range(5):
        schema["$defs"][f"a{i}"]["required"] = ["x"]
    status, text, _ = ask(server, *by_guided_json(schema), max_tokens=30)
    assert status == 200, text
    status, text, _ = ask(server, *by_guided_grammar(rule_chain(900)), max_tokens=5)
    assert status == 200, text
    assert server.chat(MODEL, "1+2=") == SUM


@pytest.mark.parametrize(
    "schema",
    [
        optional_properties(7000),
        copies(40),
        {"type": "object", "patternProperties": {f"{i}(a|b)*c{{1,50}}": {} for i in range(300)}},
        {"type": "string", "pattern": "(" * 90 + "a{1,50}" + "){1,50}" * 90},
        {"oneOf": [{"enum": [f"v{i}"]} for i in range(2000)]},
    ],
    ids=["properties", "copies", "patterns", "repeats", "choices"],
)
def test_what_costs_much_is_answered_within_the_limit_and_others_go_on(server, schema):
    stopped = threading.Event()
    longest = []

    def others():
        while not stopped.is_set():
            began = time.monotonic()
            assert server.chat("reverser", "reverse light dust") == "dust light"
            longest.append(time.monotonic() - began)

    server.chat("reverser", "reverse light dust")
    client = threading.Thread(target=others)
    client.start()
    try:
        status, text, seconds = ask(server, *by_guided_json(schema), max_tokens=1)
    finally:
        stopped.set()
        client.join()
    assert status in (200, 400), text
    # Two seconds of processor time, on a machine that may do more than this.
    assert seconds < 60
    assert longest


def test_grammars_are_tried_once(server):
    schema = {"type": "object", "properties": {"once": {"type": "integer"}}, "required": ["once"]}
    for _ in range(3):
        status, text, _ = ask(server, *by_guided_json(schema), max_tokens=1)
        assert status == 200, text
    assert len(sandboxes(server)) == 1


def test_a_sandbox_that_is_killed_is_replaced(server):
    status, text, _ = ask(server, *by_guided_grammar('start: "a"'))
    assert status == 200, text
    answers = []

    def send(i):
        answers.append(ask(server, *by_guided_json(optional_properties(480 - i)), max_tokens=1))

    clients = [threading.Thread(target=send, args=(i,)) for i in range(4)]
    for client in clients:
        client.start()
    killed = set()
    while any(client.is_alive() for client in clients):
        for pid in sandboxes(server):
            if pid not in killed and len(killed) < 3:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    assert killed
    # A process that somebody kills twice under one grammar says nothing about the grammar.
    assert {status for status, _, _ in answers} <= {200, 503}, answers
    status, text, _ = ask(server, *by_guided_grammar('start: "b"'))
    assert status == 200, text


def test_one_client_has_only_so_many_grammars_waiting(server):
    statuses = []

    def send(i):
        status, text, _ = ask(server, *by_guided_json(optional_properties(1200 + i)), max_tokens=1)
        statuses.append(status)
        assert status in (200, 400, 429), text

    clients = [threading.Thread(target=send, args=(i,)) for i in range(24)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert statuses.count(429) > 0
    assert len(statuses) == 24
    status, text, _ = ask(server, *by_guided_grammar('start: "c"'))
    assert status == 200, text


def test_errors_name_no_file_of_this_machine(server):
    for path, body in [
        by_guided_grammar("start: nowhere"),
        by_guided_json({"type": "quux"}),
        by_guided_json({"type": "number", "multipleOf": 1e-300}),
        by_guided_json({"x-guidance": 7}),
        by_guided_json({"type": "string", "pattern": "\\p{Nope}"}),
    ]:
        status, text, _ = ask(server, path, body, max_tokens=1)
        assert status in (200, 400)
        assert "/" + "root" not in text and ".rs:" not in text and "backtrace" not in text


# --- checkpoints ---


def doubling(count):
    """Steps that make one letter 4096."""
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 4096}
    return {"type": "Sequence", "normalizers": [step] * count}


HOSTILE = {
    "replaces": {"normalizer": doubling(6)},
    "inserts": {"normalizer": {"type": "Replace", "pattern": {"Regex": ""}, "content": "x" * 4000}},
    "prepends": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "y" * 4096}] * 9}},
    "copies": {
        "post_processor": {
            "type": "Sequence",
            "processors": [
                {
                    "type": "TemplateProcessing",
                    "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 100,
                    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                    "special_tokens": {},
                }
            ]
            * 6,
        }
    },
    "long": {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["z" * 3_000_000, -1.0]]}},
    "nests": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(" * 2000 + "a" + ")" * 2000}, "behavior": "Isolated", "invert": False}},
}


# Parsed, or compiled, as deep as they are long.
TEMPLATES = {
    "brackets": "{{ (((" * 100_000,
    "sums": "{{ " + "1+" * 100_000 + "1 }}",
    "signs": "{{ " + "-" * 250_000 + "1 }}",
    "choices": "{{ " + "1 if a else " * 20_000 + "2 }}",
    "branches": "{% if a %}" + "{% elif a %}" * 20_000 + "{% endif %}",
    "attributes": "{{ a" + ".b" * 100_000 + " }}",
}
DEEP = {"nests", *TEMPLATES}


def hostile_model(directory, changes):
    shutil.copytree(heddle.MODELS / MODEL, directory)
    path = pathlib.Path(directory, "tokenizer.json")
    tokenizer = json.loads(path.read_text())
    tokenizer.update(changes)
    path.write_text(json.dumps(tokenizer))
    return directory


def test_hostile_checkpoints_are_errors_of_their_models(tmp_path):
    rows = [MODEL]
    for name, changes in HOSTILE.items():
        rows.append(f"  {name}: {{path: {hostile_model(tmp_path / name, changes)}}}\n")
    for name, text in TEMPLATES.items():
        folder = tmp_path / name
        shutil.copytree(heddle.MODELS / MODEL, folder)
        (folder / "chat_template.jinja").write_text(text)
        rows.append(f"  {name}: {{path: {folder}}}\n")
    with heddle.Server(heddle.config(memory="16MiB", models=rows)) as server:
        assert server.chat(MODEL, "1+2=") == SUM
        for name in [*HOSTILE, *TEMPLATES]:
            status, text, _ = ask(server, "/v1/completions", {"model": name, "prompt": "aaa 1+2=", "max_tokens": 2}, timeout=120)
            if name in DEEP and status == 200:
                continue  # It is legal, if it harms nobody.
            assert status == 500, (name, text)
            assert "tokenizer.json" in text or "chat template" in text, (name, text)
            assert str(tmp_path) not in text, text
            assert server.chat(MODEL, "1+2=") == SUM
        assert server.process.poll() is None


@pytest.mark.slow
def test_a_checkpoint_that_takes_for_ever_is_given_up(tmp_path):
    folder = tmp_path / "powers"
    shutil.copytree(heddle.MODELS / MODEL, folder)
    (folder / "chat_template.jinja").write_text("{{ " + "2**" * 60_000 + "1 }}")
    with heddle.Server(heddle.config(models=[MODEL, f"  powers: {{path: {folder}}}\n"])) as server:
        status, text, _ = ask(server, "/v1/completions", {"model": "powers", "prompt": "1+2=", "max_tokens": 2}, timeout=180)
        assert status in (500, 503), text
        assert "chat templates" in text or "too busy" in text, text
        assert server.chat(MODEL, "1+2=") == SUM
