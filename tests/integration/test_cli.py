"""The verbs, as typed."""

import json
import os
import pty
import subprocess
import time

import server as heddle


def run(server, *args, **options):
    return subprocess.run(
        [heddle.BINARY, *args],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HEDDLE_HOST": server.url if server else ""},
        **options,
    )


def all_of(leader):
    """What a terminal is sent until nobody has it open; closes it."""
    seen = b""
    while True:
        try:
            chunk = os.read(leader, 4096)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    os.close(leader)
    return seen


def test_version_needs_no_server():
    done = run(None, "version")
    assert done.returncode == 0 and "heddle" in done.stdout


def test_without_a_verb_it_says_what_there_is():
    done = run(None)
    assert done.returncode == 0 and "serve" in done.stdout and "explain" in done.stdout


def test_a_mistyped_verb_is_named():
    done = run(None, "serv", "--config", "x.yaml")
    assert done.returncode != 0
    assert done.stderr == (
        'heddle: there is no verb "serv"; did you mean "serve"? heddle --help lists them\n'
    )
    assert "did you mean" not in run(None, "frobnicate").stderr


def test_list_shows_every_model_and_wakes_none(server):
    done = run(server, "list")
    assert done.returncode == 0, done.stderr
    for name in heddle.demo_models():
        assert name in done.stdout
    listed = json.loads(run(server, "list", "--json").stdout)
    assert len(listed if isinstance(listed, list) else listed["data"]) >= len(heddle.demo_models())


def test_load_ps_unload(server):
    model = heddle.demo_models()[0]
    assert run(server, "load", model).returncode == 0
    assert model in run(server, "ps").stdout
    assert run(server, "unload", model).returncode == 0
    assert model not in run(server, "ps").stdout


def test_run_answers_a_prompt(server):
    model = heddle.demo_models()[0]
    prompt, answer = heddle.eval_set(model, 1)[0]
    done = run(server, "run", model, prompt)
    assert done.returncode == 0, done.stderr
    assert answer in done.stdout


def test_run_chats_on_a_terminal(server):
    model = heddle.demo_models()[0]
    (first, right), (second, also_right) = heddle.eval_set(model, 2)
    done = run(server, "run", model, input=f"{first}\n/bye\n")
    assert right in done.stdout
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [heddle.BINARY, "run", model],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "HEDDLE_HOST": server.url},
    )
    os.close(follower)
    os.write(leader, f"{second}\n/bye\n".encode())
    seen = all_of(leader)
    assert child.wait(20) == 0
    assert also_right.encode() in seen


def test_top_shows_once_what_is_piped_and_goes_on_at_a_terminal(server):
    model = heddle.demo_models()[0]
    assert run(server, "load", model).returncode == 0
    once = run(server, "top")
    assert once.returncode == 0, once.stderr
    assert "cpu0 [" in once.stdout and model in once.stdout and "DECISIONS" in once.stdout
    assert "\x1b" not in once.stdout
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [heddle.BINARY, "top", "--every", "100ms"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "HEDDLE_HOST": server.url},
    )
    os.close(follower)
    shown = b""
    while shown.count(b"\x1b[H") < 3:
        shown += os.read(leader, 4096)
    os.write(leader, b"q")
    shown += all_of(leader)
    assert child.wait(20) == 0
    assert model.encode() in shown and shown.endswith(b"\x1b[?25h\x1b[?1049l")
    refused = run(server, "top", "--every", "1ms")
    assert refused.returncode == 1 and "at least 100ms" in refused.stderr


def test_unknown_model_is_an_error_with_the_known_ones(server):
    done = run(server, "load", "no-such-model")
    assert done.returncode != 0
    assert "no-such-model" in done.stderr and heddle.demo_models()[0] in done.stderr


