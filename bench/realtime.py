#!/usr/bin/env python3
"""Realtime detection: lost names in a storm, delays, also beside floods, attribution, idle load, and the
cost for others.

Prints a table and writes results/realtime.json. A plain inotify reader watches the same storm, with
a pause of 500 ms between its reads.

usage: realtime.py [storm] [latency] [flood] [who] [idle] [overhead] [upgrade]   (none: all; QUICK=1 for a short one)
HOLDFAST_BIN names another binary than the release build. Needs root.
"""

import ctypes
import http.client
import json
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime

import commands
import upgrade

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.environ.get("HOLDFAST_BIN", os.path.join(HERE, "../target/release/holdfast"))
QUICK = os.environ.get("QUICK", "0") != "0"
ROUNDS = 1 if QUICK else 3
PATIENCE_S = 120
rows = []


def row(case, subject, metric, value, unit, n):
    rows.append({"case": case, "subject": subject, "metric": metric, "value": value, "unit": unit, "n": n})
    print(f"{case:<28} {subject:<10} {metric:<18} {value:>12.3f} {unit}", flush=True)


class Socket(http.client.HTTPConnection):
    """HTTP over the server's unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self.path)


class Up:
    """A running `holdfast up` that watches one folder."""

    def __init__(self, base):
        self.data, self.tree = os.path.join(base, "data"), os.path.join(base, "tree")
        os.makedirs(self.tree, exist_ok=True)

    def start(self, others=()):
        words = [BINARY, "up", "--data", self.data, "--watch", self.tree, "--api", "127.0.0.1:0"]
        words += ["--plain-http", "--scan-interval", "1h"]
        for path in others:
            words += ["--watch", path]
        env = dict(os.environ, HOLDFAST_ADMIN_PASSWORD="Bench-Password-1")
        log = open(os.path.join(os.path.dirname(self.data), "log"), "w")
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, env=env, text=True)
        for line in self.process.stdout:
            # The thread that checks names reads the packages first.
            if line.startswith("synchronised packages: "):
                break
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        return self

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def get(self, path):
        client = Socket(os.path.join(self.data, "holdfast.sock"))
        client.request("GET", path)
        answer = client.getresponse().read()
        client.close()
        return json.loads(answer)["data"]

    def changes(self, since=0):
        """Returns the changes that arrived after a number, the newest first."""
        items, cursor = [], ""
        while True:
            page = self.get(f"/changes?limit=1000&since={since}{cursor}")
            items += page["affected_items"]
            if not page["next_cursor"]:
                return items
            cursor = f"&cursor={page['next_cursor']}"

    def newest(self):
        return self.get("/changes?limit=1")["newest"]

    def settle(self, least=0):
        """Waits until `least` changes have arrived in all and none has for two seconds."""
        last, since = self.newest(), time.monotonic()
        began = since
        while time.monotonic() - began < PATIENCE_S:
            if last >= least and time.monotonic() - since > 2:
                return
            time.sleep(0.2)
            now = self.newest()
            if now != last:
                last, since = now, time.monotonic()


class Agent:
    """A running `holdfast agent`, enrolled with a server of its own, that watches one folder."""

    def __init__(self, base):
        self.base, self.tree = base, os.path.join(base, "tree")
        os.makedirs(self.tree, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            agents = f"127.0.0.1:{probe.getsockname()[1]}"
        off = "".join(f'{port} = "off"\n' for port in ["resp", "opentsdb", "udp", "http"])
        data = os.path.join(base, "server")
        self.server_toml, self.agent_toml = os.path.join(base, "s.toml"), os.path.join(base, "a.toml")
        with open(self.server_toml, "w") as out:
            out.write(f'data = "{data}"\n[api]\nlisten = "127.0.0.1:0"\nplain_http = true\n')
            out.write(f'[agents]\nlisten = "{agents}"\n[series]\n{off}')
        with open(self.agent_toml, "w") as out:
            out.write(f'data = "{base}/agent"\nserver = "https://{agents}"\n')
            out.write(f'[scan]\ninterval = "1h"\n[[watch]]\npath = "{self.tree}"\n')
        env = dict(os.environ, HOLDFAST_ADMIN_PASSWORD="Bench-Password-1")
        self.server = self.run(["server", "--config", self.server_toml], "ready: ", env)
        token = subprocess.check_output([BINARY, "token", "--data", data], text=True).split()[0]
        words = [BINARY, "enroll", "--config", self.agent_toml, "--name", "bench", "--token", token]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    def run(self, words, until, env=None):
        log = open(os.path.join(self.base, "log"), "a")
        process = subprocess.Popen(
            [BINARY, *words], stdout=subprocess.PIPE, stderr=log, env=env, text=True
        )
        for line in process.stdout:
            if line.startswith(until):
                break
        threading.Thread(target=process.stdout.read, daemon=True).start()
        return process

    def start(self):
        self.process = self.run(["agent", "--config", self.agent_toml], "synchronised packages: ")
        return self

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def end(self):
        self.server.terminate()
        self.server.wait()

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self, name):
        """Returns a size of `/proc/PID/status`, such as VmRSS, in MB."""
        with open(f"/proc/{self.process.pid}/status") as status:
            kib = [line for line in status if line.startswith(f"{name}:")][0].split()[1]
        return int(kib) * 1024 / 1e6


class Inotify(threading.Thread):
    """Counts the names of one directory that inotify reports; reads every 500 ms."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK)
        libc.inotify_add_watch(self.fd, folder.encode(), 0x3CE)
        self.seen, self.overflows, self.ending = {}, 0, False

    def run(self):
        while not self.ending:
            time.sleep(0.5)
            try:
                found = os.read(self.fd, 1 << 24)
            except BlockingIOError:
                continue
            at = 0
            while at < len(found):
                _, mask, _, length = struct.unpack_from("iIII", found, at)
                name = found[at + 16 : at + 16 + length].rstrip(b"\0")
                self.overflows += bool(mask & 0x4000)
                for bit in (0x100, 0x8, 0x4, 0x80, 0x200):
                    if mask & bit:
                        self.seen.setdefault(bit, set()).add(name)
                at += 16 + length


