#!/usr/bin/env python3
"""An engine for tests: a server of the OpenAI API that holds memory, and misbehaves as it is told.

It answers at once and always the same: the words `NAME heard DIGEST 1 2 3 ...`, as many as max_tokens allows, with the digest
of the prompt, so that a test can tell who answered what, and that a stream lost nothing. Standard library only.

    engine.py --port 8000 --name alpha --anonymous-mib 64 --file-mib 64 --sigterm ignore

Beside the API it serves the sleep calls of vLLM, SGLang and Triton's OpenAI frontend, `/calls` (paths of all requests so far but this kind), `/kv` (tokens
by steps, of an engine with elastic KV) and `/last_request` (path, headers and body of the last request for inference). As vLLM
it can be woken piece by piece (`tags`), takes no notice of a call to sleep when it sleeps, and talks nonsense once its weights
were dropped (`/sleep?level=2`) until it was told to reload them.
"""

import argparse
import hashlib
import http.server
import json
import mmap
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import urllib.parse

import elastic_kv

MIB = 1 << 20
PAGE = mmap.PAGESIZE
TAGS = ("weights", "kv_cache")  # What an engine that sleeps has given up.


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0: any; the line `NAME listens on HOST:PORT` says which")
    add("--name", default="engine", help="of the model; requests for others get 404")
    add("--any-model", action="store_true", help="answer whatever model is asked for")
    add("--pid-file", help="gets the pid of every process of this engine, one a line, before the port opens")
    memory = parser.add_argument_group("memory").add_argument
    memory("--anonymous-mib", type=int, default=0, help="held from the start")
    memory("--file-mib", type=int, default=0, help="of a file, mapped and read")
    memory("--file", help="that is mapped; without it one is made in --directory and unlinked")
    memory("--directory", default=".")
    memory("--grow-on-wake-mib", type=int, default=0, help="held on top after each wake-up")
    memory("--leak-on-sleep-mib", type=int, default=0, help="of the anonymous memory that sleep does not free")
    memory("--backup-mib", type=int, default=0, help="held while it sleeps with its weights in host memory (level 1)")
    start = parser.add_argument_group("start").add_argument
    start("--open-after", type=float, default=0, help="seconds until the port opens")
    start("--healthy-after", type=float, default=0, help="seconds until /health answers 200, 503 before")
    start("--never-healthy", action="store_true")
    start("--no-health", action="store_true", help="/health is a path like any other that there is not")
    start("--die-after", type=float, help="seconds until it exits with status 3, with a last word on stderr")
    answer = parser.add_argument_group("answers").add_argument
    answer("--token-ms", type=float, default=0, help="between the tokens of a stream")
    answer("--first-token-ms", type=float, default=0)
    answer("--random", action="store_true", help="never the same answer twice")
    answer("--hides-first", action="store_true", help="an answer of one token is empty, as where that is a mark")
    answer("--no-chat", action="store_true", help="/v1/completions only")
    answer("--taciturn", action="store_true", help="the model ends every answer at once, unless min_tokens forbids it")
    answer("--embeddings-only", action="store_true")
    answer("--broken-sse", choices=["cut", "garbage", "no-done"], help="in the middle of a stream: hang up, send what is no JSON, end")
    answer("--refuse", type=int, default=0, help="so many requests are hung up on before anything is said")
    answer("--fail", type=int, default=0, help="so many requests get status 500")
    answer("--garbage-after-wake", action="store_true")
    answer("--garbage-while", metavar="FILE", help="answers are garbage while this file exists")
    answer("--silent-while", metavar="FILE", help="nothing is answered while this file exists")
    sleep = parser.add_argument_group("sleep").add_argument
    sleep("--no-sleep", action="store_true", help="404, as engines without the call")
    sleep("--sleep-after", type=float, default=0, help="seconds that it takes to fall asleep")
    sleep("--wake-after", type=float, default=0, help="seconds that it takes to have its weights again")
    sleep("--fail-sleep", action="store_true", help="500")
    sleep("--fail-wake", action="store_true", help="500")
    sleep("--hang-sleep", action="store_true", help="it never answers")
    sleep("--hang-wake", action="store_true")
    sleep("--fail-reload", action="store_true", help="500 when it is to read its weights again")
    sleep("--hang-reload", action="store_true")
    sleep("--empty-reload", action="store_true", help="200, and no weights")
    sleep("--fail-reset", action="store_true", help="200, and that the prefixes are not forgotten")
    kv = parser.add_argument_group("elastic KV, as kvcached has it").add_argument
    kv("--kv-mib", type=int, default=0, help="it has so many addresses for KV; 0: none of this")
    kv("--kv-request-mib", type=int, default=32, help="KV of a request while it runs")
    kv("--kv-page-mib", type=int, default=2, help="what is mapped and unmapped at once")
    kv("--kv-prealloc-mib", type=int, default=4, help="most that it keeps mapped ahead")
    kv("--kv-step-ms", type=float, default=10, help="in a step each request that runs gets a token")
    kv("--kv-directory", default="/dev/shm")
    kv("--kv-late", type=float, default=0, help="seconds until what a request had is unmapped")
    kv("--kv-forget", action="store_true", help="what was mapped is used again and never unmapped")
    kv("--kv-deaf", action="store_true", help="takes no notice of its limit")
    kv("--kv-over-mib", type=int, default=0, help="says that it has so much more than it was allowed")
    kv("--kv-other-version", action="store_true", help="a segment of 32 bytes")
    kv("--kv-missing", action="store_true", help="no segment: kvcached is not installed")
    kv("--kv-lose-while", metavar="FILE", help="the segment is away while this file exists")
    end = parser.add_argument_group("end").add_argument
    end("--sigterm", choices=["exit", "ignore", "hang"], default="exit", help="hang: closes the port and stays")
    end("--flood", action="store_true", help="writes to stdout as fast as it goes, some lines very long")
    end("--child", action="store_true", help="has a child that holds 1 MiB")
    end("--stray", action="store_true", help="has a grandchild in a session of its own that ignores SIGTERM")
    return parser.parse_args(arguments)


