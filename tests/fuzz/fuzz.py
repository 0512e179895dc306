"""Requests made from the OpenAPI document, right and wrong ones, against the real program: none may
be answered with a failure of the server. HOLDFAST_FUZZ_SECONDS sets how long (60)."""

import os
import subprocess
import sys

from server import Server

SECONDS = os.environ.get("HOLDFAST_FUZZ_SECONDS", "60")
# They end the session that all requests share, or never end by themselves.
LEFT_OUT = [
    "security.login", "security.login_get", "security.login_run_as", "security.logout",
    "security.revoke", "security.config_update", "security.config_delete",
    "security.own_password", "events.stream",
]


def main():
    with Server() as server:
        token = server.login()
        status, document = server.ask("GET", "/openapi.json", token)
        assert status == 200, document
        known = {o["operationId"] for p in document["paths"].values() for o in p.values()}
        out = [a for name in LEFT_OUT if name in known for a in ("--exclude-operation-id", name)]
        ran = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", "run", server.url + "/openapi.json",
             "--header", f"Authorization: Bearer {token}",
             "--checks", "not_a_server_error", "--phases", "coverage,fuzzing",
             "--max-time", SECONDS, "--seed", os.environ.get("HOLDFAST_FUZZ_SEED", "1"),
             "--request-timeout", "20", "--warnings", "off", "--continue-on-failure",
             "--suppress-health-check", "all", *out],
            cwd=server.folder.name, check=False,
        ).returncode
        status, _ = server.ask("GET", "/healthz")
        assert status == 200, "the server does not answer any more"
        status, _ = server.ask("GET", "/agents?limit=1", token)
        assert status == 200, f"the session ended on the way ({status}): what followed was refused"
        if ran != 0:
            print(server.said()[-4000:], file=sys.stderr)
        sys.exit(ran)


main()
