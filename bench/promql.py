#!/usr/bin/env python3
"""PromQL: the server's CPU per answer, next to VictoriaMetrics and Prometheus.

Sends the same 24 million points (12,000 series) by remote write to each server, then asks each the
same questions, interleaved, and checks that the answers are those of Prometheus. Prints a table and
writes results/promql.json.

usage: promql.py [WORD...]   (questions whose names contain a word; QUICK=1 for fewer points)
HOLDFAST_BIN, VICTORIAMETRICS_BIN and PROMETHEUS_BIN name the programs. A missing peer is left out.
"""

import http.client
import json
import math
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from array import array

HERE = os.path.dirname(os.path.abspath(__file__))
QUICK = os.environ.get("QUICK", "0") != "0"
ROUNDS = 1 if QUICK else 5
STEP_S = 15
POINTS = 400 if QUICK else 2000
INSTANCES = 100 if QUICK else 1000
CORES = 10
# Points of one series in one request: peers take them in the order of time.
SLICE = 100
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
rows = []


def row(case, subject, metric, value, unit, n):
    value = round(value, 4)
    rows.append({"case": case, "subject": subject, "metric": metric, "value": value, "unit": unit, "n": n})


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def field(number, body):
    return varint(number << 3 | 2) + varint(len(body)) + body


def snappy(body):
    """Returns a snappy block that consists of literals."""
    parts = [varint(len(body))]
    for begin in range(0, len(body), 65536):
        piece = body[begin : begin + 65536]
        parts += [b"\xf4", (len(piece) - 1).to_bytes(2, "little"), piece]
    return b"".join(parts)


class Series:
    def __init__(self, name, **labels):
        pairs = sorted({"__name__": name, **labels}.items())
        texts = [field(1, field(1, k.encode()) + field(2, v.encode())) for k, v in pairs]
        self.labels = b"".join(texts)
        self.value = float(random.randrange(1_000_000))
        self.pace = random.randrange(1, 400)

    def values(self, count):
        """Returns the next values of a counter."""
        out = array("d")
        for increment in random.choices(range(self.pace * 2), k=count):
            self.value += increment
            out.append(self.value)
        return out.tobytes()


def data():
    """Returns the series of the questions."""
    all = []
    for i in range(INSTANCES):
        labels = {"instance": f"host-{i:04}", "job": f"job-{i % 10}", "zone": f"zone-{i % 3}"}
        all += [Series("m", core=str(core), **labels) for core in range(CORES)]
        all.append(Series("limits_total", version=f"v{i % 7}", instance=labels["instance"]))
        if i % 10 == 0:
            bounds = ["0.005", "0.01", "0.05", "0.1", "0.5", "1", "5", "10", "60", "+Inf"]
            all += [Series("b_bucket", le=le, **labels) for le in bounds]
            for at, series in enumerate(all[-len(bounds) :]):
                series.value, series.pace = 1000.0 * at, 50 * (at + 1)
    return all


def requests(all, end_ms):
    """Returns the bodies of the remote-write requests."""
    begin_ms = end_ms - POINTS * STEP_S * 1000
    for first in range(1, POINTS + 1, SLICE):
        times = [begin_ms + (first + at) * STEP_S * 1000 for at in range(SLICE)]
        # One sample after another: value, then time, at fixed places.
        samples = bytearray()
        for time_ms in times:
            body = b"\x09" + bytes(8) + b"\x10" + varint(time_ms)
            samples += field(2, body)
        width = len(samples) // SLICE
        for some in range(0, len(all), 200):
            body = []
            for series in all[some : some + 200]:
                values = series.values(SLICE)
                for byte in range(8):
                    samples[3 + byte :: width] = values[byte::8]
                body.append(field(1, series.labels + samples))
            yield snappy(b"".join(body))


