"""The real program on a folder of its own, for tests that speak HTTP."""

import base64
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("HOLDFAST_BIN", str(ROOT / "target/debug/holdfast"))
PASSWORD = "Correct-Horse-4"
READY_SECONDS = 60


class Server:
    """`holdfast up` with plain HTTP on a free port of this machine."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="holdfast-fuzz-")
        home = Path(self.folder.name)
        (home / "tree").mkdir()
        (home / "tree" / "a.txt").write_text("a\n")
        self.log = open(home / "log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [BINARY, "up", "--data", str(home / "data"), "--watch", str(home / "tree"),
             "--api", "127.0.0.1:0", "--scan-interval", "1h", "--plain-http",
             *(word for port in ("resp", "udp", "opentsdb", "http") for word in (f"--{port}", "off"))],
            env={**os.environ, "HOLDFAST_ADMIN_PASSWORD": PASSWORD},
            stdout=subprocess.PIPE, stderr=self.log, text=True,
        )
        late = threading.Timer(READY_SECONDS, self.process.kill)
        late.start()
        for line in self.process.stdout:
            found = re.match(r"ready: (\S+)", line)
            if found:
                late.cancel()
                self.url = found[1].rstrip("/")
                # What it says later is read, so that it never waits for a reader.
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return self
        late.cancel()
        raise RuntimeError(f"holdfast up ended before it was ready:\n{self.said()}")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.folder.cleanup()

    def said(self):
        """What it wrote to its log."""
        self.log.flush()
        return Path(self.log.name).read_text(encoding="utf-8", errors="replace")

    def ask(self, method, path, token=None, body=None, headers=None):
        """Status and JSON (or text) of one request."""
        fields = dict(headers or {})
        if token:
            fields["Authorization"] = f"Bearer {token}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            fields.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(self.url + path, data, fields, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            status, text = refused.code, refused.read().decode()
        try:
            return status, json.loads(text)
        except json.JSONDecodeError:
            return status, text

    def login(self, name="admin", password=PASSWORD):
        """A token, as the documentation says."""
        basic = base64.b64encode(f"{name}:{password}".encode()).decode()
        status, token = self.ask(
            "POST", "/security/user/authenticate?raw=true",
            headers={"Authorization": f"Basic {basic}"},
        )
        assert status == 200, (status, token)
        return token
