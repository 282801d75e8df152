"""A server of the files in the current folder, with range requests, that can be made to fail."""

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Ranges(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        server.requests += 1
        if server.hangs:
            server.hanging.set()
            server.ended.wait()
            return None
        if server.status:
            return self.send_error(server.status)
        try:
            data = Path(self.path.lstrip("/")).read_bytes()
        except OSError:
            return self.send_error(404)
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end = 0, len(data)
        if found:
            start, end = int(found[1]), min(int(found[2] or end) + 1, end)
        self.send_response(206 if found else 200)
        if found:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", server.tag)
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        try:
            self.wfile.write(data[start:end])
        except ConnectionError:
            return None  # The client closed the connection early.
        server.sent += end - start
        return None

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    """`status` is the status of all responses, or None; with `hangs`, there are none."""

    daemon_threads = True
    status = None
    hangs = False
    tag = '"1"'
    requests = 0
    sent = 0

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Ranges)
        self.hanging, self.ended = threading.Event(), threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"


@contextmanager
def running():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()