class Subject:
    """A running server, with its port and process."""

    def __init__(self, name, folder, words):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.name, self.folder = name, folder
        self.words = [word.format(folder=folder, port=self.port) for word in words]
        os.makedirs(folder, exist_ok=True)
        self.start()

    def start(self):
        log = open(os.path.join(self.folder, "..", f"{self.name}.log"), "a")
        words = ["setpriv", "--pdeathsig", "KILL", *self.words]
        self.process = subprocess.Popen(words, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while True:
            try:
                self.http = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
                self.ask({"query": "1"})
                return
            except (OSError, ValueError):
                if time.monotonic() > deadline or self.process.poll() is not None:
                    sys.exit(f"{self.name} does not start: see {log.name}")
                time.sleep(0.1)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def send(self, body):
        head = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        self.http.request("POST", "/api/v1/write", body, head)
        answer = self.http.getresponse()
        text = answer.read()
        if answer.status // 100 != 2:
            sys.exit(f"{self.name} refused a write: {answer.status} {text[:300]}")

    def ask(self, form):
        path = "/api/v1/query_range" if "step" in form else "/api/v1/query"
        if form.get("match[]"):
            path = "/api/v1/series"
        form = {**form, "nocache": "1"} if self.name == "victoriametrics" else form
        self.http.request("GET", f"{path}?{urllib.parse.urlencode(form)}")
        answer = self.http.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise ValueError(f"{self.name}: {answer.status} {text[:300]} for {form}")
        return text

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def resident(self, name):
        """Returns a figure of memory of the process, MB."""
        with open(f"/proc/{self.process.pid}/status") as status:
            line = next(line for line in status if line.startswith(name))
        return int(line.split()[1]) / 1000

    def forget_peak(self):
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as refs:
            refs.write("5")


def subjects(base):
    ours = os.environ.get("HOLDFAST_BIN", os.path.join(HERE, "../target/release/holdfast"))
    off = [f"--{port}=off" for port in ["resp", "opentsdb", "udp"]]
    words = [ours, "series", "serve", "--data", "{folder}", "--http", "127.0.0.1:{port}", *off]
    found = [Subject("holdfast", os.path.join(base, "holdfast"), words)]
    peers = {
        "victoriametrics": [
            "-storageDataPath={folder}", "-httpListenAddr=127.0.0.1:{port}", "-retentionPeriod=100y",
            "-search.latencyOffset=0s", "-selfScrapeInterval=0s", "-loggerLevel=ERROR",
            "-search.maxUniqueTimeseries=1000000", "-search.maxSeries=1000000",
        ],
        "prometheus": [
            "--config.file={folder}/../prometheus.yml", "--storage.tsdb.path={folder}/data",
            "--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver",
            "--storage.tsdb.retention.time=100y", "--log.level=error",
        ],
    }
    with open(os.path.join(base, "prometheus.yml"), "w") as config:
        config.write("global: {}\n")
    for name, words in peers.items():
        program = os.environ.get(f"{name.upper()}_BIN")
        if program:
            found.append(Subject(name, os.path.join(base, name), [program, *words]))
        else:
            print(f"{name}: {name.upper()}_BIN is not set; compared without it", file=sys.stderr)
    return found


def questions(end_s):
    """Returns name and form of each question."""
    hour = {"start": end_s - 3600, "end": end_s, "step": STEP_S}
    whole = f"[{POINTS * STEP_S}s]"
    few = 'zone="zone-0",core="0"'
    return {
        "raw: one series": {"query": f'm{{instance="host-0007",core="0"}}{whole}', "time": end_s},
        "max over the whole time": {"query": f'max_over_time(m{{core="1"}}{whole})', "time": end_s},
        "mean by minute": {"query": f"avg_over_time(m{{{few}}}[1m])", **hour, "step": 60},
        "names": {"match[]": "m", "start": end_s - 3600, "end": end_s},
        "last of 1/10": {"query": f'last_over_time(m{{core="3"}}{whole})', "time": end_s},
        "last of all": {"query": "m", "time": end_s},
        "top 5 of sums": {"query": f'topk(5, sum_over_time(m{{core="5"}}{whole}))', "time": end_s},
        "max by hour and tag": {
            "query": "max by (zone) (max_over_time(m[1h]))",
            "start": end_s - POINTS * STEP_S + 3600, "end": end_s, "step": 3600,
        },
        "rate of few": {"query": f"rate(m{{{few}}}[1m])", **hour, "start": end_s - 300, "step": 10},
        "sum of rates by job": {"query": "sum by (job) (rate(m[5m]))", **hour},
        "quantile of a histogram": {
            "query": "histogram_quantile(0.9, sum by (le) (rate(b_bucket[5m])))", **hour,
        },
        "ratio with group_left": {
            "query": 'rate(m{core="0"}[5m]) / on (instance) group_left (version) rate(limits_total[5m])',
            **hour,
        },
        "all series": {"query": "m", **hour},
    }


def shown(text):
    """Returns an answer as a map from labels to values, to compare it."""
    data = json.loads(text)["data"]
    if isinstance(data, list):
        return {json.dumps(labels, sort_keys=True): [] for labels in data}
    found = {}
    for series in data["result"]:
        values = series.get("values") or [series["value"]]
        found[json.dumps(series["metric"], sort_keys=True)] = [(t, float(v)) for t, v in values]
    return found


def is_equal(a, b):
    if a.keys() != b.keys():
        return False
    for labels, values in a.items():
        others = b[labels]
        if len(values) != len(others):
            return False
        for (at, value), (time_s, other) in zip(values, others):
            if at != time_s or not math.isclose(value, other, rel_tol=1e-9):
                return False
    return True


def measure(all, name, form):
    """Prints CPU and time per answer of each subject, medians of rounds."""
    cpu = {subject.name: [] for subject in all}
    wall = {subject.name: [] for subject in all}
    answers = {subject.name: shown(subject.ask(form)) for subject in all}
    for _ in range(ROUNDS):
        for subject in all:
            before, began, count = subject.cpu(), time.monotonic(), 0
            while count < 3 or time.monotonic() - began < 1:
                subject.ask(form)
                count += 1
            wall[subject.name].append((time.monotonic() - began) / count * 1000)
            cpu[subject.name].append((subject.cpu() - before) / count * 1000)
    best = min((statistics.median(cpu[s.name]) for s in all[1:]), default=math.nan)
    line = f"{name:<28}"
    for subject in all:
        ms = statistics.median(cpu[subject.name])
        row(name, subject.name, "cpu_ms", ms, "ms", ROUNDS)
        row(name, subject.name, "wall_ms", statistics.median(wall[subject.name]), "ms", ROUNDS)
        line += f" {ms:>9.2f}"
    ratio = statistics.median(cpu[all[0].name]) / best if best else math.nan
    # Rates of VictoriaMetrics are other numbers by design, so only Prometheus' answers are compared.
    references = [answers[s.name] for s in all[1:] if s.name == "prometheus"]
    differs = any(not is_equal(answers[all[0].name], reference) for reference in references)
    print(f"{line}   {ratio:>5.2f}" + ("   differs from prometheus" if differs else ""), flush=True)


def measure_memory(all, form):
    for subject in all:
        # What earlier answers took is not given back to the system.
        subject.stop()
        subject.start()
        idle = subject.resident("VmRSS")
        subject.forget_peak()
        subject.ask(form)
        peak = subject.resident("VmHWM") - idle
        row("all series", subject.name, "memory_above_idle", peak, "MB", 1)
        print(f"memory above idle of the largest answer: {subject.name} {peak:.0f} MB", flush=True)


def main():
    base = tempfile.mkdtemp(prefix="bench-promql-")
    end_s = int(time.time()) // STEP_S * STEP_S
    random.seed(1)
    all = subjects(base)
    try:
        written = {subject.name: 0.0 for subject in all}
        for body in requests(data(), end_s * 1000):
            for subject in all:
                before = subject.cpu()
                subject.send(body)
                written[subject.name] += subject.cpu() - before
        for name, seconds in written.items():
            row("remote write", name, "cpu_s", seconds, "s", 1)
            print(f"remote write: {name} {seconds:.1f} s of CPU", flush=True)
        for subject in all:
            # A clean stop writes what is in memory into parts or blocks, as far as a server does.
            subject.stop()
            subject.start()
        print(f"{'CPU per answer, ms':<28}" + "".join(f" {s.name[:9]:>9}" for s in all) + "   ratio")
        asked = questions(end_s)
        words = sys.argv[1:]
        for name, form in asked.items():
            if not words or any(word in name for word in words):
                measure(all, name, form)
        if not words:
            measure_memory(all, asked["all series"])
    finally:
        for subject in all:
            subject.stop()
        shutil.rmtree(base)
    if not words and not QUICK:
        with open(os.path.join(HERE, "results/promql.json"), "w") as out:
            lines = ",\n".join("  " + json.dumps(row) for row in rows)
            out.write(f'{{"machine": {{}}, "rows": [\n{lines}\n]}}\n')


main()
