"""Gives changes of a stopped server a cause: everything below a folder belongs to an upgrade by apt.

usage: explain.py STATE_DB FOLDER
"""

import json
import sqlite3
import sys

CAUSE_STEP = 16  # docs/format/state-db.md: `kind` of a change that a package explains.

file, folder = sys.argv[1:]
with sqlite3.connect(file) as db:
    rows = db.execute(
        "SELECT number, kind, path, body FROM event WHERE substr(path, 1, ?) = ?",
        (len(folder), folder),
    ).fetchall()
    for number, kind, path, body in rows:
        package = path[len(folder) :].split("/")[0]
        event = json.loads(body)
        event["holdfast"]["cause"] = {
            "kind": "package",
            "id": "apt-1",
            "tool": "apt",
            "package": {"name": package, "version": "5.2", "previous_version": "5.1"},
            "content_matches": True,
            "writer_matches": True,
        }
        text = json.dumps(event).encode()
        db.execute(
            "UPDATE event SET kind = ?, cause_id = 'apt-1', cause_package = ?, body = ? "
            "WHERE number = ?",
            (kind + CAUSE_STEP, package, text, number),
        )
        for counted, sign, size in [(kind, -1, len(body)), (kind + CAUSE_STEP, 1, len(text))]:
            db.execute(
                "UPDATE event_kind_count SET events = events + ?, bytes = bytes + ? "
                "WHERE kind = ?",
                (sign, sign * size, counted),
            )
print(len(rows))
