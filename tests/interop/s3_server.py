"""A server with the part of the S3 protocol that boto3 and `statelens` use, on loopback, with its objects in memory.

    with S3Server("bucket") as server:
        server.put("key", b"body", {"metadata": "text"})
        os.environ.update(server.environment())

Addresses have the bucket in their path. Signatures are not checked. `server.requests` lists the method and the key of each
request, with the names of the query's fields: `("GET", "a/b", {"prefix"})`.
"""

import hashlib
import http.server
import re
import threading
import urllib.parse
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, unescape

XML = '<?xml version="1.0" encoding="UTF-8"?>\n<{0} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{1}</{0}>'
USER = "x-amz-meta-"
DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


@dataclass
class Stored:
    body: bytes
    metadata: dict = field(default_factory=dict)

    @property
    def etag(self):
        return f'"{hashlib.md5(self.body).hexdigest()}"'


class S3Server:
    def __init__(self, bucket):
        self.bucket, self.objects, self.uploads, self.requests = bucket, {}, {}, []
        self.lock = threading.Lock()
        handler = type("BoundHandler", (Handler,), {"store": self})
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    def put(self, key, body, metadata=None):
        with self.lock:
            self.objects[key] = Stored(body, dict(metadata or {}))

    def below(self, prefix):
        with self.lock:
            return {key: stored for key, stored in self.objects.items() if key.startswith(prefix)}

    def environment(self):
        """Returns the variables that boto3 and `statelens` read."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.http.server_port}",
            "AWS_ACCESS_KEY_ID": "user",
            "AWS_SECRET_ACCESS_KEY": "password",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }


class Refused(Exception):
    """An error of the protocol: the status and the code."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store = None

    def log_message(self, *_):
        pass

    def answer(self):
        path, _, query = self.path.partition("?")
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        # Only the slash after the bucket is not part of the key.
        bucket, _, key = path[1:].partition("/")
        self.key = urllib.parse.unquote(key)
        self.payload = self.read_payload()
        with self.store.lock:
            self.store.requests.append((self.command, self.key, set(self.query)))
        try:
            if urllib.parse.unquote(bucket) != self.store.bucket:
                raise Refused(404, "NoSuchBucket")
            # A key can be empty only together with its slash.
            kind = "object" if self.key else "bucket"
            getattr(self, f"{kind}_{self.command.lower()}")()
        except Refused as refused:
            status, code = refused.args
            self.reply(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    def read_payload(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if "aws-chunked" not in self.headers.get("content-encoding", ""):
            return body
        # Chunks of `SIZE[;SIGNATURE]`, and trailers after the last one.
        parts, at = [], 0
        while True:
            end = body.index(b"\r\n", at)
            size = int(body[at:end].partition(b";")[0], 16)
            if size == 0:
                return b"".join(parts)
            parts.append(body[end + 2 : end + 2 + size])
            at = end + 4 + size

    def reply(self, status, body=b"", headers=(), length=None):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body)

    def xml(self, name, content):
        self.reply(200, XML.format(name, content).encode(), [("Content-Type", "application/xml")])

    def bucket_head(self):
        self.reply(200)

    def bucket_get(self):
        prefix = self.query.get("prefix", "")
        encode = urllib.parse.quote if self.query.get("encoding-type") == "url" else escape
        entries = [
            f"<Contents><Key>{encode(key)}</Key><Size>{len(stored.body)}</Size><ETag>{escape(stored.etag)}</ETag>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><StorageClass>STANDARD</StorageClass></Contents>"
            for key, stored in sorted(self.store.below(prefix).items())
        ]
        head = f"<Name>{self.store.bucket}</Name><Prefix>{encode(prefix)}</Prefix><IsTruncated>false</IsTruncated>"
        if "encoding-type" in self.query:
            head += "<EncodingType>url</EncodingType>"
        self.xml("ListBucketResult", f"{head}<KeyCount>{len(entries)}</KeyCount>{''.join(entries)}")

    def bucket_post(self):
        if "delete" not in self.query:
            raise Refused(501, "NotImplemented")
        keys = [unescape(key) for key in re.findall("<Key>(.*?)</Key>", self.payload.decode(), re.DOTALL)]
        with self.store.lock:
            for key in keys:
                self.store.objects.pop(key, None)
        self.xml("DeleteResult", "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys))

    def stored(self):
        with self.store.lock:
            stored = self.store.objects.get(self.key)
        if stored is None:
            raise Refused(404, "NoSuchKey")
        return stored

    def object_head(self):
        self.object_get()

    def object_get(self):
        stored = self.stored()
        headers = [("ETag", stored.etag), ("Last-Modified", DATE), ("Accept-Ranges", "bytes")]
        headers += [(USER + name, value) for name, value in stored.metadata.items()]
        status, body = 200, stored.body
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
        if asked and self.command == "GET":
            first, last = int(asked[1]), min(int(asked[2] or len(body)), len(body) - 1)
            if first > last:
                raise Refused(416, "InvalidRange")
            headers.append(("Content-Range", f"bytes {first}-{last}/{len(body)}"))
            status, body = 206, body[first : last + 1]
        self.reply(status, body, headers, len(body))

    def metadata(self):
        names = [name for name in self.headers if name.lower().startswith(USER)]
        return {name.lower().removeprefix(USER): self.headers[name] for name in names}

    def object_put(self):
        if "uploadId" in self.query:
            self.upload()[int(self.query["partNumber"])] = self.payload
            return self.reply(200, headers=[("ETag", Stored(self.payload).etag)])
        if self.headers.get("if-none-match") == "*" and self.store.below(self.key).get(self.key):
            raise Refused(412, "PreconditionFailed")
        self.store.put(self.key, self.payload, self.metadata())
        return self.reply(200, headers=[("ETag", Stored(self.payload).etag)])

    def upload(self):
        with self.store.lock:
            upload = self.store.uploads.get(self.query["uploadId"])
        if upload is None:
            raise Refused(404, "NoSuchUpload")
        return upload[1]

    def object_post(self):
        if "uploads" in self.query:
            with self.store.lock:
                name = f"upload-{len(self.store.uploads)}"
                self.store.uploads[name] = (self.metadata(), {})
            content = f"<Bucket>{self.store.bucket}</Bucket><Key>{escape(self.key)}</Key><UploadId>{name}</UploadId>"
            return self.xml("InitiateMultipartUploadResult", content)
        parts = self.upload()
        numbers = [int(number) for number in re.findall(r"<PartNumber>(\d+)</PartNumber>", self.payload.decode())]
        if not numbers or any(number not in parts for number in numbers):
            raise Refused(400, "InvalidPart")
        if any(len(parts[number]) < 5 << 20 for number in numbers[:-1]):
            raise Refused(400, "EntityTooSmall")
        metadata, _ = self.store.uploads[self.query["uploadId"]]
        self.store.put(self.key, b"".join(parts[number] for number in numbers), metadata)
        content = f"<Bucket>{self.store.bucket}</Bucket><Key>{escape(self.key)}</Key><ETag>{self.stored().etag}</ETag>"
        return self.xml("CompleteMultipartUploadResult", content)

    def object_delete(self):
        if "uploadId" not in self.query:
            with self.store.lock:
                self.store.objects.pop(self.key, None)
        self.reply(204)
