"""A bucket of an object store in this process's memory, at gs:// addresses.

Two programs reach a bucket, and both are real here: TensorStore, which Orbax writes arrays with, by
its own driver over HTTP; everything else by etils.epath, which asks fsspec for a file system.
"""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import fsspec
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

GENERATION = "1"


class BucketFileSystem(MemoryFileSystem):
    """As gcsfs: paths are BUCKET/NAME; there are no folders, only names with slashes in them."""

    protocol = ("gcs", "gs")
    store: ClassVar[dict[str, MemoryFile]] = {}
    pseudo_dirs: ClassVar[list[str]] = []

    @classmethod
    def _strip_protocol(cls, path):
        for protocol in cls.protocol:
            path = str(path).removeprefix(f"{protocol}://")
        return super()._strip_protocol(path)

    def mkdir(self, path, create_parents=True, **kwargs):
        pass

    def makedirs(self, path, exist_ok=False):
        pass

    def ls(self, path, detail=True, **kwargs):
        found = super().ls(path, detail=True, **kwargs)
        found = [entry | {"name": entry["name"].lstrip("/")} for entry in found]
        return found if detail else [entry["name"] for entry in found]


class _Server(BaseHTTPRequestHandler):
    """The requests of TensorStore's gcs driver."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urlsplit(self.path)
        bucket, _, name = url.path.removeprefix("/storage/v1/b/").partition("/o")
        if not name:
            self._list(bucket, parse_qs(url.query))
            return
        file = BucketFileSystem.store.get(f"/{bucket}/{unquote(name[1:])}")
        if file is None:
            self._answer(404)
            return
        content = file.getvalue()
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or len(content)), len(content) - 1) + 1
            where = {"Content-Range": f"bytes {begin}-{end - 1}/{len(content)}"}
            self._answer(206, content[begin:end], where)
        else:
            self._answer(200, content)

    def do_POST(self):
        url = urlsplit(self.path)
        bucket = url.path.removeprefix("/upload/storage/v1/b/").removesuffix("/o")
        query = parse_qs(url.query)
        path = f"/{bucket}/{query['name'][0]}"
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if query.get("ifGenerationMatch") == ["0"] and path in BucketFileSystem.store:
            self._answer(412)
            return
        BucketFileSystem.store[path] = MemoryFile(None, path, content)
        answer = {"name": query["name"][0], "generation": GENERATION, "size": str(len(content))}
        self._answer(200, json.dumps(answer).encode())

    def do_DELETE(self):
        bucket, _, name = urlsplit(self.path).path.removeprefix("/storage/v1/b/").partition("/o/")
        gone = BucketFileSystem.store.pop(f"/{bucket}/{unquote(name)}", None)
        self._answer(204 if gone else 404)

    def _list(self, bucket, query):
        (prefix,) = query.get("prefix", [""])
        begins = f"/{bucket}/"
        names = (p.removeprefix(begins) for p in BucketFileSystem.store if p.startswith(begins))
        items = [{"name": name, "size": "0"} for name in sorted(names) if name.startswith(prefix)]
        self._answer(200, json.dumps({"items": items}).encode())

    def _answer(self, code, content=b"", headers=None):
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("x-goog-generation", GENERATION)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


@contextmanager
def bucket(monkeypatch):
    """The address of an empty bucket."""
    BucketFileSystem.store.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for protocol in BucketFileSystem.protocol:
        fsspec.register_implementation(protocol, BucketFileSystem, clobber=True)
    monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("GOOGLE_AUTH_TOKEN_FOR_TESTING", "none")
    monkeypatch.setenv("EPATH_USE_TF", "false")
    try:
        yield "gs://bucket"
    finally:
        server.shutdown()
        server.server_close()
