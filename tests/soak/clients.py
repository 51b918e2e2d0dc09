"""The clients of a soak: each asks, checks every answer it gets, and misbehaves as clients do."""

import collections
import dataclasses
import http.client
import json
import random
import socket
import threading
import time
import urllib.parse

ANSWER_SECONDS = 180
REMOVED = "was removed from the configuration"
OPTIONS = (
    {"temperature": 0},
    {"temperature": 0, "max_tokens": 500},  # More than the smaller device has room for.
    {"temperature": 1.5, "seed": 7, "max_tokens": 24},
    {"temperature": 0, "n": 2},
    {"temperature": 0, "guided_regex": "[A-Za-z0-9 .+=,-]{1,12}"},
    {"temperature": 0, "max_tokens": 300, "ignore_eos": True},
)
LONG = len(OPTIONS) - 1  # Only where memory is lent: it fills a device with few clients.


class Refused(Exception):
    """The server would not take the request: it is full, or does not have the model just now."""

    def __init__(self, status, retry_after):
        super().__init__(status)
        self.status, self.retry_after = status, retry_after


@dataclasses.dataclass(frozen=True)
class Question:
    """A request whose answer is the same whatever happens meanwhile."""

    model: str
    prompt: str
    options: int  # Index into OPTIONS.


class Tally:
    """What the clients saw. Any thread."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.failures = []

    def add(self, what, detail=None):
        with self.lock:
            self.counts[what] += 1
            if detail is not None and len(self.failures) < 20:
                self.failures.append((what, detail))


def post(url, question, stream):
    """An open connection whose answer has begun, with that answer."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=ANSWER_SECONDS)
    try:
        message = {"role": "user", "content": question.prompt}
        body = {"model": question.model, "messages": [message], "stream": stream, **OPTIONS[question.options]}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status in (404, 429, 503):
            response.read()
            raise Refused(response.status, float(response.headers.get("Retry-After", 1)))
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {response.read()[:300]!r}")
    except BaseException:
        connection.close()
        raise
    return connection, response


def ask(url, question, *, stream=True, vanish_after=None, pause=0.0):
    """[(text, finish reason)] of all choices, or None where the client itself hung up.

    A client that pauses does so after every event; one that vanishes does so after as many events."""
    connection, response = post(url, question, stream)
    try:
        if not stream:
            choices = json.loads(response.read())["choices"]
            return [(choice["message"]["content"] or "", choice["finish_reason"]) for choice in choices]
        answers, events, ended = {}, 0, False
        for line in response:
            if line.startswith(b"data: [DONE]"):
                ended = True
            elif line.startswith(b"data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    if REMOVED in event["error"]["message"]:
                        raise Refused(404, 1)  # The same as before the stream began.
                    raise RuntimeError(event["error"])
                events += 1
                for choice in event["choices"]:
                    text, finish = answers.get(choice["index"], ("", None))
                    piece = choice["delta"].get("content") or ""
                    answers[choice["index"]] = text + piece, choice["finish_reason"] or finish
                if vanish_after is not None and events >= vanish_after:
                    return None
                if pause:
                    time.sleep(pause)
        if not ended:
            raise RuntimeError(f"the stream broke off after {answers!r}")
        return [answers[index] for index in sorted(answers)]
    finally:
        connection.close()


def ask_patiently(url, question, tally, until, **how):
    """As ask(), but a refused request is sent again, as the official clients do."""
    while True:
        try:
            return ask(url, question, **how)
        except Refused as refused:
            tally.add(f"refused with {refused.status}, sent again")
            if time.monotonic() > until + ANSWER_SECONDS:
                raise RuntimeError(f"refused with {refused.status} to the very end") from refused
            time.sleep(min(refused.retry_after, 2))


def exchange(server, question, expected, tally, until, rng):
    """One request, one entry in the tally: right, wrong, lost or cancelled."""
    how = {"stream": rng.random() < 0.8}
    if how["stream"] and rng.random() < 0.12:
        how["vanish_after"] = rng.randrange(1, 8)
    elif how["stream"] and rng.random() < 0.05:
        how["pause"] = rng.uniform(0.01, 0.3)
    tally.add("sent")
    try:
        got = ask_patiently(server.url, question, tally, until, **how)
    except (OSError, RuntimeError, http.client.HTTPException, ValueError, KeyError) as error:
        tally.add("lost", f"{question} {how}: {type(error).__name__} {error}")
        return
    if got is None:
        tally.add("cancelled by the client")
    elif got == expected[question]:
        tally.add("right")
    else:
        tally.add("wrong", f"{question} {how}: {got!r} instead of {expected[question]!r}")


def client(server, number, seed, until, expected, tally):
    """One client after another request until the end."""
    rng = random.Random(f"{seed}-{number}")
    questions = list(expected)
    while time.monotonic() < until:
        exchange(server, rng.choice(questions), expected, tally, until, rng)
        if rng.random() < 0.05:
            time.sleep(rng.random())


def vanishing_connections(server, seed, until, tally):
    """Clients that send half a request, or read nothing of an answer, and go."""
    rng = random.Random(f"{seed}-halves")
    parts = urllib.parse.urlsplit(server.url)
    while time.monotonic() < until:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 400\r\n\r\n"
        with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
            connection.sendall(head[: rng.randrange(1, len(head) + 1)])
            tally.add("half requests")
        time.sleep(rng.uniform(0.2, 2))
