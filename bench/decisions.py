#!/usr/bin/env python3
"""Decisions: what a change of agents, users and groups costs over the API, in two versions of the program.

Both servers run on one machine with folders of their own. Each measurement is made on one and then on the
other, in alternating order, and each figure is the median over the rounds. Prints a table with the ratio
of the program to the version before, and writes results/decisions.json.

usage: decisions.py [agents] [groups] [users] [move] [keepalives] [sessions]   (none: all; QUICK=1 for a short one)
HOLDFAST_BIN names the program and HOLDFAST_BIN_BEFORE the version before. Without the latter both sides are the
same program, and the ratios show the noise of the machine. ROUNDS sets the number of rounds.
"""

import json
import math
import multiprocessing
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.environ.get("HOLDFAST_BIN", os.path.join(HERE, "../target/release/holdfast"))
BEFORE = os.environ.get("HOLDFAST_BIN_BEFORE", BINARY)
QUICK = os.environ.get("QUICK", "0") != "0"
ROUNDS = int(os.environ.get("ROUNDS", "1" if QUICK else "3"))
AGENTS = 2_000 if QUICK else 50_000
# Decisions of one measurement. Users are fewer: each hashes a password.
DECISIONS = {"agents": 200 if QUICK else 2_000, "groups": 200 if QUICK else 1_000, "users": 16 if QUICK else 120}
CALLERS = 8
KEEPALIVES = 1_000 if QUICK else 10_000
SENDERS = 4
SESSIONS_S = 2 if QUICK else 10
DOCUMENTS = 50
MOVES = 1 if QUICK else 3
CASES = ["agents", "groups", "users", "move", "keepalives", "sessions"]
PASSWORD = "Bench-Password-1"
fork = multiprocessing.get_context("fork")


class Client:
    """HTTP over a server's unix socket, with as little work of its own as possible."""

    def __init__(self, data):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(120)
        self.socket.connect(os.path.join(data, "holdfast.sock"))

    def send(self, method, path, body=b"", kind="application/json", more=""):
        """Sends a request. Returns the status and the body of the answer."""
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{more}"
        head += f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        self.socket.sendall(head.encode() + body)
        answer = b""
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer += self.receive()
        head = answer[:end].lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
        body = answer[end + 4 :]
        while len(body) < length:
            body += self.receive()
        return int(head.split(b" ")[1]), body

    def receive(self):
        piece = self.socket.recv(1 << 16)
        if not piece:
            raise ConnectionError("the server closed the connection")
        return piece

    def decide(self, method, path, body=None):
        """Sends a decision, which must be acknowledged in full."""
        status, answer = self.send(method, path, json.dumps(body).encode() if body is not None else b"")
        if status != 200 or json.loads(answer).get("error", 0) != 0:
            sys.exit(f"{method} {path}: {status} {answer[:300]}")
        return json.loads(answer)


class Subject:
    """A server of one version, with a folder of its own."""

    def __init__(self, name, binary, base):
        self.name, self.binary, self.names = name, binary, 0
        self.data = os.path.join(base, name, "data")
        os.makedirs(os.path.dirname(self.data))
        keys = os.path.join(base, name, "client.keys")
        with open(keys, "w") as out:
            out.writelines(f"{n:03} fleet-{n:06} any {n:064x}\n" for n in range(1, AGENTS + 1))
        config = os.path.join(base, name, "server.toml")
        with open(config, "w") as out:
            out.write(f'data = "{self.data}"\n[api]\nlisten = "127.0.0.1:0"\nplain_http = true\n')
            out.write('max_request_per_minute = 0\n[agents]\nlisten = "127.0.0.1:0"\n')
        self.words = [binary, "server", "--config", config]
        self.start()
        self.stop()
        subprocess.run([binary, "agents", "import", "--data", self.data, keys], check=True, stdout=subprocess.DEVNULL)
        self.start()
        client = Client(self.data)
        client.decide("POST", "/groups", {"group_id": "left"})
        client.decide("POST", "/groups", {"group_id": "right"})

    def start(self):
        log = open(os.path.join(os.path.dirname(self.data), "log"), "a")
        env = dict(os.environ, HOLDFAST_ADMIN_PASSWORD=PASSWORD)
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=log, env=env, text=True)
        for line in self.process.stdout:
            if line.startswith("ready: "):
                return
        sys.exit(f"{self.binary} does not start: {log.name}")

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def workers(work, arguments):
    """Runs `work` once in a process for each of the arguments, all at once. Returns their results and the
    time from their common start to the last end."""
    results, barrier = fork.Queue(), fork.Barrier(len(arguments) + 1)

    def run(argument):
        results.put(work(barrier, *argument))

    processes = [fork.Process(target=run, args=(argument,)) for argument in arguments]
    for process in processes:
        process.start()
    barrier.wait()
    began = time.perf_counter()
    found = []
    while len(found) < len(processes):
        try:
            found.append(results.get(timeout=1))
        except Exception:
            if any(process.exitcode for process in processes):
                sys.exit("a caller failed")
    took = time.perf_counter() - began
    for process in processes:
        process.join()
    return found, took