def storm(base):
    files = 1_000 if QUICK else 10_000
    lost, lost_inotify = [], []
    for number in range(ROUNDS):
        up = Up(os.path.join(base, f"storm{number}")).start()
        peer = Inotify(up.tree)
        peer.start()
        path = lambda name: os.path.join(up.tree, name)  # noqa: E731

        def create(n):
            open(path(f"a{n}"), "w").close()

        def write(n):
            with open(path(f"a{n}"), "w") as file:
                file.write(str(n))

        phases = [
            ("created", create),
            ("modified", write),
            ("modified", lambda n: os.chmod(path(f"a{n}"), 0o600)),
            ("moved", lambda n: os.rename(path(f"a{n}"), path(f"b{n}"))),
            ("deleted", lambda n: os.unlink(path(f"b{n}"))),
        ]
        missing = 0
        for kind, step in phases:
            since = up.newest()
            for n in range(files):
                step(n)
            up.settle(since + files)
            reported = {item["path"] for item in up.changes(since) if item["kind"] == kind}
            missing += files - len(reported & {path(f"{x}{n}") for n in range(files) for x in "ab"})
        time.sleep(1)
        peer.ending = True
        lost.append(missing)
        lost_inotify.append(sum(files - min(files, len(peer.seen.get(bit, ()))) for bit in (0x100, 0x8, 0x4, 0x80, 0x200)))
        up.stop()
    case = f"storm {files} files"
    row(case, "holdfast", "lost", statistics.median(lost), "names", ROUNDS)
    row(case, "inotify", "lost", statistics.median(lost_inotify), "names", ROUNDS)


def delays(up, rate, count):
    """Returns the delays from close to the server's receipt, milliseconds."""
    closed = {}
    since = up.newest()
    begin = time.monotonic()
    for n in range(count):
        wait = begin + n / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        name = os.path.join(up.tree, f"{rate}-{since}-{n}")
        with open(name, "w") as file:
            file.write("x")
        closed[name] = time.time()
    up.settle(since + count)
    found = {}
    for item in up.changes(since):
        received = datetime.fromisoformat(item["received"].replace("Z", "+00:00")).timestamp()
        found[item["path"]] = received
    missing = [name for name in closed if name not in found]
    assert not missing, f"{len(missing)} of {count} were not reported"
    return [(found[name] - at) * 1000 for name, at in closed.items()]


