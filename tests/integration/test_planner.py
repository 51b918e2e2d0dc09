"""Models that come before they are asked for, and on more than one device."""

import os
import signal
import subprocess
import threading
import time

import server as heddle

WAIT_SECONDS = 60


def devices(count, memory="5MiB"):
    # A link on which a load takes half a second, so that a model that was prewarmed can be told from one that was not.
    each = "pace: {step: 20ms}, load_bandwidth: 2MB/s"
    return "".join(
        f"  - {{name: cpu{i}, kind: cpu, memory: {memory}, page: 64KiB, {each}}}\n" for i in range(count)
    )


def forecast(server, model):
    _, _, answer = server.call("/api/forecasts")
    return next(each for each in answer["models"] if each["model"] == model)


def decisions(server, kind):
    _, _, answer = server.call("/api/decisions")
    return [each for each in answer["decisions"] if each["decision"] == kind]


def wait_for(condition):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


class Load:
    """So many requests at once for a model until the end of the block, each with the right answer."""

    def __init__(self, server, model, at_once):
        self.server, self.model, self.ended, self.wrong = server, model, threading.Event(), []
        self.answers = heddle.eval_set(model, 50)
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(at_once)]

    def run(self, number):
        while not self.ended.is_set():
            prompt, _ = self.answers[number % len(self.answers)]
            text = self.server.chat(self.model, prompt)
            if text != self.expected.setdefault(prompt, text):
                self.wrong.append((prompt, text))

    def __enter__(self):
        self.expected = {}
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        assert not self.wrong


def test_a_model_is_back_before_anybody_asks_when_its_worker_dies():
    # Windows so long that the worker is back before the forecast has noticed that nobody asks any more.
    with heddle.Server(heddle.config(devices=devices(1), extra="planner: {window: 5s, period: 100ms}\n")) as server:
        with Load(server, "adder", 2):
            wait_for(lambda: (forecast(server, "adder")["error"] or 1) < 0.3)
        os.kill(server.workers()[0], signal.SIGKILL)
        wait_for(lambda: forecast(server, "adder")["loads"]["forecast"] > 0)
        (first, *_) = decisions(server, "prewarm")
        assert first["model"] == "adder" and "expected" in first["why"]
        wait_for(lambda: any(each["model"] == "adder" for each in server.call("/running")[2]["running"]))
        time.sleep(1)  # Until its weights are there, too.
        found = forecast(server, "adder")["starts"]
        server.chat("adder", "1+1=")
        now = forecast(server, "adder")["starts"]
        assert now["miss"] == found["miss"] and now["hit"] + now["attach"] > found["hit"] + found["attach"]


def test_a_model_that_is_cut_is_back_beside_others_and_runs_when_it_is_asked_for():
    models = [
        f"  adder: {{path: {heddle.MODELS / 'adder'}, dtype: float32, tensor_parallel: 2, min_residence: 0s}}\n",
        f"  morse: {{path: {heddle.MODELS / 'morse'}, min_residence: 0s}}\n",
    ]
    extra = "planner: {window: 5s, period: 100ms}\n"
    with heddle.Server(heddle.config(models=models, devices=devices(2), extra=extra)) as server:
        with Load(server, "adder", 2):
            wait_for(lambda: (forecast(server, "adder")["error"] or 1) < 0.3)
        os.kill(server.workers()[0], signal.SIGKILL)  # The other worker of the group ends with it.
        wait_for(lambda: forecast(server, "adder")["loads"]["forecast"] > 0)
        prompt, answer = heddle.eval_set("morse", 1)[0]
        assert server.chat("morse", prompt) == answer
        time.sleep(1.5)  # Until all weights are there, too.
        resident = {each["model"] for each in server.call("/running")[2]["running"]}
        assert resident == {"adder", "morse"}
        loads = forecast(server, "adder")["loads"]
        found = forecast(server, "adder")["starts"]
        for prompt, answer in heddle.eval_set("adder", 5):
            assert server.chat("adder", prompt) == answer
        now = forecast(server, "adder")["starts"]
        assert now["miss"] == found["miss"] and now["hit"] == found["hit"] + 1
        assert forecast(server, "adder")["loads"] == loads
        assert "2 of its 2 parts are there" in decisions(server, "load")[-1]["why"]
        # It needs no more of its devices than morse leaves.
        assert {each["model"] for each in server.call("/running")[2]["running"]} == {"adder", "morse"}


def test_a_model_with_much_load_gets_a_second_device():
    models = [f"  adder: {{path: {heddle.MODELS / 'adder'}, batch: 2}}\n", "morse"]
    text = heddle.config(devices=devices(2), models=models, extra="planner: {period: 100ms}\n")
    with heddle.Server(text) as server:
        with Load(server, "adder", 6):
            wait_for(lambda: forecast(server, "adder")["loads"]["load"] > 0)
            wait_for(lambda: sum(d["pages"]["kv_own"]["held"] > 0 for d in server.call("/api/devices")[2]["devices"]) == 2)
        (added,) = decisions(server, "add")
        assert added["model"] == "adder" and "a device should bear 2" in added["why"]
        assert "instead of queue on cpu" in added["why"]


def test_history_outlives_the_server(tmp_path):
    extra = f"dataDir: {tmp_path}\nplanner: {{window: 1s, period: 100ms}}\n"
    text = heddle.config(devices=devices(1), extra=extra)
    with heddle.Server(text) as server:
        with Load(server, "adder", 2):
            wait_for(lambda: (forecast(server, "adder")["error"] or 1) < 0.3)
            time.sleep(3)  # Some windows more, as what is remembered is judged anew.
    with heddle.Server(text) as server:
        assert forecast(server, "adder")["error"] is not None
        assert forecast(server, "morse")["expected_peak"] == 0


def test_a_damaged_history_is_set_aside(tmp_path):
    (tmp_path / "history.db").write_bytes(b"no database " * 1000)
    with heddle.Server(heddle.config(extra=f"dataDir: {tmp_path}\n")) as server:
        assert server.chat("adder", "1+1=")
        assert "history" in server.log()
    assert list(tmp_path.glob("history.db.corrupt-*"))


def test_explain_says_what_was_decided_and_why():
    with heddle.Server(heddle.config()) as server:
        explained = [heddle.BINARY, "explain", "--url", server.url]
        assert "Nothing was decided yet." in subprocess.check_output(explained, text=True)
        server.chat("adder", "1+1=")
        text = subprocess.check_output([*explained, "adder"], text=True)
        assert "a request waits; free_pages" in text and "morse" not in text
        assert decisions(server, "load")[0]["first_token_ms"] is None, "nothing was measured before"
