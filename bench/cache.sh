#!/bin/sh
# What the server's cache saves: requests a second, server CPU and reads per request with
# cache.ttl at 0s (nothing kept) and 10s (the default). Prints a table and writes results/cache.json.
#
# HOLDFAST_BIN names another binary than the release build, REQUESTS another number per row.
set -eu
cd "$(dirname "$0")"
HOLDFAST=${HOLDFAST_BIN:-../target/release/holdfast}
[ "${QUICK:-0}" = 0 ] && each=5000 || each=1000
REQUESTS=${REQUESTS:-$each}
WORK=$(mktemp -d)
SERVER=
stop() {
    [ -z "$SERVER" ] || { kill -INT "$SERVER" 2>/dev/null && wait "$SERVER" 2>/dev/null; } || true
    SERVER=
}
trap 'stop; rm -rf "$WORK"' EXIT
PASSWORD=Bench-Password-1
export HOLDFAST_ADMIN_PASSWORD=$PASSWORD

metric() { # name, label part
    curl -s "${URL}metrics" | awk -v n="$1" -v l="$2" 'index($0, n) == 1 && index($0, l) { s += $2 } END { print s + 0 }'
}
cpu_ticks() { awk '{ print $14 + $15 }' "/proc/$SERVER/stat"; }
now() { date +%s.%N; }

: >"$WORK/rows"
for ttl in 0s 10s; do
    cat >"$WORK/$ttl.toml" <<END
data = "$WORK/$ttl"
[api]
listen = "127.0.0.1:0"
plain_http = true
[agents]
listen = "127.0.0.1:0"
[cache]
ttl = "$ttl"
END
    : >"$WORK/$ttl.out"
    "$HOLDFAST" server --config "$WORK/$ttl.toml" >"$WORK/$ttl.out" 2>"$WORK/$ttl.err" &
    SERVER=$!
    until grep -q '^ready: ' "$WORK/$ttl.out"; do
        kill -0 "$SERVER" || { cat "$WORK/$ttl.err"; exit 2; }
        sleep 0.1
    done
    URL=$(sed -n 's/^ready: //p' "$WORK/$ttl.out")
    TOKEN=$(curl -s -u "admin:$PASSWORD" -X POST "${URL}security/user/authenticate?raw=true")
    for path in rules/files rules/files/cron_changed.yml agents/summary/status; do
        curl -sf -o "$WORK/warm" -H "Authorization: Bearer $TOKEN" "$URL$path"
        files=$(metric holdfast_rules_file_reads_total '') kept=$(metric holdfast_access_cache_total miss)
        ticks=$(cpu_ticks) began=$(now)
        # A fragment makes many of one address and is not sent: one connection, one after the other.
        curl -sf -H "Authorization: Bearer $TOKEN" "$URL$path#[1-$REQUESTS]" >"$WORK/answers"
        ended=$(now) spent=$(cpu_ticks)
        echo "$ttl $path $REQUESTS $began $ended $((spent - ticks)) $(($(metric holdfast_rules_file_reads_total '') - files)) $(($(metric holdfast_access_cache_total miss) - kept)) $(getconf CLK_TCK)" >>"$WORK/rows"
    done
    stop
done

awk 'BEGIN { printf "%-5s %-34s %12s %10s %14s %16s\n", "ttl", "GET", "requests/s", "cpu_ms", "file_reads", "access_reads" }
    { printf "%-5s /%-33s %12.0f %10.3f %14.2f %16.2f\n", $1, $2, $3 / ($5 - $4), $6 * 1000 / $9 / $3, $7 / $3, $8 / $3 }' "$WORK/rows"
MACHINE=$(printf '{"cpu": "%s", "cores": %s, "memory": "%s", "kernel": "%s", "load": "%s"}' \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" \
    "$(awk '/^MemTotal/ { print $2, $3 }' /proc/meminfo)" "$(uname -r)" "$(cat /proc/loadavg)")
awk -v machine="$MACHINE" 'BEGIN { printf "{\"machine\": %s, \"rows\": [", machine }
    function row(metric, value, unit) {
        printf "%s\n  {\"case\": \"GET /%s\", \"subject\": \"holdfast cache.ttl %s\", \"metric\": \"%s\", \"value\": %.4f, \"unit\": \"%s\", \"n\": %d}", comma, $2, $1, metric, value, unit, $3
        comma = ","
    }
    { row("requests_per_second", $3 / ($5 - $4), "1/s"); row("cpu_ms", $6 * 1000 / $9 / $3, "ms")
      row("file_reads", $7 / $3, "1"); row("access_reads", $8 / $3, "1") }
    END { printf "\n]}\n" }' "$WORK/rows" >results/cache.json
