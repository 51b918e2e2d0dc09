"""Servers and clusters that fetch their models while they load them, from sources of the tests' own that misbehave."""

import concurrent.futures
import contextlib
import json
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

import cluster
import pytest
import server as heddle
from fetching import ADDER, KEYS, environment, fake

import s3

MORSE = fake.files_of(heddle.MODELS / "morse")
SORTER = fake.files_of(heddle.MODELS / "sorter")  # In two files.
WEIGHTS = ADDER["model.safetensors"]
RECORD = 1 << 20  # Of whole records.
HEADER = 1 << 18  # What is asked for at most to know a model.


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def wait_until(what, seconds=30):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def config(paths, host="", **more):
    """A configuration of models by name and path."""
    text = heddle.config(models=[f'  {name}: {{path: "{path}"}}\n' for name, path in paths.items()], **more)
    return text.replace("memory: 64MiB", f"memory: 64MiB{host}")


def status(server, model="adder"):
    return next(row for row in server.call("/v1/models")[2]["data"] if row["id"] == model)["status"]


def fetched_bytes(server, model="adder"):
    return sum(value for name, value in server.metrics().items()
               if name.startswith("heddle_fetch_bytes_total{") and f'model="{model}"' in name)


def right(server, model="adder", **options):
    prompt, answer = heddle.eval_set(model, 1)[0]
    return answer in server.chat(model, prompt, **options)


def ask(server, model="adder"):
    """A request that runs in a thread; its result is (status, headers, answer)."""
    prompt, _ = heddle.eval_set(model, 1)[0]
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0}
    return concurrent.futures.ThreadPoolExecutor(1).submit(server.call, "/v1/chat/completions", body)


def answered(asked, model="adder"):
    code, _, body = asked.result(60)
    assert code == 200, body
    assert heddle.eval_set(model, 1)[0][1] in body["choices"][0]["message"]["content"]


class Held:
    """Weights of which a site sends a part, and the rest when it is let go."""

    def __init__(self, site, after=RECORD + 5000, part="model.safetensors"):
        self.site, self.after, self.part = site, after, part
        self.let_go, self.seen, self.hangs_up = threading.Event(), threading.Event(), False
        site.faults.append(self.hold)

    def hold(self, request):
        asked = request.headers.get("Range", "")
        name = request.path.split("?")[0].lstrip("/")
        if self.part not in name or self.let_go.is_set():
            return False
        content = self.site.files[name]
        first, last = (int(at) for at in asked.removeprefix("bytes=").split("-")) if asked else (0, len(content) - 1)
        if last < self.after:
            return False  # The header.
        body = content[first : last + 1]
        request.send_response(206 if asked else 200)
        request.send_header("ETag", self.site.etag(name))
        request.send_header("Content-Length", str(len(body)))
        if asked:
            request.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        request.end_headers()
        cut = max(0, self.after - first)
        try:
            request.wfile.write(body[:cut])
            request.wfile.flush()
            self.seen.set()
            self.let_go.wait(60)
            if self.hangs_up:
                raise ConnectionError
            request.wfile.write(body[cut:])
        except ConnectionError:
            request.close_connection = True
        return True

    def hang_up(self):
        """Instead of the rest."""
        self.hangs_up = True
        self.let_go.set()


def weights_asked(requests, part="model"):
    """The ranges of weights that were asked for, by path, in the order of the requests."""
    ranges = []
    for path, headers in requests:
        if path.endswith(".safetensors") and part in path:
            first, last = headers.get("Range", f"bytes=0-{1 << 40}").removeprefix("bytes=").split("-")
            if last != "0":  # Which asks how much there is.
                ranges.append((path, int(first), int(last) + 1))
    return ranges


class Gate:
    """Holds requests for weights back, all or those for some byte, but not for their headers."""

    def __init__(self, site, part="model.safetensors", byte=None, then=None):
        self.site, self.part, self.byte, self.then = site, part, byte, then
        self.open, self.held = threading.Event(), []
        with site.lock:
            site.requests.clear()
        site.faults.append(self.wait)

    def wait(self, request):
        asked = weights_asked([(request.path, request.headers)], self.part)
        if not asked or (asked[0][1] == 0 and asked[0][2] <= HEADER) or (self.byte is not None and not asked[0][1] <= self.byte < asked[0][2]):
            return False
        self.held.extend(asked)
        self.open.wait(60)
        return self.then(request) is not False if self.then else False


