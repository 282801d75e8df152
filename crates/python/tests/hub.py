"""Two servers that answer as the Hugging Face Hub does: the Hub, and the storage that it redirects to."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_verySecretToken"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def blob_id(data):
    """Returns the id of a git object."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def is_large(path):
    return path.endswith((".safetensors", ".pt"))


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.server.requests.append((self.path, token, self.headers.get("Range", "")))
        self.answer(token)

    do_HEAD = do_GET

    def reply(self, status, data=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            try:
                self.wfile.write(data)
            except ConnectionError:
                pass  # The client closed the connection early.

    def part(self, data, tag):
        asked = self.headers.get("Range")
        if not asked:
            return self.reply(200, data, ETag=tag)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(data)) + 1, len(data))
        return self.reply(206, data[start:end], ETag=tag, Content_Range=f"bytes {start}-{end - 1}/{len(data)}")

    def log_message(self, *_):
        pass


class HubAnswers(Answers):
    def answer(self, token):
        server, path = self.server, unquote(urlsplit(self.path).path)
        if token not in ("", TOKEN):
            return self.reply(401)
        if server.limited:
            return self.reply(429, RateLimit='"api";r=0;t=3600')
        if "/org/tiny/" not in path or (server.private and not token):
            return self.reply(404, X_Error_Code="RepoNotFound") if token else self.reply(401)
        if "/revision/" in path:
            if path.rsplit("/", 1)[1] not in ("main", COMMIT):
                return self.reply(404, X_Error_Code="RevisionNotFound")
            siblings = [
                {"rfilename": name, "size": len(data), "blobId": blob_id(data)}
                | ({"lfs": {"sha256": sha256(data), "size": len(data)}} if is_large(name) else {})
                for name, data in server.files.items()
            ]
            info = {"id": "org/tiny", "sha": COMMIT, "siblings": siblings}
            return self.reply(200, json.dumps(info).encode())
        if server.gated:
            return self.reply(403 if token else 401, X_Error_Code="GatedRepo")
        name = path.split("/resolve/")[-1].split("/org/tiny/")[-1].removeprefix(COMMIT + "/")
        data = server.files.get(name)
        if data is None:
            return self.reply(404, X_Error_Code="EntryNotFound")
        if path.startswith("/api/resolve-cache/"):
            return self.part(data, f'"{blob_id(data)}"')
        if not is_large(name):
            to = f"/api/resolve-cache/models/org/tiny/{COMMIT}/{name}"
            return self.reply(307, Location=to, X_Repo_Commit=COMMIT)
        key = str(len(server.ranges))
        server.ranges[key] = self.headers.get("Range")
        return self.reply(
            302,
            Location=f"{server.storage.url}/{name}?Key={key}&Signature=very~Signed",
            X_Repo_Commit=COMMIT,
            X_Linked_Size=str(len(data)),
            X_Linked_ETag=f'"{sha256(data)}"',
        )


class StorageAnswers(Answers):
    def answer(self, token):
        hub, address = self.server.hub, urlsplit(self.path)
        signed = hub.ranges.get(parse_qs(address.query)["Key"][0], "none")
        # Signed for a request with a range, an address serves that range only.
        if token or signed not in (None, self.headers.get("Range")):
            return self.reply(403)
        return self.part(hub.files[unquote(address.path.lstrip("/"))], '"0123"')


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answers):
        super().__init__(("127.0.0.1", 0), answers)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests = []


class Hub(Server):
    """`files` are those of the repository `org/tiny`, by path."""

    private = gated = limited = False

    def __init__(self, files):
        super().__init__(HubAnswers)
        self.files = files
        # The range that each address of the storage was requested for.
        self.ranges = {}
        self.storage = Server(StorageAnswers)
        self.storage.hub = self


@contextmanager
def running(files):
    with Hub(files) as hub, hub.storage:
        threads = [threading.Thread(target=server.serve_forever) for server in (hub, hub.storage)]
        for thread in threads:
            thread.start()
        try:
            yield hub
        finally:
            for server in (hub, hub.storage):
                server.shutdown()
            for thread in threads:
                thread.join()
