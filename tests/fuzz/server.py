"""The real program on a folder of its own, for tests that speak HTTP."""

import base64
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("HOLDFAST_BIN", str(ROOT / "target/debug/holdfast"))
PASSWORD = "Correct-Horse-4"
# Time limit for anything that must happen, on a busy machine.
PATIENCE_SECONDS = 300


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
        late = threading.Timer(PATIENCE_SECONDS, self.process.kill)
        late.start()
        for line in self.process.stdout:
            found = re.match(r"ready: (\S+)", line)
            if found:
                late.cancel()
                self.url = found[1].rstrip("/")
                # Read its further output, so that it never blocks on a full pipe.
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return self
        late.cancel()
        raise RuntimeError(f"holdfast up ended before it was ready:\n{self.said()}")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.folder.cleanup()

    def said(self):
        """Returns the text of its log."""
        self.log.flush()
        return Path(self.log.name).read_text(encoding="utf-8", errors="replace")

    def ask(self, method, path, token=None, body=None, headers=None):
        """Sends one request. Returns the status and the JSON (or text) of the answer."""
        fields = dict(headers or {})
        if token:
            fields["Authorization"] = f"Bearer {token}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            fields.setdefault("Content-Type", "application/json")
        return self.send(method, path, data, fields)

    def ask_raw(self, method, path, token, data, content_type):
        """Does the same with a body of raw bytes."""
        fields = {"Authorization": f"Bearer {token}", "Content-Type": content_type}
        return self.send(method, path, data, fields)

    def send(self, method, path, data, fields):
        request = urllib.request.Request(self.url + path, data, fields, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            status, text = refused.code, refused.read().decode()
        except (urllib.error.URLError, ConnectionError) as broken:
            # The server may close the connection before the answer to a refused body is read.
            return 0, str(broken)
        try:
            return status, json.loads(text)
        except json.JSONDecodeError:
            return status, text

    def reader(self, token, name, password):
        """Creates a user who may only read. Returns the user's number."""
        asked = [
            ("POST", "/security/users", {"username": name, "password": password}),
            ("GET", "/security/roles?search=readonly&select=id,name&sort=id", None),
            ("GET", f"/security/users?q=username={name}", None),
        ]
        answers = [self.ask(method, path, token, body) for method, path, body in asked]
        assert all(status == 200 for status, _ in answers), answers
        roles, users = (answer["data"]["affected_items"] for _, answer in answers[1:])
        role = next(role["id"] for role in roles if role["name"] == "readonly")
        path = f"/security/users/{users[0]['id']}/roles?role_ids={role}"
        status, answer = self.ask("POST", path, token)
        assert status == 200, answer
        return users[0]["id"]

    def until_active(self):
        """Waits until the local agent is active, which it is after its first keepalive."""
        token, end = self.login(), time.monotonic() + PATIENCE_SECONDS
        while self.ask("GET", "/agents?status=active&q=id%3E0", token)[1]["data"]["total_affected_items"] != 1:
            assert time.monotonic() < end, "the local agent does not become active"
            time.sleep(0.5)

    def until_scanned(self):
        """Waits until the local agent's first scan is stored, which may be after its keepalive."""
        token, end = self.login(), time.monotonic() + PATIENCE_SECONDS
        while self.ask("GET", "/syscheck/001", token)[1]["data"]["total_affected_items"] == 0:
            assert time.monotonic() < end, "the first scan of the local agent is not stored"
            time.sleep(0.5)

    def login(self, name="admin", password=PASSWORD):
        """Logs in as documented. Returns the token."""
        basic = base64.b64encode(f"{name}:{password}".encode()).decode()
        status, token = self.ask(
            "POST", "/security/user/authenticate?raw=true",
            headers={"Authorization": f"Basic {basic}"},
        )
        assert status == 200, (status, token)
        return token
