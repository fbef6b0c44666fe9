"""A loopback server of objects that speaks enough of S3, GCS, the hub's API and plain HTTP, with faults on request."""

import hashlib
import io
import json
import re
import threading
import time
from collections import Counter, deque
from email.utils import formatdate
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

COMMIT = "c" * 40
CODES = {403: "AccessDenied", 429: "TooManyRequests", 500: "InternalError", 503: "SlowDown"}
SECRETS = ("AKIDSECRET", "verysecret", "X-Amz-Signature=signed", "hf_token", "me:pw")


class Endpoint(ThreadingHTTPServer):
    """Attributes: `objects` by "bucket/key"; `faults` and `upload_faults`, each used up by a request; `requests`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects, self.faults, self.requests = {}, deque(), []
        self.delay = 0.0  # seconds per request for data
        self.upload_faults, self.parts = deque(), {}  # parts by (upload, number)
        self.used = Counter()
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def log_message(self, *_):
        pass

    def handle_expect_100(self):
        super().handle_expect_100()
        self.wfile.flush()  # the client waits for a second for it
        return True

    def do_HEAD(self):
        self._serve(head=True)

    def do_GET(self):
        self._serve(head=False)

    def _asked(self):
        parts = urlsplit(self.path)
        self.server.requests.append((self.command, self.path, dict(self.headers)))
        query = parse_qs(parts.query, keep_blank_values=True)
        return unquote(parts.path), {name: values[0] for name, values in query.items()}

    def do_PUT(self):
        path, query = self._asked()
        content = self._content()
        time.sleep(self.server.delay)
        fault = self.server.upload_faults.popleft() if self.server.upload_faults else None
        if fault == "cut":
            self.close_connection = True
        elif fault in CODES:
            self._send(fault, f"<Error><Code>{CODES[fault]}</Code></Error>".encode())
        else:
            time.sleep(0.1 if fault == "slow" else 0)
            if "uploadId" in query:
                self.server.parts[query["uploadId"], int(query["partNumber"])] = content
            else:
                self.server.objects[path.lstrip("/")] = content
            self._send(200, b"", {"ETag": f'"{_tag(content)}"'})

    def _content(self):
        """The body, without the checksums between its chunks."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = io.BytesIO(_joined(self.rfile))
            self.rfile.readline()
        else:
            body = io.BytesIO(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        return _joined(body) if "aws-chunked" in self.headers.get("Content-Encoding", "") else body.read()

    def do_POST(self):
        path, query = self._asked()
        if "uploads" in query:
            upload = f"<UploadId>{len(self.server.requests)}</UploadId>"
            self._xml(f"<InitiateMultipartUploadResult>{upload}</InitiateMultipartUploadResult>")
        elif "uploadId" in query:
            numbers = [int(n) for n in re.findall(r"<PartNumber>(\d+)<", self._content().decode())]
            content = b"".join(self.server.parts[query["uploadId"], number] for number in sorted(numbers))
            self.server.objects[path.lstrip("/")] = content
            self._xml("<CompleteMultipartUploadResult></CompleteMultipartUploadResult>")
        else:
            asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            repository, _, _ = path.removeprefix("/api/datasets/").partition("/paths-info/")
            found = [self._entry(f"{repository}/{path}") for path in asked.get("paths", [])]
            self._json([entry for entry in found if entry])

    def _xml(self, answer):
        self._send(200, f"<?xml version='1.0'?>{answer}".encode(), {"Content-Type": "application/xml"})

    def _serve(self, head):
        path, query = self._asked()
        if path.startswith("/api/datasets/"):
            self._hub(path.removeprefix("/api/datasets/"), query)
        elif path.startswith("/storage/v1/b/"):
            self._gcs(path.removeprefix("/storage/v1/b/"), query)
        elif "list-type" in query:
            self._list(path.strip("/"), query)
        else:
            key = re.sub(r"^datasets/(.*)/resolve/[^/]*/", r"\1/", path.lstrip("/"))
            self._object(key, head)

    def _object(self, key, head):
        content = self.server.objects.get(key)
        if content is None:
            return self._send(404, b"<Error><Code>NoSuchKey</Code></Error>", head=head)
        headers = {"ETag": f'"{_tag(content)}"', "Accept-Ranges": "bytes"}
        headers["Last-Modified"] = formatdate(_time(content), usegmt=True)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked is None or head:
            return self._send(200, content, headers, head=head)
        start, end = int(asked[1]), min(int(asked[2] or len(content) - 1), len(content) - 1)
        if start >= len(content):
            return self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
        time.sleep(self.server.delay)
        fault = self.server.faults.popleft() if self.server.faults and end > start else None
        if fault is not None:
            self.server.used[fault] += 1
        if fault in CODES:
            return self._send(fault, f"<Error><Code>{CODES[fault]}</Code></Error>".encode())
        return self._send(206, content[start : end + 1], headers, fault=fault)

    def _list(self, bucket, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        after, limit = query.get("continuation-token", ""), min(int(query.get("max-keys", 1000)), 1000)
        keys, folders = [], set()
        for key in sorted(self._keys(bucket)):
            if key.startswith(prefix) and key > after:
                head, found, _ = key[len(prefix) :].partition(delimiter or "\0")
                folders.add(prefix + head + delimiter) if found else keys.append(key)
        more = len(keys) > limit
        keys = keys[:limit]
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.server.objects[f'{bucket}/{key}'])}</Size>"
            f"<LastModified>{_iso(self.server.objects[f'{bucket}/{key}'])}</LastModified></Contents>"
            for key in keys
        )
        found = (f"<Prefix>{escape(each)}</Prefix>" for each in sorted(folders))
        items += "".join(f"<CommonPrefixes>{prefix}</CommonPrefixes>" for prefix in found)
        items += f"<NextContinuationToken>{escape(keys[-1])}</NextContinuationToken>" if more else ""
        answer = (
            f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(keys) + len(folders)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>"
            f"{items}</ListBucketResult>"
        )
        self._xml(answer)

    def _gcs(self, path, query):
        bucket, _, key = path.partition("/o")
        if query.get("alt") == "media":
            return self._object(f"{bucket}{key}", head=False)
        if key.strip("/"):
            found = self._gcs_entry(bucket, key.strip("/"))
            return self._json(found) if found else self._json({"error": {"code": 404}}, 404)
        prefix = query.get("prefix", "")
        found = [self._gcs_entry(bucket, key) for key in self._keys(bucket) if key.startswith(prefix)]
        return self._json({"items": found})

    def _gcs_entry(self, bucket, key):
        content = self.server.objects.get(f"{bucket}/{key}")
        if content is None:
            return None
        times = dict.fromkeys(("timeCreated", "updated"), _iso(content))
        about = {"kind": "storage#object", "bucket": bucket, "name": key, "size": str(len(content))}
        return {**about, **times, "etag": _tag(content), "generation": str(int(_tag(content)[:8], 16))}

    def _hub(self, path, query):
        repository, _, rest = path.partition("/revision/")
        if rest or path.count("/") == 1:
            if not self._keys(repository):
                return self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            return self._json({"id": repository, "sha": COMMIT, "siblings": []})
        repository, _, rest = path.partition("/tree/")
        folder = rest.partition("/")[2].rstrip("/")
        found = {}
        for key in self._keys(repository):
            if not folder or key.startswith(f"{folder}/"):
                head, deeper, _ = key[len(folder) + 1 if folder else 0 :].partition("/")
                name = f"{folder}/{head}".lstrip("/")
                if deeper:
                    found[name] = {"type": "directory", "oid": "0", "size": 0, "path": name}
                if not deeper or query.get("recursive") == "True":
                    found[key] = self._entry(f"{repository}/{key}")
        return self._json(list(found.values()))

    def _entry(self, key):
        content = self.server.objects.get(key)
        path = key.split("/", 2)[2]
        if content is None:
            inside = any(each.startswith(f"{key}/") for each in self.server.objects)
            return {"type": "directory", "oid": "0", "size": 0, "path": path} if inside else None
        return {"type": "file", "oid": _tag(content), "size": len(content), "path": path}

    def _keys(self, bucket):
        return [key[len(bucket) + 1 :] for key in list(self.server.objects) if key.startswith(f"{bucket}/")]

    def _json(self, value, status=200, headers=()):
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **dict(headers)})

    def _send(self, status, content, headers=(), *, head=False, fault=None):
        self.send_response(status)
        for name, value in {**dict(headers), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if head:
            return
        if fault == "cut":
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.close_connection = True
            return
        step = max(1, len(content) // 5) if fault == "slow" else max(1, len(content))
        for start in range(0, len(content), step):
            self.wfile.write(content[start : start + step])
            self.wfile.flush()
            time.sleep(0.02 if fault == "slow" else 0)


def _joined(body):
    """The content of a body in chunks."""
    content = b""
    while length := int(body.readline().split(b";")[0], 16):
        content += body.read(length)
        body.readline()
    return content


def _time(content):
    """A time that changes with the content."""
    return int(_tag(content)[:7], 16)


def _iso(content):
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(_time(content)))


@cache
def _tag(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