def hold(mib):
    """Anonymous memory with every page touched, incompressible for the kernel's purposes; None for nothing."""
    if mib <= 0:
        return None
    block = mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(block), PAGE):
        block[at] = 1
    return block


def map_file(options):
    """Weights as llama.cpp has them: a file, mapped read-only and read once."""
    if options.file:
        file = open(options.file, "rb")
    elif options.file_mib > 0:
        file = tempfile.NamedTemporaryFile(dir=options.directory)
        for _ in range(options.file_mib):
            file.write(bytes(MIB))
        file.flush()
        os.fsync(file.fileno())
    else:
        return None
    block = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
    sum(block[at] for at in range(0, len(block), PAGE))
    return block


class Engine:
    """What all connections share."""

    def __init__(self, options):
        self.options = options
        self.born = time.monotonic()
        self.mutex = threading.Lock()
        self.calls = []
        self.last_request = None
        self.woken = False
        self.sleeping = set()  # Of TAGS.
        self.weights_lost = False
        self.refuse, self.fail = options.refuse, options.fail
        self.anonymous = hold(options.anonymous_mib)
        self.file = map_file(options)
        self.kv = elastic_kv.ElasticKv(options) if options.kv_mib else None
        self.leaked, self.backup, self.grown = None, None, []

    def healthy(self):
        return not self.options.never_healthy and time.monotonic() - self.born >= self.options.healthy_after

    @property
    def asleep(self):
        return bool(self.sleeping)

    def sleep(self, level):
        with self.mutex:
            if not self.asleep:
                self.sleeping = set(TAGS)
                self.weights_lost = level == 2
                self.backup = hold(self.options.backup_mib) if level == 1 else None
                if self.anonymous is not None:
                    self.anonymous.close()
                    self.anonymous = None
                self.leaked = hold(self.options.leak_on_sleep_mib)

    def wake(self, tags):
        with self.mutex:
            was_asleep = self.asleep
            self.sleeping -= set(tags)
            if was_asleep and not self.asleep:
                self.woken = True
                self.leaked, self.backup = None, None
                self.anonymous = hold(self.options.anonymous_mib)
                self.grown.append(hold(self.options.grow_on_wake_mib))

    def reload(self):
        """Whether there is room for the weights, which are read."""
        with self.mutex:
            if "weights" in self.sleeping:
                return False
            self.weights_lost = self.weights_lost and self.options.empty_reload
            return True

    def take(self, counter):
        """Whether one of the requests that are to fail so is left."""
        with self.mutex:
            left = getattr(self, counter)
            setattr(self, counter, max(0, left - 1))
            return left > 0

    def words(self, prompt, limit):
        options = self.options
        garbage = options.garbage_after_wake and self.woken
        garbage = garbage or (options.garbage_while and os.path.exists(options.garbage_while))
        if garbage or self.weights_lost:
            return ["\ufffd"] * limit
        digest = hashlib.sha256(prompt.encode()).hexdigest()[:8]
        words = [options.name, "heard", digest] + [str(n) for n in range(1, max(1, limit - 2))]
        if options.random:
            words[0] = f"{options.name}-{random.getrandbits(32):x}"
        return [] if options.hides_first and limit == 1 else words[:limit]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # Or what is written in two pieces comes 40 ms late.
    engine: Engine

    def log_message(self, format, *arguments):
        print(f"{self.engine.options.name} {self.address_string()} {format % arguments}", flush=True)

    def reply(self, status, value):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(value, bytes) else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def error(self, status, message, kind="invalid_request_error"):
        self.reply(status, {"error": {"message": message, "type": kind, "param": None, "code": None}})

    def hang_up(self):
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.connection.close()

    def hang(self):
        while True:
            time.sleep(3600)

    def do_GET(self):
        self.route()

    def do_POST(self):
        self.route()

    def route(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urllib.parse.urlsplit(self.path).path
        if path == "/calls":
            return self.reply(200, self.engine.calls)
        if path == "/last_request":
            return self.reply(200, self.engine.last_request)
        if path == "/kv" and self.engine.kv:
            steps = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("steps", ["0"])
            return self.reply(200, self.engine.kv.told(int(steps[0])))
        with self.engine.mutex:
            self.engine.calls.append(self.path)
        while self.engine.options.silent_while and os.path.exists(self.engine.options.silent_while):
            time.sleep(0.02)
        if path in ("/health", "/health/ready") and not self.engine.options.no_health:
            return self.reply(200 if self.engine.healthy() else 503, b"")
        if path == "/v1/models":
            return self.reply(200, {"object": "list", "data": [{"id": self.engine.options.name, "object": "model"}]})
        if path in ("/sleep", "/release_memory_occupation", "/wake_up", "/resume_memory_occupation"):
            return self.turn(path)
        if path in tuple(f"/v1/models/{self.engine.options.name}/{verb}" for verb in ("load", "unload")):
            return self.turn(path)
        if path == "/api/ps":  # Ollama's: what is loaded.
            loaded = [] if self.engine.asleep else [{"name": self.engine.options.name + ":latest"}]
            return self.reply(200, {"models": loaded})
        if path == "/api/generate":
            return self.load_or_unload(body)
        if path == "/is_sleeping":
            return self.reply(200, {"is_sleeping": self.engine.asleep})
        if path == "/collective_rpc":
            return self.call_all(body)
        if path == "/reset_prefix_cache":
            # As vLLM says it: with status 200 either way.
            return self.reply(200, {"success": not self.engine.options.fail_reset})
        if path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
            return self.infer(path, body)
        return self.error(404, f"{path}: no such path")

    def turn(self, path):
        options = self.engine.options
        waking = path in ("/wake_up", "/resume_memory_occupation") or path.endswith("/load")
        if options.no_sleep:
            return self.error(404, f"{path}: no such path")
        if options.hang_wake if waking else options.hang_sleep:
            self.hang()
        if options.fail_wake if waking else options.fail_sleep:
            return self.error(500, f"{path}: cannot", "server_error")
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        if waking:
            tags = query.get("tags", TAGS)
            time.sleep(options.wake_after if "weights" in tags else 0)
            self.engine.wake(tags)
        else:
            time.sleep(options.sleep_after)
            self.engine.sleep(int(query.get("level", ["1"])[0]))
        return self.reply(200, {"status": "sleeping" if self.engine.asleep else "awake"})

    def load_or_unload(self, body):
        """Ollama's, without a prompt: answers at once and unloads in its own time."""
        options = self.engine.options
        request = json.loads(body or b"{}")
        if request.get("model") != options.name:
            return self.error(404, "model not found")
        if request.get("keep_alive") == 0:
            threading.Timer(options.sleep_after, self.engine.sleep, [1]).start()
        else:
            time.sleep(options.wake_after)
            self.engine.wake(TAGS)
        return self.reply(200, {"model": options.name, "done": True})

    def call_all(self, body):
        """vLLM's call of a method in all of its workers."""
        options = self.engine.options
        if options.no_sleep:
            return self.error(404, "/collective_rpc: no such path")
        if json.loads(body or b"{}").get("method") != "reload_weights":
            return self.error(400, "the only method here is reload_weights")
        if options.hang_reload:
            self.hang()
        if options.fail_reload or not self.engine.reload():
            return self.error(500, "reload_weights: cannot", "server_error")
        return self.reply(200, {"results": [None]})

    def infer(self, path, body):
        options = self.engine.options
        try:
            request = json.loads(body)
        except ValueError:
            return self.error(400, "the body is not JSON")
        self.engine.last_request = {"path": self.path, "headers": dict(self.headers), "body": request}
        if self.engine.take("refuse"):
            return self.hang_up()
        if self.engine.take("fail"):
            return self.error(500, "told to fail", "server_error")
        if request.get("model") != options.name and not options.any_model:
            return self.error(404, f"the model {request.get('model')!r} does not exist", "not_found_error")
        if self.engine.asleep:
            return self.error(503, "asleep", "server_error")
        chat = path == "/v1/chat/completions"
        if path == "/v1/embeddings":
            return self.reply(200, {"object": "list", "model": options.name,
                                    "data": [{"object": "embedding", "index": 0, "embedding": [1.0, 0.0]}],
                                    "usage": {"prompt_tokens": 1, "total_tokens": 1}})  # fmt: skip
        if options.embeddings_only or (chat and options.no_chat):
            return self.error(404, f"{path}: this model does not do that")
        prompt = json.dumps(request.get("messages")) if chat else str(request.get("prompt"))
        limit = request.get("max_completion_tokens") or request.get("max_tokens") or 16
        words = self.engine.words(prompt, limit)
        if options.taciturn:
            words = words[: request.get("min_tokens", 0)]
        time.sleep(options.first_token_ms / 1000)
        if self.engine.kv:
            self.engine.kv.serve(len(words))
        if request.get("stream"):
            return self.stream(chat, words, limit, request)
        return self.reply(200, self.whole(chat, words, limit))

    def frame(self, chat, chunk, choices):
        kind = ("chat.completion.chunk" if chunk else "chat.completion") if chat else "text_completion"
        return {"id": "cmpl-1", "object": kind, "created": 1, "model": self.engine.options.name, "choices": choices}

    def usage(self, words):
        return {"prompt_tokens": 5, "completion_tokens": len(words), "total_tokens": 5 + len(words)}

    def finish(self, words, limit):
        return "length" if len(words) >= limit else "stop"

    def whole(self, chat, words, limit):
        text = " ".join(words)
        choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        frame = self.frame(chat, False, [{"index": 0, **choice, "finish_reason": self.finish(words, limit)}])
        return {**frame, "usage": self.usage(words)}

    def event(self, data):
        part = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        self.wfile.flush()

    def stream(self, chat, words, limit, request):
        options = self.engine.options
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for position, word in enumerate(words):
            if position == len(words) // 2 and options.broken_sse == "cut":
                return self.hang_up()
            if position == len(words) // 2 and options.broken_sse == "garbage":
                self.event('{"id": "cmpl-')
            text = word if position == 0 else " " + word
            choice = {"delta": {"role": "assistant", "content": text}} if chat else {"text": text}
            self.event(self.frame(chat, True, [{"index": 0, **choice, "finish_reason": None}]))
            time.sleep(options.token_ms / 1000)
        choice = {"delta": {}} if chat else {"text": ""}
        self.event(self.frame(chat, True, [{"index": 0, **choice, "finish_reason": self.finish(words, limit)}]))
        if (request.get("stream_options") or {}).get("include_usage"):
            self.event({**self.frame(chat, True, []), "usage": self.usage(words)})
        if options.broken_sse != "no-done":
            self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # Clients hang up when they like.


def be_a_child():
    block = hold(1)
    while block:
        time.sleep(3600)


def fork_family(options):
    """The pids of the processes beside this one."""
    family = []
    if options.child:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            be_a_child()
        family.append(pid)
    if options.stray:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.write(writing, f"{os.getpid()}\n".encode())
                be_a_child()
            os._exit(0)
        os.waitpid(child, 0)
        family.append(int(os.read(reading, 32)))
    return family


def flood():
    line = "x" * 100 + "\n"
    while True:
        sys.stdout.write(line * 100 + "y" * 100_000 + "\n")


def main():
    options = parse()
    pids = [os.getpid(), *fork_family(options)]  # Before there are threads.
    if options.sigterm == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # In all threads: main waits for it.
    if options.pid_file:
        with open(options.pid_file + ".new", "w") as file:
            file.write("".join(f"{pid}\n" for pid in pids))
        os.rename(options.pid_file + ".new", options.pid_file)
    if options.flood:
        threading.Thread(target=flood, daemon=True).start()
    if options.die_after is not None:

        def die():
            print(f"{options.name}: out of luck, as told", file=sys.stderr, flush=True)
            os._exit(3)

        threading.Timer(options.die_after, die).start()
    if options.sigterm == "ignore":
        time.sleep(options.open_after)
    elif signal.sigtimedwait([signal.SIGTERM], options.open_after):
        os._exit(0)
    Handler.engine = Engine(options)
    server = Server((options.host, options.port), Handler)
    print(f"{options.name} listens on {options.host}:{server.server_address[1]}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while options.sigterm == "ignore":
        time.sleep(3600)
    signal.sigwait([signal.SIGTERM])
    if options.sigterm == "hang":
        server.shutdown()
        server.server_close()
        while True:
            time.sleep(3600)
    print(f"{options.name} ends", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