def quantile(times, p):
    times = sorted(times)
    return times[min(len(times) - 1, math.ceil(len(times) * p) - 1)]


def creator(barrier, data, what, first, count):
    """Creates `count` agents, groups or users. Returns the time of each."""
    client, times = Client(data), []
    barrier.wait()
    for n in range(first, first + count):
        name = f"{what}-{n}"
        path, body = {
            "agents": ("/agents", {"name": name}),
            "groups": ("/groups", {"group_id": name}),
            "users": ("/security/users", {"username": name, "password": PASSWORD}),
        }[what]
        began = time.perf_counter()
        client.decide("POST", path, body)
        times.append(time.perf_counter() - began)
    return "decisions", times


def mover(barrier, data, agent):
    """Moves one agent from group to group, again and again. Returns the time of each decision."""
    client, times = Client(data), []
    barrier.wait()
    now = time.perf_counter()
    end = now + SESSIONS_S
    while now < end:
        group = ["left", "right"][len(times) % 2]
        client.decide("PUT", f"/agents/{agent:03}/group/{group}?force_single_group=true")
        began, now = now, time.perf_counter()
        times.append(now - began)
    return "decisions", times


def creations(subject, what, callers):
    """Creates agents, groups or users from some callers at once."""
    each = max(1, DECISIONS[what] // callers)
    arguments = []
    first = subject.names
    for _ in range(callers):
        arguments.append((subject.data, what, subject.names, each))
        subject.names += each
    cpu = subject.cpu_s()
    found, took = workers(creator, arguments)
    times = [t for _, times in found for t in times]
    cpu = subject.cpu_s() - cpu
    if what == "groups":
        # There may be 4,096 at most.
        client, names = Client(subject.data), [f"groups-{n}" for n in range(first, subject.names)]
        for at in range(0, len(names), 50):
            client.decide("DELETE", f"/groups?groups_list={','.join(names[at : at + 50])}")
    return {
        ("rate", "1/s"): len(times) / took,
        ("p50", "ms"): quantile(times, 0.5) * 1e3,
        ("p99", "ms"): quantile(times, 0.99) * 1e3,
        ("CPU each", "ms"): cpu / len(times) * 1e3,
    }


def moves(subject):
    """Moves all agents to another group in one call."""
    client, times = Client(subject.data), []
    for _ in range(MOVES):
        for group in ["left", "right"]:
            began = time.perf_counter()
            answer = client.decide("PUT", f"/agents/group?group_id={group}&force_single_group=true")
            took = time.perf_counter() - began
            # Those that other parts created are moved too.
            times.append(took / answer["data"]["total_affected_items"] * AGENTS)
    return {("time", "ms"): statistics.median(times) * 1e3}


def beats(barrier, data, first, count):
    client = Client(data)
    barrier.wait()
    for n in range(first, first + count):
        more = f"x-wazuh-agent-id: {1 + n % AGENTS:03}\r\n"
        status, answer = client.send("POST", "/control", b'{"action":"notify"}', more=more)
        if status != 200:
            sys.exit(f"/control: {status} {answer[:300]}")
    return "beats", count


def keepalives(subject):
    """Sends a heartbeat of many agents over a few connections."""
    each = KEEPALIVES // CALLERS
    cpu = subject.cpu_s()
    _, took = workers(beats, [(subject.data, n * each, each) for n in range(CALLERS)])
    cpu = subject.cpu_s() - cpu
    return {("rate", "1/s"): each * CALLERS / took, ("CPU each", "us"): cpu / (each * CALLERS) * 1e6}


class Table:
    """A FlatBuffers table: its fields by their number in the schema."""

    def __init__(self, fields):
        self.fields = fields

    def write(self, out):
        """Appends the table and all that it refers to. Returns its offset."""
        sizes = {"u64": 8, "u8": 1, "offset": 4}
        wide = {"u64": 0, "offset": 1, "u8": 2}
        order = sorted(self.fields.items(), key=lambda field: wide[field[1][0]])
        slots, at = [0] * (max(self.fields) + 1), 4
        pad(out, 8)
        # The vtable comes first; the table begins where its 64-bit fields are aligned.
        vtable = len(out)
        out += bytes(4 + 2 * len(slots))
        while len(out) % 8 != 4:
            out.append(0)
        table = len(out)
        for number, (kind, _) in order:
            slots[number], at = at, at + sizes[kind]
        out += bytes(at)
        struct.pack_into(f"<HH{len(slots)}H", out, vtable, 4 + 2 * len(slots), at, *slots)
        struct.pack_into("<i", out, table, table - vtable)
        for number, (kind, value) in order:
            place = table + slots[number]
            if kind == "offset":
                struct.pack_into("<I", out, place, refer(out, value) - place)
            else:
                struct.pack_into("<Q" if kind == "u64" else "<B", out, place, value)
        return table


def pad(out, to):
    out += bytes(-len(out) % to)


def refer(out, value):
    """Appends a text, bytes, a list of texts or tables, or a table. Returns its offset."""
    if isinstance(value, Table):
        return value.write(out)
    pad(out, 4)
    start = len(out)
    if isinstance(value, list):
        out += struct.pack("<I", len(value)) + bytes(4 * len(value))
        for i, item in enumerate(value):
            place = start + 4 + 4 * i
            struct.pack_into("<I", out, place, refer(out, item) - place)
        return start
    content = value.encode() if isinstance(value, str) else value
    out += struct.pack("<I", len(content)) + content
    if isinstance(value, str):
        out.append(0)
    return start


FILES = "wazuh-states-fim-files"
# Sessions are encoded once and sent again with a higher version, which has as many digits.
FIRST_VERSION = 1_000_000_000


def session(agent, turn):
    """Returns a session of some documents, as docs/format/session.md describes it."""
    values, version = [], FIRST_VERSION
    for n in range(DOCUMENTS):
        name = f"f{turn * DOCUMENTS + n}"
        document = {
            "file": {"path": f"/t/{name}", "name": name, "directory": "/t", "type": "file", "mode": "0644",
                     "uid": "0", "gid": "0", "inode": "1", "device": "1", "size": version},
            "checksum": {"hash": {"sha1": f"{version:040}"}},
            "state": {"document_version": version, "modified_at": "2026-01-01T00:00:00.000000Z"},
        }
        fields = {1: ("offset", name), 2: ("offset", FILES), 3: ("u64", version)}
        values.append(Table({**fields, 4: ("offset", json.dumps(document).encode())}))
    start = {0: ("offset", "fim"), 2: ("offset", [FILES]), 11: ("offset", f"fleet-{agent:06}")}
    start.update({12: ("offset", f"{agent:03}"), 15: ("offset", "holdfast")})
    payload = {0: ("offset", Table(start)), 1: ("u8", 1), 2: ("offset", Table({0: ("offset", values)}))}
    out = bytearray(4)
    root = Table({0: ("u8", 6), 1: ("offset", Table(payload))}).write(out)
    struct.pack_into("<I", out, 0, root)
    return bytes(out)


def sender(barrier, data, agent, first):
    """Sends sessions of one agent without a pause. Returns the time of each."""
    # Encoding each session would take the time of the cores on which the server runs.
    templates = [session(agent, turn) for turn in range(40)]
    marks = [str(FIRST_VERSION).encode(), struct.pack("<Q", FIRST_VERSION)]
    client, times, more = Client(data), [], f"x-wazuh-agent-id: {agent:03}\r\n"
    barrier.wait()
    began = time.perf_counter()
    end = began + SESSIONS_S
    while began < end:
        version = FIRST_VERSION + first + len(times)
        body = templates[len(times) % len(templates)].replace(marks[0], str(version).encode())
        body = body.replace(marks[1], struct.pack("<Q", version))
        status, answer = client.send("POST", "/stateful", body, "application/octet-stream", more)
        if status != 200:
            sys.exit(f"/stateful: {status} {answer[:300]}")
        now = time.perf_counter()
        times.append(now - began)
        began = now
    return "sessions", times


def beside(subject, callers):
    """Moves agents from some callers while others send sessions."""

    def run(barrier, role, *arguments):
        return (sender if role == "sender" else mover)(barrier, *arguments)

    # Versions rise from one measurement to the next.
    arguments = [("sender", subject.data, agent, subject.names + 1) for agent in range(1, SENDERS + 1)]
    arguments += [("mover", subject.data, SENDERS + 1 + n) for n in range(callers)]
    subject.names += 1_000_000
    found, took = workers(run, arguments)
    figures = {}
    for role in ["sessions", "decisions"]:
        times = [t for kind, times in found if kind == role for t in times]
        if times:
            figures[f"{role}, rate", "1/s"] = len(times) / took
            figures[f"{role}, p50", "ms"] = quantile(times, 0.5) * 1e3
            figures[f"{role}, p99", "ms"] = quantile(times, 0.99) * 1e3
    return figures


def of(callers):
    return f"{callers} caller{'' if callers == 1 else 's'}"


def measurements(wanted):
    """Returns name and function of each measurement."""
    chosen = []
    for what in ["agents", "groups", "users"]:
        if what in wanted:
            for callers in [1, CALLERS]:
                chosen.append((f"{what}, {of(callers)}", lambda s, w=what, c=callers: creations(s, w, c)))
    if "move" in wanted:
        chosen.append((f"move {AGENTS:,} agents", moves))
    if "keepalives" in wanted:
        chosen.append(("keepalives", keepalives))
    if "sessions" in wanted:
        for callers in [0, 1, CALLERS]:
            chosen.append((f"sessions, {of(callers)}", lambda s, c=callers: beside(s, c)))
    return chosen


def main():
    wanted = sys.argv[1:] or CASES
    unknown = [word for word in wanted if word not in CASES]
    if unknown:
        sys.exit(f"no such part: {', '.join(unknown)}; parts: {', '.join(CASES)}")
    if BEFORE == BINARY:
        print("HOLDFAST_BIN_BEFORE is not set: both sides are the same program", flush=True)
    # On the disk of the tree, because a decision waits for a flush of its disk.
    os.makedirs(os.path.join(HERE, "target"), exist_ok=True)
    base = tempfile.mkdtemp(prefix="decisions-", dir=os.path.join(HERE, "target"))
    subjects = []
    found = {}
    try:
        for name, binary in [("before", BEFORE), ("now", BINARY)]:
            subjects.append(Subject(name, binary, base))
        for turn in range(ROUNDS):
            for case, measure in measurements(wanted):
                for subject in subjects if turn % 2 == 0 else subjects[::-1]:
                    for (metric, unit), value in measure(subject).items():
                        found.setdefault((case, metric, unit), {}).setdefault(subject.name, []).append(value)
    finally:
        for subject in subjects:
            subject.stop()
        shutil.rmtree(base, ignore_errors=True)
    report(found, wanted)


def report(found, wanted):
    print(f"{'case':<22} {'metric':<16} {'before':>12} {'now':>12} {'':<4} {'ratio':>6}")
    rows = []
    for (case, metric, unit), values in found.items():
        before, now = statistics.median(values["before"]), statistics.median(values["now"])
        ratio = now / before if before else math.nan
        print(f"{case:<22} {metric:<16} {before:>12.3f} {now:>12.3f} {unit:<4} {ratio:>5.2f}x")
        for subject, value in [("before", before), ("now", now)]:
            rows.append({"case": case, "subject": subject, "metric": metric, "value": round(value, 4), "unit": unit,
                         "n": len(values[subject])})
    if set(wanted) == set(CASES) and not QUICK:
        with open(os.path.join(HERE, "results/decisions.json"), "w") as out:
            out.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
