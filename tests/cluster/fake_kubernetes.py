#!/usr/bin/env python3
"""An API server of Kubernetes as far as heddle's registry speaks to one: Leases of one namespace.

    fake_kubernetes.py --port PORT --state FILE

It keeps its state in FILE, so that it may be killed and started again. Resource versions, conflicts, bookmarks and
errors are as the real one's. `POST /fake` with JSON makes it misbehave:

    {"drop_watches": true}    ends all watches without a word
    {"forget": true}          knows no change until now: older watches get 410
    {"slow_s": 0.2}           waits before each answer
    {"swallow": 1}            carries out so many changes and then hangs up instead of answering
    {"error_event": 410}      sends an event ERROR with this code to all watches
    {"line": "..."}           sends this line to all watches
    {"token": "..."}          answers from now on only who shows this token
    {"roles": {"TOKEN": ["get", ...]}}   knows whoever shows one of these tokens, and forbids all verbs but these

Its answer tells which verbs have been asked for, by token.
"""

import argparse
import json
import os
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BOOKMARK_SECONDS = 0.3


class Store:
    def __init__(self, path):
        self.path = path
        self.condition = threading.Condition()
        self.version = 100
        self.oldest = 100  # Changes up to here are forgotten.
        self.leases = {}
        self.events = []  # (version, type, object)
        self.extra = []  # Lines for all watches.
        self.watch_generation = 0
        self.slow_s = 0.0
        self.swallow = 0
        self.token = None
        self.roles = None
        self.asked = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                kept = json.load(file)
            self.version, self.leases = kept["version"], kept["leases"]
            self.events = [tuple(each) for each in kept["events"]]
            self.oldest = kept["oldest"]

    def save(self):
        kept = {"version": self.version, "leases": self.leases, "events": self.events, "oldest": self.oldest}
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump(kept, file)
        os.rename(self.path + ".new", self.path)

    def change(self, kind, lease):
        self.version += 1
        lease = json.loads(json.dumps(lease))
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, kind, lease))
        if kind == "DELETED":
            del self.leases[lease["metadata"]["name"]]
        else:
            self.leases[lease["metadata"]["name"]] = lease
        self.save()
        self.condition.notify_all()
        return lease


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store = None

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def fail(self, code, reason, message):
        self.answer(code, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code})

    def handle_all(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/fake":
            return self.misbehave(body)
        time.sleep(self.store.slow_s)
        if self.store.token and self.headers.get("Authorization") != "Bearer " + self.store.token:
            return self.fail(401, "Unauthorized", "Unauthorized")
        parts = url.path.strip("/").split("/")
        if parts[:4] != ["apis", "coordination.k8s.io", "v1", "namespaces"] or parts[5:6] != ["leases"]:
            return self.fail(404, "NotFound", "the server could not find the requested resource")
        name = parts[6] if len(parts) > 6 else None
        verb = self.verb(name, query)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.store.asked.setdefault(token, set()).add(verb)
        if self.store.roles is not None and verb not in self.store.roles.get(token, ()):
            return self.fail(403, "Forbidden", f'leases is forbidden: User cannot {verb} resource "leases"')
        if self.command == "GET" and name is None and query.get("watch") == "1":
            return self.watch(query)
        with self.store.condition:
            status, answer = self.act(name, query, body)
            swallowed = self.command != "GET" and status < 300 and self.store.swallow > 0
            self.store.swallow -= 1 if swallowed else 0
        if swallowed:
            self.close_connection = True
            return None
        return self.answer(status, answer)

    def verb(self, name, query):
        if self.command == "GET":
            return "get" if name else "watch" if query.get("watch") == "1" else "list"
        return {"POST": "create", "PUT": "update", "DELETE": "delete"}[self.command]

    do_GET = do_POST = do_PUT = do_DELETE = handle_all

    @staticmethod
    def status(code, reason, message):
        return code, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}

    def act(self, name, query, body):
        store = self.store
        if self.command == "GET" and name is None:
            return self.list(query)
        if self.command == "POST":
            name = body["metadata"]["name"]
            if name in store.leases:
                return self.status(409, "AlreadyExists", f'leases "{name}" already exists')
            return 201, store.change("ADDED", body)
        if name not in store.leases:
            return self.status(404, "NotFound", f'leases "{name}" not found')
        present = store.leases[name]
        if self.command == "GET":
            return 200, present
        if self.command == "PUT":
            wanted = body["metadata"].get("resourceVersion")
        else:
            wanted = ((body or {}).get("preconditions") or {}).get("resourceVersion")
        if wanted is not None and wanted != present["metadata"]["resourceVersion"]:
            return self.status(409, "Conflict", "the object has been modified; please apply your changes to the latest")
        if self.command == "PUT":
            return 200, store.change("MODIFIED", body)
        store.change("DELETED", present)
        return 200, {"kind": "Status", "status": "Success"}

    def matches(self, lease, query):
        label, _, value = query.get("labelSelector", "").partition("=")
        return not label or lease["metadata"].get("labels", {}).get(label) == value

    def list(self, query):
        store = self.store
        names = sorted(each for each in store.leases if self.matches(store.leases[each], query))
        after = query.get("continue", "")
        names = [each for each in names if each > after]
        limit = int(query.get("limit", len(names) or 1))
        metadata = {"resourceVersion": str(store.version)}
        if len(names) > limit:
            metadata["continue"] = names[limit - 1]
        items = [store.leases[each] for each in names[:limit]]
        return 200, {"kind": "LeaseList", "metadata": metadata, "items": items}

    def line(self, value):
        text = value if isinstance(value, str) else json.dumps(value)
        text = (text + "\n").encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        self.wfile.flush()

    def watch(self, query):
        store = self.store
        position = int(query["resourceVersion"])
        if position < store.oldest:
            return self.fail(410, "Expired", f"too old resource version: {position} ({store.oldest})")
        generation, extra = store.watch_generation, len(store.extra)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        while generation == store.watch_generation:
            with store.condition:
                events = [each for each in store.events if each[0] > position]
                lines, extra = store.extra[extra:], len(store.extra)
                if not events and not lines and not store.condition.wait(BOOKMARK_SECONDS):
                    events = [(store.version, "BOOKMARK", {"metadata": {"resourceVersion": str(store.version)}})]
            for version, kind, lease in events:
                position = version
                if kind == "BOOKMARK" or self.matches(lease, query):
                    self.line({"type": kind, "object": lease})
            for each in lines:
                self.line(each)
        return None

    def misbehave(self, body):
        store = self.store
        with store.condition:
            store.slow_s = body.get("slow_s", store.slow_s)
            store.swallow = body.get("swallow", store.swallow)
            store.token = body.get("token", store.token)
            store.roles = body.get("roles", store.roles)
            if "error_event" in body:
                status = self.status(body["error_event"], "Expired", "the event is gone")[1]
                store.extra.append({"type": "ERROR", "object": status})
            if "line" in body:
                store.extra.append(body["line"])
            if body.get("forget"):
                store.oldest = store.version
                store.events = []
                store.save()
            if body.get("drop_watches"):
                store.watch_generation += 1
            store.condition.notify_all()
        self.answer(200, {"asked": {token: sorted(verbs) for token, verbs in store.asked.items()}})


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        pass  # Clients hang up as they like.


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state", required=True)
    options = parser.parse_args()
    Handler.store = Store(options.state)
    Server(("127.0.0.1", options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
