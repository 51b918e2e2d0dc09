"""A hub, a web server and their faults, on loopback: what `heddle pull` is tested against.

A Hub has the repositories of Hugging Face's API: `/api/models/{repo}/revision/{rev}`, `/tree/{commit}`, and
`/{repo}/resolve/{commit}/{path}`, which redirects large files to a content network (another port). A Site has the
files of a folder. `faults` are functions from a request to True, where they have answered it; the first that does wins.
"""

import contextlib
import functools
import hashlib
import http.server
import json
import pathlib
import re
import threading
import urllib.parse

COMMIT = "c0ffee" + "0" * 34
LARGE = 4096  # Bytes from which on a file is in the content network.


@functools.lru_cache(maxsize=256)
def digest(kind, content):
    """In hexadecimal; of a large file once."""
    return hashlib.new(kind, content).hexdigest()


@functools.lru_cache(maxsize=256)
def git_id(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        site = self.server.site
        with site.lock:
            site.requests.append((self.path, dict(self.headers)))
            faults = list(site.faults)
        if not any(fault(self) for fault in faults):
            site.answer(self)

    def say(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def say_file(self, content, etag, ranges=True):
        """The range that is asked for, or all."""
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not asked or not ranges or self.headers.get("If-Range", etag) != etag:
            return self.say(200, content, ETag=etag)
        first, last = int(asked[1]), min(int(asked[2]), len(content) - 1)
        span = f"bytes {first}-{last}/{len(content)}"
        return self.say(206, content[first : last + 1], ETag=etag, Content_Range=span)


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # Hosts come with eight connections each: who finds no room tries again after a second.


class Site:
    """The files of a folder, {path: content}. Use as a context manager."""

    def __init__(self, files, address="127.0.0.1", port=0):
        self.files = dict(files)
        self.etags = {}
        self.faults = []
        self.requests = []
        self.lock = threading.Lock()
        self.http = Listener((address, port), Handler)
        self.http.site = self
        self.url = f"http://{address}:{self.http.server_port}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    def etag(self, name):
        return self.etags.get(name, f'"{digest("md5", self.files[name])}"')

    def answer(self, request):
        name = urllib.parse.unquote(request.path.split("?")[0]).lstrip("/")
        if name not in self.files:
            return request.say(404)
        return request.say_file(self.files[name], self.etag(name))

    def paths(self, part=""):
        """The paths of requests so far that have this in them."""
        with self.lock:
            return [path for path, _ in self.requests if part in path]


class Hub(Site):
    """One repository. `token`: what opens it, if anything has to."""

    def __init__(self, files, repo="acme/adder", token=None, address="127.0.0.1", port=0):
        super().__init__(files, address, port)
        self.repo = repo
        self.token = token
        self.network = Site(files, address)
        self.listing = None  # Instead of the true one.

    def __enter__(self):
        self.network.__enter__()
        return super().__enter__()

    def __exit__(self, *args):
        super().__exit__(*args)
        self.network.__exit__(*args)

    def tree(self):
        rows = []
        for name, content in self.files.items():
            row = {"type": "file", "path": name, "size": len(content), "oid": git_id(content)}
            if len(content) >= LARGE:
                row["oid"] = git_id(b"a pointer")
                row["lfs"] = {"oid": digest("sha256", content), "size": len(content), "pointerSize": 134}
            rows.append(row)
        return self.listing or rows

    def answer(self, request):
        path = urllib.parse.unquote(request.path.split("?")[0])
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return request.say(401, X_Error_Code="RepoNotFound")
        if path in (f"/api/models/{self.repo}/revision/main", f"/api/models/{self.repo}/revision/{COMMIT}"):
            return request.say(200, json.dumps({"id": self.repo, "sha": COMMIT}).encode())
        if path == f"/api/models/{self.repo}/tree/{COMMIT}":
            return request.say(200, json.dumps(self.tree()).encode())
        name = path.removeprefix(f"/{self.repo}/resolve/{COMMIT}/")
        if name == path or name not in self.files:
            return request.say(404, X_Error_Code="EntryNotFound")
        if len(self.files[name]) >= LARGE:
            where = f"{self.network.url}/{urllib.parse.quote(name)}?X-Amz-Signature=s3cret"
            return request.say(302, Location=where)
        return request.say_file(self.files[name], f'"{git_id(self.files[name])}"')


def files_of(folder):
    root = pathlib.Path(folder)
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


# --- faults ---


def times(count, fault, part=""):
    """A fault of the first `count` requests whose path has `part` in it."""
    left = [count]
    lock = threading.Lock()

    def once(request):
        with lock:
            if part not in request.path or left[0] == 0:
                return False
            left[0] -= 1
        return fault(request) is not False

    return once


def status(code, **headers):
    return lambda request: request.say(code, b"", **headers)


def redirect(target):
    return status(302, Location=target)


def cut(site, after):
    """Says a part of a file and hangs up."""

    def fault(request):
        content = site.files[urllib.parse.unquote(request.path.split("?")[0]).lstrip("/")]
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content[:after])
        request.wfile.flush()
        request.close_connection = True

    return fault


def without_ranges(site):
    """Answers with the whole file, whatever range was asked for."""

    def fault(request):
        name = urllib.parse.unquote(request.path.split("?")[0]).lstrip("/")
        if name not in site.files:
            return False
        request.say_file(site.files[name], site.etag(name), ranges=False)
        return True

    return fault


def hold(event, seen, part):
    """Answers once `event` is set; sets `seen` when such a request has come."""

    def fault(request):
        if part in request.path:
            seen.set()
            event.wait(30)
        return False

    return fault