def hub_source():
    hub = fake.Hub(ADDER)
    return hub, "acme/adder", {"HF_ENDPOINT": hub.url}


def site_source():
    site = fake.Site({f"models/adder/{name}": content for name, content in ADDER.items()})
    return site, site.url + "/models/adder/", {}


def bucket_source():
    bucket = s3.Bucket({f"llm/adder/{name}": content for name, content in ADDER.items()}, keys=KEYS)
    secrets = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": KEYS["AKIDEXAMPLE"]}
    return bucket, "s3://models/llm/adder", {"AWS_ENDPOINT_URL_S3": bucket.url, **secrets}


@pytest.mark.parametrize("source", [hub_source, site_source, bucket_source])
def test_a_model_that_is_nowhere_answers(home, source):
    site, name, variables = source()
    env = environment(home, **variables)
    with site:
        with heddle.Server(config({"adder": name}), env=env) as server:
            assert right(server)
            wait_until(lambda: f"fetched model=adder bytes={len(WEIGHTS)}" in server.log())
            assert fetched_bytes(server) == len(WEIGHTS)
            assert f"fetch model=adder from={name}" in server.log()
            assert "s3cret" not in server.log()
    listed = subprocess.run([heddle.BINARY, "pull", "--list", "--json"], capture_output=True, text=True, env=env)
    assert [row["incomplete"] for row in json.loads(listed.stdout)] == [False]
    with heddle.Server(config({"adder": name}), env=env) as server:  # Without the source.
        assert right(server)
        assert fetched_bytes(server) == 0


def test_what_is_checked_needs_no_source(home):
    path = home / "heddle.yaml"
    home.mkdir()

    def check(text):
        path.write_text(text)
        return subprocess.run([heddle.BINARY, "config", "check", path], capture_output=True, text=True, timeout=60,
                              env=environment(home, HF_ENDPOINT="http://127.0.0.1:1"))

    done = check(config({"adder": "acme/adder", "sorter": "s3://models/sorter"}))
    assert done.returncode == 0, done.stderr
    assert "model adder: not in the cache; the server asks acme/adder what it is" in done.stdout
    assert "`heddle pull s3://models/sorter` fetches it now" in done.stdout
    done = check(config({"adder": "acme/adder"}, host=", nic: 0"))
    assert done.returncode == 1
    assert "nic" in done.stderr and "25Gb/s" in done.stderr


def test_a_killed_server_goes_on_where_it_was(home):
    site, name, _ = site_source()
    with site:
        held = Held(site)
        server = heddle.Server(config({"adder": name}), env=environment(home))
        asked = ask(server)
        assert held.seen.wait(30)
        wait_until(lambda: fetched_bytes(server) >= RECORD)
        server.process.kill()
        server.process.wait()
        held.let_go.set()
        assert isinstance(asked.exception(30), OSError)
        site.requests.clear()
        with heddle.Server(config({"adder": name}), env=environment(home)) as again:
            assert right(again)
            assert fetched_bytes(again) == len(WEIGHTS) - RECORD
    asked_for = [(first, end) for _, first, end in weights_asked(site.requests)]
    assert min(asked_for)[0] == RECORD and sum(end - first for first, end in asked_for) == len(WEIGHTS) - RECORD


def test_layers_run_while_others_come_and_hold_up_nobody(home):
    site, name, _ = site_source()
    with site:
        held = Held(site)
        paths = {"adder": name, "sorter": heddle.MODELS / "sorter"}
        with heddle.Server(config(paths), env=environment(home)) as server:
            asked = ask(server)
            assert held.seen.wait(30)
            # The request is at its worker, which has the first layers and runs them.
            running = wait_until(lambda: next(
                (row for row in server.call("/running")[2]["running"] if row["requests_running"] == 1
                 and row["loaded_bytes"] > 0 and row["fetch"]["bytes"] >= RECORD), None))
            assert running["loaded_bytes"] < running["bytes"]
            assert running["fetch"]["from"] == name
            assert RECORD <= running["fetch"]["bytes"] < running["fetch"]["total_bytes"] == len(WEIGHTS)
            assert status(server)["value"] == "downloading"
            shown = subprocess.run([heddle.BINARY, "ps", "--url", server.url], capture_output=True, text=True).stdout
            assert f"adder: being fetched from {name}: 1.0" in shown and " of 1.35 MiB" in shown, shown
            # Another model on the same device has its turn meanwhile, loaded from disk.
            assert right(server, "sorter")
            assert not asked.done()
            held.let_go.set()
            answered(asked)
            assert right(server, "sorter")


