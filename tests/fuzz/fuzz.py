"""Sends valid and invalid requests generated from the OpenAPI document to the real program. No
answer may be a server error. There are runs as an administrator, as a user who may only read, and for the
operations that end sessions; then invalid bodies are sent to every operation that takes a body.
HOLDFAST_FUZZ_SECONDS sets the duration (default 60); the later runs take a quarter of it."""

import json
import os
import subprocess
import sys

from server import PASSWORD, Server

SECONDS = int(os.environ.get("HOLDFAST_FUZZ_SECONDS", "60"))
# These end the session of the caller, so they have a run of their own.
ENDING = [
    "security.login", "security.login_get", "security.login_run_as", "security.logout",
    "security.revoke", "security.config_update", "security.config_delete", "security.own_password",
]
# This answer does not end by itself.
ENDLESS = ["events.stream"]
ADMINISTRATOR = ("admin", PASSWORD)
READER = ("watcher", "Watching-1")
# Bodies that are invalid for every operation, as raw bytes.
HOSTILE = [
    b"", b"null", b"[]", b"{", b"\xff\xfe\x00", b"1e999", b'"\\ud800"', b"[" * 100_000,
    b'{"a":' * 50_000, b'{"name":"a","name":"b"}', b'{"' + b"k" * 1_000_000 + b'":1}',
    b'{"username":"\\u0000","password":{"a":[1]}}', b" " * 2_000_000, b"<a>" * 50_000,
    b"a = [" * 20_000, b"%YAML 1.1\n&a [*a]", b"-" * 11_000_000,
]
KINDS = ["application/json", "application/octet-stream", "application/xml", "text/x", ""]


def run(server, seconds, document, options, name, password):
    """Runs schemathesis once with the server's description, as a user whose session is started
    again whenever it ended. Returns the exit code."""
    file = os.path.join(server.folder.name, "openapi.json")
    with open(file, "w", encoding="utf-8") as out:
        json.dump(document, out)
    env = {
        "SCHEMATHESIS_HOOKS": "relogin", "HOLDFAST_URL": server.url,
        "HOLDFAST_LOGIN": f"{name}:{password}",
        "PYTHONPATH": os.path.dirname(os.path.abspath(__file__)),
    }
    return subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", file, "--url", server.url,
         "--checks", "not_a_server_error", "--phases", "coverage,fuzzing",
         "--max-time", str(seconds), "--seed", os.environ.get("HOLDFAST_FUZZ_SEED", "1"),
         "--request-timeout", "300", "--warnings", "off", "--continue-on-failure",
         "--suppress-health-check", "all", *options],
        cwd=server.folder.name, check=False, env={**os.environ, **env},
    ).returncode


def named(option, operations):
    return [word for name in operations for word in (option, name)]


def as_user(server, seconds, document, name, password):
    """Runs all operations as a user, except those named for ending sessions. Changes of the user's
    permissions end sessions too."""
    left_out = named("--exclude-operation-id", ENDING + ENDLESS)
    return run(server, seconds, document, left_out, name, password)


def hostile(server, document):
    """Sends every invalid body to every operation that takes one. Returns how many were sent."""
    token, sent = server.login(), 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if "requestBody" not in operation:
                continue
            described = list(operation["requestBody"]["content"])
            where = path.replace("{agent_id}", "001").replace("{group_id}", "default")
            for name in ("user_id", "role_id", "rule_id", "policy_id", "node_id", "name"):
                where = where.replace("{" + name + "}", "100")
            for body in HOSTILE:
                for kind in {*described, KINDS[sent % len(KINDS)]}:
                    status, answer = server.ask_raw(method.upper(), where, token, body, kind)
                    assert status < 500, (method, where, kind, body[:40], status, answer)
                    sent += 1
                    if status == 401:
                        token = server.login()
    return sent


def main():
    with Server() as server:
        token = server.login()
        status, document = server.ask("GET", "/openapi.json", token)
        assert status == 200, document
        known = {o["operationId"] for p in document["paths"].values() for o in p.values()}
        assert known.issuperset(ENDING + ENDLESS), set(ENDING + ENDLESS) - known
        ran = as_user(server, SECONDS, document, *ADMINISTRATOR)
        # The user is created here, because the administrator's requests above remove users.
        reader = server.reader(server.login(), *READER)
        ran = as_user(server, SECONDS // 4, document, *READER) or ran
        ends = named("--include-operation-id", ENDING)
        ran = run(server, SECONDS // 4, document, ends, *ADMINISTRATOR) or ran
        assert server.ask("GET", "/healthz")[0] == 200, "the server does not answer any more"
        if ran != 0:
            print(server.said()[-4000:], file=sys.stderr)
    # Use a new server, because the first one may have blocked logins by now.
    with Server() as server:
        sent = hostile(server, document)
        assert server.ask("GET", "/healthz")[0] == 200, "the server does not answer any more"
    print(f"fuzz: {len(known)} operations, {sent} hostile bodies, and a reader ({reader})")
    sys.exit(ran)


main()