def latency(base):
    for rate, count in [(0.5, 10), (10, 100), (100, 1_000), (1_000, 5_000)]:
        if QUICK:
            count = max(5, count // 10)
        p50, p99 = [], []
        for number in range(ROUNDS):
            up = Up(os.path.join(base, f"latency{rate}-{number}")).start()
            up.settle()
            found = sorted(delays(up, rate, count))
            p50.append(found[len(found) // 2])
            p99.append(found[len(found) * 99 // 100])
            up.stop()
        case = "latency lone" if rate < 1 else f"latency {rate}/s"
        row(case, "holdfast", "p50_ms", statistics.median(p50), "ms", ROUNDS)
        row(case, "holdfast", "p99_ms", statistics.median(p99), "ms", ROUNDS)


NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
LARGE = "i=0; while [ $i -lt 200 ]; do i=$((i + 1)); truncate -s 1023M s$i; done; while :; do sleep 5; touch s1 s2 s3; done"
CHURN = "while :; do for i in 0 1 2 3 4 5 6 7 8 9; do echo > c$$-$i; rm c$$-$i; done; done"
SHORT = "i=0; while :; do i=$((i + 1)); (echo x > p$i); done"
UNPACK = """
import os, sys
for d in range(int(sys.argv[1]) // 100):
    os.mkdir(f"d{d}")
    for n in range(100):
        with open(f"d{d}/f{n}", "w") as file:
            file.write("x")
"""


def flood(base):
    """Delays of single changes of root beside floods, and the time until the flood itself is told."""
    unpacked = 20_000 if QUICK else 200_000
    floods = {
        "large files": [NOBODY + ["sh", "-c", LARGE]],
        "names": [NOBODY + ["sh", "-c", CHURN]] * 2,
        "short processes": [NOBODY + ["sh", "-c", SHORT]],
        f"{unpacked} files of root": [["python3", "-c", UNPACK, str(unpacked)]],
    }
    for number, (name, commands) in enumerate(floods.items()):
        folder = os.path.join(base, f"flood{number}")
        up, other = Up(folder), os.path.join(folder, "other")
        os.makedirs(other)
        theirs = os.path.join(up.tree, "theirs")
        os.makedirs(theirs)
        os.chmod(theirs, 0o777)
        for above in (base, folder, up.tree):
            os.chmod(above, 0o755)
        up.start([other])
        up.settle()
        since, by_root = up.newest(), commands[0][0] == "python3"
        running = [subprocess.Popen(words, cwd=other if by_root else theirs) for words in commands]
        closed = {}
        for n in range(40 if QUICK else 120):
            time.sleep(0.25)
            path = os.path.join(up.tree, f"own{n}")
            writer = subprocess.Popen(["sh", "-c", f"echo x > {path}"])
            writer.wait()
            closed[path] = (time.time(), writer.pid)
        for process in running:
            process.wait() if by_root else process.kill()
        ended = time.monotonic()
        case = f"beside {name}"
        delay, known = own_delays(up, since, closed)
        row(case, "holdfast", "p50_ms", delay[len(delay) // 2], "ms", 1)
        row(case, "holdfast", "p99_ms", delay[len(delay) * 99 // 100], "ms", 1)
        row(case, "holdfast", "worst_ms", delay[-1], "ms", 1)
        row(case, "holdfast", "with_writer_share", known / len(closed), "", 1)
        if name != "large files":
            up.settle()
            row(case, "holdfast", "told_after_s", max(0, time.monotonic() - ended - 2), "s", 1)
        kinds = [item["kind"] for item in up.get("/coverage?limit=500")["affected_items"]]
        missed = [kind for kind in kinds if kind not in ("baseline", "agent_down")]
        row(case, "holdfast", "gaps", len(missed), "", 1)
        up.stop()


def own_delays(up, since, closed):
    """Returns the sorted delays of these changes, and the number of those with their writer."""
    found, began = {}, time.monotonic()
    while len(found) < len(closed) and time.monotonic() - began < PATIENCE_S:
        time.sleep(1)
        for path in closed.keys() - found.keys():
            for item in up.get(f"/changes?file={path}&since={since}")["affected_items"]:
                found[path] = item
    assert len(found) == len(closed), f"{len(closed) - len(found)} changes were not reported"
    delay, known = [], 0
    for path, (at, pid) in closed.items():
        received = found[path]["received"].replace("Z", "+00:00")
        delay.append((datetime.fromisoformat(received).timestamp() - at) * 1000)
        known += (found[path].get("process") or {}).get("pid") == pid
    return sorted(delay), known


def who(base):
    """The program behind commands that a person types, one at a time and in four shells at once."""
    assert not commands.missing(), f"install {' '.join(commands.missing())}"
    few = 8 if QUICK else 1
    for case, shells, rounds in [("who alone", 1, 40 // few), ("who crowd", 4, 32 // few)]:
        up = Up(os.path.join(base, case.replace(" ", "-")))
        folders = [os.path.join(up.tree, f"shell{n}") for n in range(shells)]
        expected = {}
        for folder in folders:
            os.makedirs(folder)
            commands.prepare_folder(folder)
            for number in range(rounds):
                for place, (kind, line, program, words) in enumerate(commands.COMMANDS):
                    target = f"t{number}-{place}"
                    line = line.format(t=target)
                    commands.prepare(folder, target, line)
                    path = os.path.join(folder, commands.target_of(line, target))
                    expected[path] = (kind, program, words.format(t=target))
        up.start()
        up.settle()
        since = up.newest()
        typing = [threading.Thread(target=type_all, args=(folder, rounds, shells == 1)) for folder in folders]
        for thread in typing:
            thread.start()
        for thread in typing:
            thread.join()
        up.settle(since + len(expected))
        report_who(case, expected, up.changes(since))
        up.stop()


def type_all(folder, rounds, slowly):
    shell = commands.Shell(folder)
    for number in range(rounds):
        for place, (_, line, _, _) in enumerate(commands.COMMANDS):
            shell.run(line.format(t=f"t{number}-{place}"))
            if slowly:
                time.sleep(0.1)
    shell.end()


def report_who(case, expected, changes):
    """Counts the changes whose program and arguments are right, and names those that are not."""
    last = {}
    for item in reversed(changes):
        last[item["path"]] = item
    exact = ambiguous = wrong = absent = more = 0
    failed = {}
    for path, (kind, program, words) in expected.items():
        process = last.get(path, {}).get("process")
        verdict = verdict_of(process, program, words)
        exact += verdict == "exact"
        ambiguous += verdict == "ambiguous"
        wrong += verdict == "wrong"
        absent += verdict == "absent"
        others = {commands.name_of(one["executable"]) for one in (process or {}).get("earlier", [])}
        more += not others <= commands.EARLIER.get(kind, set())
        if verdict != "exact":
            shown = process and [process.get("executable"), process.get("command_line"), process.get("candidates")]
            failed.setdefault((kind, verdict), []).append((path, shown))
    for (kind, verdict), found in failed.items():
        print(f"# {case}: {kind}: {len(found)} {verdict}, such as {found[0]}", file=sys.stderr)
    row(case, "holdfast", "exact_share", exact / len(expected), "", len(expected))
    row(case, "holdfast", "ambiguous_share", ambiguous / len(expected), "", len(expected))
    row(case, "holdfast", "absent_share", absent / len(expected), "", len(expected))
    row(case, "holdfast", "other_beside_share", more / len(expected), "", len(expected))
    row(case, "holdfast", "wrong", wrong, "", len(expected))


def verdict_of(process, program, words):
    if process is None:
        return "absent"
    if "executable" not in process:
        candidates = [commands.name_of(one["executable"]) for one in process.get("candidates", [])]
        return "ambiguous" if program in candidates else "absent" if not candidates else "wrong"
    right = commands.name_of(process["executable"]) == program
    return "exact" if right and words in process.get("command_line", "") else "wrong"


def idle(base):
    files = 15_000 if QUICK else 150_000
    agent = Agent(os.path.join(base, "idle"))
    for n in range(files):
        if n % 100 == 0:
            folder = os.path.join(agent.tree, f"d{n // 100}")
            os.mkdir(folder)
        with open(os.path.join(folder, f"f{n}"), "w") as file:
            file.write(str(n))
    agent.start()
    time.sleep(20)
    seconds = 20 if QUICK else 60
    before = agent.cpu_s()
    time.sleep(seconds)
    used = agent.cpu_s() - before
    case = f"idle {files} files"
    row(case, "agent", "core_share", used / seconds, "", 1)
    row(case, "agent", "rss_mb", agent.memory_mb("VmRSS"), "MB", 1)
    row(case, "agent", "anonymous_mb", agent.memory_mb("RssAnon"), "MB", 1)
    agent.stop()
    agent.end()


def children_s():
    """Returns the processor time of ended child processes."""
    spent = os.times()
    return spent.children_user + spent.children_system


def measured(work, agent):
    """Runs the work. Returns its wall time, its processor time with the agent's, and the agent's."""
    before, own = children_s(), agent.cpu_s() if agent else 0
    began = time.monotonic()
    work()
    wall = time.monotonic() - began
    if agent:
        # The last notifications are read within this time.
        time.sleep(1)
        own = agent.cpu_s() - own
    return wall, children_s() - before + own, own


def with_agent(agent, work):
    agent.start()
    time.sleep(2)
    found = measured(work, agent)
    agent.stop()
    return found


def build(folder, files):
    """Compiles C files, as `make` does: a process for each, with a temporary file."""

    def work():
        script = f"for n in $(seq {files}); do cc -O1 -c f.c -o f$n.o || exit 1; done; rm -f *.o"
        subprocess.run(["sh", "-c", script], cwd=folder, check=True)

    with open(os.path.join(folder, "f.c"), "w") as out:
        out.write("#include <stdio.h>\n#include <stdlib.h>\n")
        out.write("".join(f"int f{n}(int a) {{ return printf(\"%d\", a + {n}); }}\n" for n in range(300)))
    return work


def untar(folder, files):
    """Unpacks and removes a tree of small files."""

    def work():
        subprocess.run(["tar", "xf", "tree.tar"], cwd=folder, check=True)
        subprocess.run(["rm", "-rf", "tree"], cwd=folder, check=True)

    for n in range(files):
        os.makedirs(os.path.join(folder, f"tree/d{n // 50}"), exist_ok=True)
        with open(os.path.join(folder, f"tree/d{n // 50}/f{n}"), "w") as out:
            out.write(str(n) * 100)
    subprocess.run(["tar", "cf", "tree.tar", "tree"], cwd=folder, check=True)
    subprocess.run(["rm", "-rf", "tree"], cwd=folder, check=True)
    return work


def execs(_folder, count):
    """Starts short processes, as a shell script does."""

    def work():
        subprocess.run(["sh", "-c", f"for n in $(seq {count}); do /bin/true; done"], check=True)

    return work


def overhead(base):
    """Work outside the watched paths, on the same file system: agent off and on in turns."""
    agent = Agent(os.path.join(base, "overhead"))
    outside = os.path.join(base, "outside")
    os.makedirs(outside)
    few = 5 if QUICK else 1
    cases = [("build", build, 60 // few), ("untar and rm", untar, 20_000 // few), ("execs", execs, 1_500 // few)]
    for name, make, size in cases:
        work = make(outside, size)
        work()
        walls, cpus, same, shares = [], [], [], []
        for pair in range(1 if QUICK else 6):
            # The order changes, and a second run without the agent shows what the machine itself
            # varies by.
            on = with_agent(agent, work) if pair % 2 else None
            off = measured(work, None)
            on = on or with_agent(agent, work)
            same.append(measured(work, None)[0] / off[0])
            walls.append(on[0] / off[0])
            cpus.append(on[1] / off[1])
            shares.append(on[2] / on[0])
        row(name, "agent on/off", "wall_ratio", statistics.median(walls), "", len(walls))
        row(name, "off/off", "wall_ratio", statistics.median(same), "", len(same))
        row(name, "agent on/off", "cpu_ratio", statistics.median(cpus), "", len(cpus))
        row(name, "agent", "core_share", statistics.median(shares), "", len(shares))
    agent.start()
    time.sleep(5)
    seconds, made = 10, 0
    before, began = agent.cpu_s(), time.monotonic()
    # A file that is created, closed and removed causes three notifications.
    while time.monotonic() - began < seconds:
        for n in range(67):
            name = os.path.join(outside, f"n{n}")
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
            os.unlink(name)
        made += 201
        time.sleep(max(0, began + made / 20_000 - time.monotonic()))
    rate = made / (time.monotonic() - began)
    row(f"{rate:.0f} notifications/s", "agent", "core_share", (agent.cpu_s() - before) / seconds, "", 1)
    agent.stop()
    agent.end()


def upgrading(base):
    """Which changes of a real upgrade of the system's own packages are explained, and which must not be."""
    upgrade.measure(Up(os.path.join(base, "upgrade")), os.path.join(base, "upgrade"), row, QUICK)


def machine():
    with open("/proc/loadavg") as load, open("/proc/cpuinfo") as cpu:
        model = [line.split(":")[1].strip() for line in cpu if line.startswith("model name")]
        return {
            "cpu": model[0] if model else "",
            "cores": os.cpu_count(),
            "kernel": os.uname().release,
            "load": load.read().strip(),
        }


def main():
    cases = {"storm": storm, "latency": latency, "flood": flood, "who": who, "idle": idle, "overhead": overhead, "upgrade": upgrading}
    wanted = sys.argv[1:] or list(cases)
    base = tempfile.mkdtemp()
    try:
        for name in wanted:
            cases[name](base)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if QUICK or len(wanted) < len(cases):
        return
    with open(os.path.join(HERE, "results/realtime.json"), "w") as out:
        lines = ",\n  ".join(json.dumps(one) for one in rows)
        out.write('{"machine": %s, "rows": [\n  %s\n]}\n' % (json.dumps(machine()), lines))


main()