def test_an_unload_ends_a_fetch_and_loses_nothing(home):
    site, name, _ = site_source()
    with site:
        held = Held(site)
        with heddle.Server(config({"adder": name}), env=environment(home)) as server:
            load = concurrent.futures.ThreadPoolExecutor(1).submit(server.call, "/models/load", {"model": "adder"})
            assert held.seen.wait(30)
            wait_until(lambda: fetched_bytes(server) >= RECORD)
            assert load.result(30)[0] == 200  # It serves as soon as it has a place.
            assert server.call("/models/unload", {"model": "adder"})[0] == 200
            wait_until(lambda: "the fetch was stopped; what has come is kept" in server.log())
            wait_until(lambda: "fetch" not in status(server))
            held.let_go.set()
            site.requests.clear()
            assert right(server)
            asked_for = [(first, end) for _, first, end in weights_asked(site.requests)]
            assert min(asked_for)[0] == RECORD and sum(end - first for first, end in asked_for) == len(WEIGHTS) - RECORD


def test_a_source_that_cannot_be_had_is_that_models_alone(home):
    site, name, _ = site_source()
    forbidden = fake.status(403)
    with site, fake.Hub(SORTER, repo="acme/sorter") as hub:
        site.faults = [fake.times(99, forbidden)]
        hub.network.faults = [fake.times(99, forbidden)]
        env = environment(home, HF_ENDPOINT=hub.url)
        with heddle.Server(config({"adder": name, "sorter": "acme/sorter", "morse": heddle.MODELS / "morse"}), env=env) as server:
            assert right(server, "morse")
            # Neither is known, as not even headers can be read.
            error = wait_until(lambda: "403" in status(server).get("error", "") and status(server)["error"])
            assert "learn what it is from " in error and "answered 403" in error
            code, _, answer = server.call("/v1/completions", {"model": "adder", "prompt": "1"})
            assert code == 503 and "answered 403" in answer["error"]["message"], answer
            site.faults = []
            hub.network.faults = []
            wait_until(lambda: not status(server)["failed"] and not status(server, "sorter")["failed"])
            assert right(server)
            # What fails later is the load's error, and another load tries again.
            hub.network.faults = [fake.times(99, forbidden)]
            code, _, answer = server.call("/models/load", {"model": "sorter"})
            if code == 200:  # It had its place before the fetch failed.
                wait_until(lambda: status(server, "sorter")["failed"])
                answer = {"error": {"message": status(server, "sorter")["error"]}}
            assert "fetch model sorter from acme/sorter" in answer["error"]["message"], answer
            assert "answered 403" in answer["error"]["message"], answer
            hub.network.faults = []
            wait_until(lambda: server.call("/models/load", {"model": "sorter"})[0] == 200)
            assert right(server, "sorter")
            assert right(server, "morse")


def test_a_wrong_digest_ends_a_models_residency(home):
    hub, name, variables = hub_source()
    with hub:
        with heddle.Server(config({"adder": name}), env=environment(home, **variables)) as server:
            wait_until(lambda: not status(server)["failed"])
            wrong = bytearray(WEIGHTS)
            wrong[-1] ^= 1
            hub.network.files["model.safetensors"] = bytes(wrong)
            server.call("/models/load", {"model": "adder"})
            error = wait_until(lambda: status(server).get("error"))
            assert "came with the SHA-256" in error and "fetch model adder from acme/adder" in error
            wait_until(lambda: status(server)["value"] == "unloaded")
            hub.network.files["model.safetensors"] = WEIGHTS
            wait_until(lambda: server.call("/models/load", {"model": "adder"})[0] == 200)
            assert right(server)
            assert fetched_bytes(server) == 2 * len(WEIGHTS), "nothing that was wrong is kept"


def test_a_model_that_changes_is_read_anew(home):
    site, name, _ = site_source()
    with site:
        with heddle.Server(config({"adder": name}), env=environment(home)) as server:
            wait_until(lambda: not status(server)["failed"])
            site.etags["models/adder/model.safetensors"] = '"another"'
            server.call("/models/load", {"model": "adder"})
            wait_until(lambda: f"{name} changed at its source since its configuration was read" in server.log())
            wait_until(lambda: not status(server)["failed"] and right(server))