def test_no_server_is_an_error_that_says_so():
    done = subprocess.run(
        [heddle.BINARY, "ps"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HEDDLE_HOST": "http://127.0.0.1:1"},
    )
    assert done.returncode != 0
    assert "127.0.0.1:1" in done.stderr and "heddle serve" in done.stderr


def test_a_configuration_may_be_named_without_an_option(tmp_path):
    done = run(None, "serve", tmp_path / "absent.yaml")
    assert done.returncode == 1
    assert "absent.yaml" in done.stderr


def test_serve_takes_models_without_a_configuration():
    """Two demo models, one under a name of its own, on a part of this machine's memory."""
    command = [heddle.BINARY, "serve", heddle.MODELS / "adder", f"also={heddle.MODELS / 'sorter'}",
               "--memory", "96MiB", "--listen", "127.0.0.1:0"]
    serving = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = next(line for line in serving.stdout if "serves on" in line).split()[-1]
        for model, prompt, answer in (("adder", "12+34=", "46"), ("also", "sort 9 3 5", "3 5 9")):
            done = subprocess.run([heddle.BINARY, "run", "--url", url, model, prompt], capture_output=True, text=True, timeout=60)
            assert done.returncode == 0 and answer in done.stdout, done.stderr
    finally:
        serving.terminate()
        serving.wait(30)
    assert serving.returncode == 0


def test_inspect_tells_what_is_in_a_checkpoint():
    model = heddle.demo_models()[0]
    done = run(None, "inspect", str(heddle.MODELS / model))
    assert done.returncode == 0, done.stderr
    assert "ForCausalLM" in done.stdout and "per token" in done.stdout
    weights = next((heddle.MODELS / model).glob("*.safetensors"))
    assert "model.layers.0" in run(None, "inspect", str(weights)).stdout


def test_inspect_refuses_what_is_no_checkpoint(tmp_path):
    path = tmp_path / "nonsense.safetensors"
    path.write_bytes(b"hello")
    done = run(None, "inspect", str(path))
    assert done.returncode != 0 and "nonsense.safetensors" in done.stderr


def test_certs_makes_an_authority_and_certificates(tmp_path):
    folder = str(tmp_path / "prod")
    made = run(None, "certs", "init", folder, "--cluster", "prod")
    assert made.returncode == 0 and f"{folder}/ca.key" in made.stdout
    assert os.stat(f"{folder}/ca.key").st_mode & 0o777 == 0o600
    issued = run(
        None,
        *("certs", "issue", folder, "--role", "agent", "--name", "h1"),
        *("--address", "h1.lan", "--address", "10.0.0.1", "--days", "30"),
    )
    assert issued.stdout == f"wrote {folder}/h1.crt and {folder}/h1.key\n"
    assert os.stat(f"{folder}/h1.key").st_mode & 0o777 == 0o600
    shown = run(None, "certs", "show", f"{folder}/h1.crt")
    assert shown.returncode == 0
    rows = [line.split(maxsplit=1) for line in shown.stdout.splitlines()]
    assert rows[:5] == [
        ["cluster", "prod"],
        ["role", "agent"],
        ["name", "h1"],
        ["address", "h1.lan"],
        ["address", "10.0.0.1"],
    ]
    assert [row[0] for row in rows[5:]] == ["from", "until"]
    assert "authority" in run(None, "certs", "show", f"{folder}/ca.crt").stdout


def test_certs_are_those_that_openssl_takes(tmp_path):
    run(None, "certs", "init", str(tmp_path), "--cluster", "prod")
    run(None, "certs", "issue", str(tmp_path), "--role", "gateway", "--name", "g1")
    for purpose in ("sslserver", "sslclient"):
        verify = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile"]
        done = subprocess.run(
            [*verify, tmp_path / "ca.crt", tmp_path / "g1.crt"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_certs_overwrites_nothing_and_says_what_is_wrong(tmp_path):
    folder = str(tmp_path)
    init = ("certs", "init", folder, "--cluster", "prod")
    issue = ("certs", "issue", folder, "--name", "h1", "--role")
    missing = run(None, *issue, "agent")
    assert missing.returncode == 1 and "`heddle certs init` makes an authority" in missing.stderr
    assert run(None, *init).returncode == 0
    again = run(None, *init)
    assert again.returncode == 1 and "will not be overwritten" in again.stderr
    assert run(None, *issue, "agent").returncode == 0
    again = run(None, *issue, "manager")
    assert again.returncode == 1 and f"{folder}/h1.crt" in again.stderr
    other = run(None, *issue, "worker")
    assert other.returncode == 1 and "want manager, gateway or agent" in other.stderr


def test_run_takes_settings_and_what_is_piped_in(server):
    prompt, answer = heddle.eval_set("adder", 1)[0]
    done = run(server, "run", "adder", prompt, "--temperature", "0", input="")
    assert done.returncode == 0 and answer in done.stdout, done.stderr
    lines = f"/set temperature warm\n/set temperature 0\n/set\n{prompt}\n/clear\n/help\n/bye\n"
    done = run(server, "run", "adder", "--system", "Be brief.", input=lines)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr
    assert 'temperature: is "warm"; want a number from 0 to 100' in done.stderr
    assert "temperature  0\n" in done.stderr and "system       Be brief." in done.stderr
    assert "/clear" in done.stderr
    done = run(server, "run", "adder", prompt, input="and more\n")
    assert done.returncode == 0 and done.stdout != f"{answer}\n"


def test_stop_unloads(server):
    assert run(server, "load", "adder").returncode == 0
    assert run(server, "stop", "adder").returncode == 0
    assert "adder" not in run(server, "ps").stdout


def test_explain_of_an_unknown_model_names_the_nearest(server):
    done = run(server, "explain", "ader")
    assert done.returncode == 1
    assert done.stderr == 'heddle: there is no model "ader"; did you mean "adder"? heddle list shows them\n'
    assert run(server, "explain", "adder").returncode == 0


def test_shells_and_man_get_the_verbs(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        text = run(None, "completions", shell).stdout
        assert "simulate" in text and "watch-config" in text and "worker" not in text, shell
    script = tmp_path / "heddle"
    script.write_text(run(None, "completions", "bash").stdout)
    ask = f"source {script}; COMP_WORDS=(heddle config ch); COMP_CWORD=2; _heddle; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, timeout=60)
    assert done.stdout == "check\n", done.stderr
    assert ".SS heddle run model prompt\n" in run(None, "manual").stdout


def test_options_of_llama_swap(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(heddle.config(models=["adder"]))
    done = run(None, "config", "check", str(config), "--listen", ":8080")
    assert done.returncode == 0, done.stderr
    assert "warning: listen: no key is asked for, so whoever reaches 0.0.0.0 may do everything" in done.stdout
    assert "warning" not in run(None, "config", "check", str(config)).stdout
    assert "is not an address" in run(None, "config", "check", str(config), "--listen", "x:y").stderr


def test_a_configuration_that_is_watched_is_taken_over():
    with heddle.Server(heddle.config(models=["adder"]), args=["-watch-config"]) as server:
        server.config_path.write_text(heddle.config(models=["adder", "morse"]))
        deadline = time.monotonic() + 30
        while "morse" not in run(server, "list").stdout:
            assert time.monotonic() < deadline, server.log()