def test_a_model_that_changes_while_it_comes_is_not_served(home):
    site, name, _ = site_source()
    with site:
        held = Held(site)
        with heddle.Server(config({"adder": name}), env=environment(home)) as server:
            asked = ask(server)
            assert held.seen.wait(30)
            changed = {**ADDER, "model.safetensors": WEIGHTS[:-4] + b"wxyz"}
            site.files |= {f"models/adder/{file}": content for file, content in changed.items()}
            site.faults.insert(0, lambda request: "Range" in request.headers and request.say_file(
                site.files[request.path.lstrip("/")], site.etag(request.path.lstrip("/"))) is None)
            held.hang_up()
            code, _, answer = asked.result(60)
            assert code == 503 and "model.safetensors changed while it was fetched" in answer["error"]["message"], answer


def test_two_models_at_once(home):
    site, name, _ = site_source()
    with site, fake.Hub(MORSE, repo="acme/morse") as hub:
        held = [Held(site), Held(hub.network)]
        env = environment(home, HF_ENDPOINT=hub.url)
        text = config({"adder": name, "morse": "acme/morse"}, host=", nic: 400Mb/s", memory="16MiB")
        with heddle.Server(text, env=env) as server:
            asked = {model: ask(server, model) for model in ("adder", "morse")}
            for each in held:
                assert each.seen.wait(30)
            wait_until(lambda: all("fetch" in status(server, model) for model in asked))
            for each in held:
                each.let_go.set()
            for model, request in asked.items():
                answered(request, model)


def test_the_budget_holds_for_servers_too(home):
    site, name, _ = site_source()
    with site:
        with heddle.Server(config({"adder": name}), env=environment(home, HEDDLE_CACHE_BUDGET="1MB")) as server:
            wait_until(lambda: not status(server)["failed"])
            server.call("/models/load", {"model": "adder"})
            error = wait_until(lambda: status(server).get("error"))
            assert "do not fit into the budget of 977 KiB" in error
        with heddle.Server(config({"adder": name}), env=environment(home)) as server:
            assert right(server)
            # What it serves no other process removes.
            done = subprocess.run([heddle.BINARY, "pull", name + "x", "--budget", "10kB"], capture_output=True, text=True,
                                  env=environment(home))
            assert done.returncode == 1
            site.files |= {f"models/sorter/{file}": content for file, content in SORTER.items()}
            done = subprocess.run([heddle.BINARY, "pull", site.url + "/models/sorter", "--budget", "1500kB"],
                                  capture_output=True, text=True, env=environment(home))
            assert done.returncode == 1 and "may not go, as servers use it" in done.stderr, done.stderr


def test_hosts_of_a_cluster_fetch_for_themselves(home):
    hub, name, variables = hub_source()
    with hub:
        held = Held(hub.network)
        with cluster.Cluster(hosts=1, models=[f"  adder: {{path: {name}}}\n"],
                             env=environment(home, **variables)) as nodes:
            gateway = nodes.gateways[0]
            wait_until(lambda: gateway.call("/v1/models")[2]["data"])
            asked = ask(gateway)
            assert held.seen.wait(30)
            wait_until(lambda: status(gateway).get("fetch", {}).get("from") == name)
            held.let_go.set()
            answered(asked)
            wait_until(lambda: fetched_bytes(gateway) == len(WEIGHTS))
            # Why it was loaded tells what that fetches, as `heddle explain` shows.
            wait_until(lambda: any("; fetches " in one["why"] and one["why"].endswith("by estimate")
                                   for one in gateway.call("/api/decisions")[2]["decisions"]))
    shutil.rmtree(home)  # It was all there.


def parted(name, how, devices=2):
    """The adder in parts on several devices."""
    each = "".join(f"  - {{name: cpu{i}, kind: cpu, memory: 8MiB, page: 64KiB}}\n" for i in range(devices))
    return heddle.config(models=[f'  adder: {{path: "{name}", {how}: {devices}}}\n'], devices=each)


def listed(env):
    done = subprocess.run([heddle.BINARY, "pull", "--list", "--json"], capture_output=True, text=True, env=env)
    return json.loads(done.stdout)


def known(server, model="adder"):
    wait_until(lambda: any(row["id"] == model for row in server.call("/v1/models")[2]["data"])
               and not status(server, model)["failed"])


@pytest.mark.parametrize("how", ["pipeline_parallel", "tensor_parallel"])
def test_parts_of_a_model_come_side_by_side_and_no_byte_twice(home, how):
    site, name, _ = site_source()
    env = environment(home)
    with site:
        with heddle.Server(parted(name, how), env=env) as server:
            known(server)
            gate = Gate(site)
            asked = ask(server)
            wait_until(lambda: server.log().count("fetch model=adder") == 2)
            wait_until(lambda: gate.held)
            gate.open.set()
            answered(asked)
            wait_until(lambda: fetched_bytes(server) == len(WEIGHTS))
            wait_until(lambda: server.log().count("fetched model=adder") == 2)
            assert right(server)
        ranges = sorted((first, end) for _, first, end in weights_asked(site.requests))
        assert all(end <= first for (_, end), (first, _) in zip(ranges, ranges[1:])), ranges
        assert [row["incomplete"] for row in listed(env)] == [False]
    with heddle.Server(parted(name, how), env=env) as server:  # Without the source.
        assert right(server)
        assert fetched_bytes(server) == 0


def test_two_names_of_one_source_share_what_comes(home):
    site, name, _ = site_source()
    with site:
        with heddle.Server(config({"adder": name, "twin": name}, memory="16MiB"), env=environment(home)) as server:
            known(server)
            known(server, "twin")
            gate = Gate(site)
            prompt, answer = heddle.eval_set("adder", 1)[0]
            body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0}
            asked = [concurrent.futures.ThreadPoolExecutor(1).submit(
                server.call, "/v1/chat/completions", {"model": model, **body}) for model in ("adder", "twin")]
            wait_until(lambda: gate.held and all(f"fetch model={model} " in server.log() for model in ("adder", "twin")))
            gate.open.set()
            for each in asked:
                code, _, said = each.result(60)
                assert code == 200 and answer in said["choices"][0]["message"]["content"], said
            assert fetched_bytes(server) + fetched_bytes(server, "twin") == len(WEIGHTS)


def test_what_a_stage_has_fetched_the_whole_model_does_not_fetch_again(home):
    site, name, _ = site_source()
    env = environment(home)
    with site:
        with heddle.Server(parted(name, "pipeline_parallel"), env=env) as server:
            known(server)
            # The last layer cannot be had, so the other stage alone has what it reads.
            gate = Gate(site, byte=len(WEIGHTS) - 150_000, then=fake.status(403))
            asked = ask(server)
            wait_until(lambda: gate.held and fetched_bytes(server) > len(WEIGHTS) // 4)
            gate.open.set()
            code, _, answer = asked.result(60)
            assert code == 503 and "answered 403" in answer["error"]["message"], answer
            first = fetched_bytes(server)
        site.faults.clear()
        (row,) = listed(env)
        assert row["incomplete"] and first <= len(WEIGHTS) - 150_000, (row, first)
        with heddle.Server(config({"adder": name}), env=env) as server:
            assert right(server)
            wait_until(lambda: "fetched model=adder" in server.log())
            assert len(WEIGHTS) <= fetched_bytes(server) + first < len(WEIGHTS) + 3 * 65536  # Cut records come again.
        assert [row["incomplete"] for row in listed(env)] == [False]


def test_stages_of_a_source_without_ranges(home):
    site, name, _ = site_source()
    with site:
        site.faults = [fake.without_ranges(site)]
        with heddle.Server(parted(name, "pipeline_parallel"), env=environment(home)) as server:
            assert right(server)
            wait_until(lambda: server.log().count("fetched model=adder") == 2)
            assert "the source ignores ranges" in server.log()
            assert fetched_bytes(server) <= 2 * len(WEIGHTS)


def test_a_stage_whose_source_changes_while_it_comes_is_not_served(home):
    site, name, _ = site_source()
    with site:
        with heddle.Server(parted(name, "pipeline_parallel"), env=environment(home)) as server:
            known(server)
            gate = Gate(site, byte=len(WEIGHTS) - 150_000)
            asked = ask(server)
            assert wait_until(lambda: gate.held)
            site.etags["models/adder/model.safetensors"] = '"another"'
            gate.open.set()
            code, _, answer = asked.result(60)
            assert code == 503 and "model.safetensors changed while it was fetched" in answer["error"]["message"], answer


def test_a_wrong_digest_ends_every_stage(home):
    """A stage that was complete before all of the file was there, too."""
    hub, name, variables = hub_source()
    with hub:
        with heddle.Server(parted(name, "pipeline_parallel"), env=environment(home, **variables)) as server:
            known(server)
            wrong = bytearray(WEIGHTS)
            wrong[-100_000] ^= 1
            hub.network.files["model.safetensors"] = bytes(wrong)
            server.call("/models/load", {"model": "adder"})
            wait_until(lambda: "came with the SHA-256" in status(server).get("error", ""))
            wait_until(lambda: status(server)["value"] == "unloaded")
            hub.network.files["model.safetensors"] = WEIGHTS
            wait_until(lambda: server.call("/models/load", {"model": "adder"})[0] == 200)
            assert right(server)
            assert fetched_bytes(server) == 2 * len(WEIGHTS), "nothing that was wrong is kept"


def remember_load(folder, model, seconds):
    """A history of loads in which the model was asked for in every window until now."""
    folder.mkdir(parents=True)
    now = int(time.time()) // seconds
    with contextlib.closing(sqlite3.connect(folder / "history.db")) as database:
        database.execute("CREATE TABLE load (length_ns INTEGER NOT NULL, start INTEGER NOT NULL, model TEXT NOT NULL, "
                         "mean REAL NOT NULL, peak REAL NOT NULL, PRIMARY KEY (length_ns, start, model)) WITHOUT ROWID")
        database.executemany("INSERT INTO load VALUES (?, ?, ?, 2, 2)",
                             [(seconds * 10**9, window, model) for window in range(now - 300, now + 1)])
        database.execute("PRAGMA user_version = 1")
        database.commit()


def padded(files, name, count):
    """A model's files, of which one has that many more bytes that nothing reads."""
    content = files[name]
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    header["padding"] = {"dtype": "U8", "shape": [count], "data_offsets": [len(data), len(data) + count]}
    text = json.dumps(header).encode()
    return {**files, name: len(text).to_bytes(8, "little") + text + data + bytes(count)}


def test_what_a_request_waits_for_overtakes_what_is_prewarmed(home, tmp_path):
    """Counted by what the source is asked for."""
    files = padded(ADDER, "model.safetensors", 40 << 20)
    site = fake.Site({f"models/adder/{name}": content for name, content in files.items()}
                     | {f"models/sorter/{name}": content for name, content in SORTER.items()})
    remember_load(tmp_path / "data", "adder", 5)
    paths = {name: f"{site.url}/models/{name}/" for name in ("adder", "sorter")}
    extra = f"dataDir: {tmp_path / 'data'}\nplanner: {{window: 5s, period: 100ms}}\n"
    with site:
        early, wanted = Gate(site, "adder"), Gate(site, "sorter")
        with heddle.Server(config(paths, memory="16MiB", extra=extra), env=environment(home)) as server:
            wait_until(lambda: len(early.held) == 8)  # Requests at once, of 4 MiB each.
            asked = ask(server, "sorter")
            wait_until(lambda: wanted.held)
            before = len(early.held)
            early.open.set()  # What was asked for comes; nothing more is asked for meanwhile.
            wait_until(lambda: fetched_bytes(server) >= sum(end - first for _, first, end in early.held[:before]) - RECORD)
            assert len(early.held) == before
            wanted.open.set()
            answered(asked, "sorter")
            wait_until(lambda: fetched_bytes(server) == len(files["model.safetensors"]))
            assert len(early.held) > before


def test_what_is_due_first_leaves_the_link_where_its_source_stands(home):
    site = fake.Site({f"models/{model}/{name}": content for model, files in (("adder", ADDER), ("morse", MORSE))
                      for name, content in files.items()})
    rows = [f'  {model}: {{path: "{site.url}/models/{model}/", slo: {{ttft: {due}}}}}\n'
            for model, due in (("adder", "60s"), ("morse", "200s"))]
    with site:
        text = heddle.config(models=rows, memory="16MiB").replace("memory: 64MiB", "memory: 64MiB, nic: 400Mb/s")
        with heddle.Server(text, env=environment(home)) as server:
            known(server)
            known(server, "morse")
            gate = Gate(site, "adder")
            asked = ask(server)
            wait_until(lambda: gate.held)
            answered(ask(server, "morse"), "morse")
            assert not asked.done()
            gate.open.set()
            answered(asked)
