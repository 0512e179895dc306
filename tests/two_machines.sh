#!/usr/bin/env bash
# Follows docs/start.md on two fresh Debian machines: installs the package, sets up the server, enrols
# the agent, sees a change, upgrades and removes. The machines are root file systems in namespaces,
# joined by a virtual link; nothing else is on their network.
# They have no systemd: the programs are started by the command lines of the units.
# usage: two_machines.sh
#   BIN    the program to package (target/release/holdfast)
#   ROOTS  folder for the root file systems (target/machines); the first one made there is kept
# Exit codes: 0 passed, 1 failed, 2 something is missing here.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath -m -- "${BIN:-target/release/holdfast}")
roots=$(realpath -m -- "${ROOTS:-target/machines}")
suite=bookworm

missing() { echo "$0: missing: $*" >&2; exit 2; }
[ "$(id -u)" = 0 ] || missing "root, for namespaces"
for program in unshare nsenter pivot_root ip dpkg-deb; do
  command -v "$program" > /dev/null || missing "$program"
done
unshare --mount --net --pid --uts --ipc --fork true 2> /dev/null || missing "namespaces of the kernel"
[ -x "$bin" ] || missing "$bin; run make build, or give BIN"
base=$roots/$suite
if [ ! -d "$base" ] && ! command -v mmdebstrap > /dev/null; then
  missing "mmdebstrap (Debian's package mmdebstrap)"
fi

mkdir -p "$roots"
work=$(mktemp -d "$roots/run.XXXXXX")
declare -A holder=() unit_job=()
cleanup() {
  local pid
  for pid in "${holder[@]}"; do kill -KILL "$pid" 2> /dev/null || true; done
  wait 2> /dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

now_ms() { local us=${EPOCHREALTIME/[.,]/}; echo $((us / 1000)); }
begin_ms=$(now_ms)
seconds() { local ms=$(($(now_ms) - $1)); printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100)); }
say() { printf '[%6s s] %s\n' "$(seconds "$begin_ms")" "$*"; }
fail() {
  say "FAILED: $*"
  for log in "$work"/*.log; do
    if [ -f "$log" ]; then echo "--- $(basename "$log")"; tail -n 20 "$log"; fi
  done
  exit 1
}
# Repeats a command until it succeeds, for at most this many seconds.
until_true() {
  local limit=$1 what=$2
  shift 2
  local deadline=$((SECONDS + limit))
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || fail "not within $limit s: $what"
    sleep 0.05
  done
}

# --- The machines.

# The root file system that both begin with.
make_base() {
  [ -d "$base" ] && return
  say "make a root file system of Debian $suite"
  mmdebstrap --quiet --variant=minbase "$suite" "$work/base"
  mv "$work/base" "$base"
}

# Starts a machine: process 1 of its namespaces waits. It prints a line when the mounts are there.
start_machine() {
  local name=$1 root=$work/$1 line
  cp -a --reflink=auto "$base" "$root"
  echo "$name" > "$root/etc/hostname"
  printf '%s\n' '127.0.0.1 localhost' '192.0.2.1 server1.example.org server1' \
    '192.0.2.2 web1.example.org web1' > "$root/etc/hosts"
  exec {ready}< <(exec unshare --mount --net --pid --uts --ipc --fork --kill-child sh -euc '
    hostname "$1"
    mount --bind "$2" "$2"
    cd "$2"
    mount -t proc proc proc
    mount -t sysfs -o ro sysfs sys
    mount -t tmpfs -o mode=0755 tmpfs run
    pivot_root . mnt
    umount -l /mnt
    echo ready
    exec sleep infinity' sh "$name" "$root" 2> "$work/$name-start.log")
  holder[$name]=$!
  read -r -t 60 -u "$ready" line || fail "$name does not start"
  [ "$line" = ready ] || fail "$name does not start: $line"
}
# Prints the process 1 of a machine, as this system numbers it.
first_process() { tr -d ' ' < "/proc/${holder[$1]}/task/${holder[$1]}/children"; }
enter() {
  local name=$1
  shift
  nsenter --target "$(first_process "$name")" --mount --net --pid --uts --ipc \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"
}
network() { nsenter --target "$(first_process "$1")" --net ip "${@:2}"; }
link_machines() {
  network server1 link add eth0 type veth peer name eth0 netns "$(first_process web1)"
  network server1 address add 192.0.2.1/24 dev eth0
  network web1 address add 192.0.2.2/24 dev eth0
  local name
  for name in server1 web1; do
    network "$name" link set lo up
    network "$name" link set eth0 up
  done
}

# Runs a command line as a person would, and prints it with its output, of which `$work/out` has a copy.
on() {
  local name=$1 command=$2
  say "$name# $command"
  enter "$name" sh -c "cd /tmp && $command" > "$work/out" 2>&1 || { cat "$work/out"; fail "$command"; }
  # Of apt's lines, those about the package are enough.
  if [[ $command == apt-get* ]]; then
    grep -E '^(Setting up|Unpacking|Removing|Purging) ' "$work/out" || true
  else
    cat "$work/out"
  fi
}

# --- The units.

# Prints the value of a key of an installed unit.
of_unit() { sed -n "s/^$3=//p" "$work/$1/usr/lib/systemd/system/$2.service"; }
# Does what systemd does to start a unit: its folder, its user, and its command lines.
start_unit() {
  local name=$1 unit=$2 state folder mode run=()
  state=/var/lib/$(of_unit "$name" "$unit" StateDirectory)
  folder=$(of_unit "$name" "$unit" WorkingDirectory)
  mode=$(of_unit "$name" "$unit" StateDirectoryMode)
  say "$name# $(of_unit "$name" "$unit" ExecStart)   (systemctl start $unit)"
  enter "$name" sh -c "mkdir -p $state && chmod $mode $state"
  if [ "$(of_unit "$name" "$unit" DynamicUser)" = yes ]; then
    enter "$name" chown -R 61184:61184 "$state"
    run=(setpriv --reuid=61184 --regid=61184 --clear-groups --no-new-privs --inh-caps=-all)
  fi
  # Not by the process itself: what an earlier one printed must not be read as its lines.
  : > "$work/$unit.log"
  local before
  before=$(of_unit "$name" "$unit" ExecStartPre)
  if [ -n "$before" ]; then
    enter "$name" "${run[@]}" sh -c "cd $folder && $before" || fail "ExecStartPre of $unit"
  fi
  enter "$name" sh -c "cd $folder && echo \$\$ > /run/$unit.pid && exec \"\$@\"" sh \
    "${run[@]}" sh -c "exec $(of_unit "$name" "$unit" ExecStart)" \
    >> "$work/$unit.log" 2>&1 < /dev/null &
  unit_job[$unit]=$!
}
stop_unit() {
  local name=$1 unit=$2 code=0
  say "$name# systemctl stop $unit"
  enter "$name" sh -c "kill -TERM \$(cat /run/$unit.pid)"
  wait "${unit_job[$unit]}" || code=$?
  [ "$code" = 0 ] || fail "$unit: exit code $code"
}
printed() {
  kill -0 "${unit_job[$1]}" 2> /dev/null || fail "$1 ended"
  grep -q "$2" "$work/$1.log"
}
# Waits for a line of a unit, and prints it.
line_of() {
  until_true 120 "$1 prints '$2'" printed "$1" "$2"
  grep -m 1 "$2" "$work/$1.log"
}

has_change() { enter server1 holdfast changes --path "$1" > "$work/out" 2>&1 && grep -qF "$1" "$work/out"; }
# Changes a file on web1, and sees it on server1.
see_change() {
  local path=$1 from
  on web1 "echo '# changed' >> $path"
  from=$(now_ms)
  until_true 60 "a change of $path" has_change "$path"
  say "server1# holdfast changes --path $path   (after $(seconds "$from") s)"
  cat "$work/out"
  # The row names the agent, and nothing but this path.
  grep -F "$path" "$work/out" | grep -q 'web1\|001' || fail "the change does not name the agent"
}
expect_file() { enter "$1" test -e "$2" || fail "$1: $2 is gone"; }

# --- The walk.

make_base
version=$("$bin" --version | awk '{ print $2 }')
say "make the packages $version and $version+1"
for made in "$version" "$version+1"; do
  BIN=$bin VERSION=$made OUT=$work/dist FORMATS=deb COMPRESSION=gzip ./packaging/packages.sh \
    > "$work/packages.log" || fail "packages.sh"
done
arch=$(dpkg --print-architecture)
old=holdfast_${version}_$arch.deb new=holdfast_$version+1_$arch.deb
say "start the machines server1 and web1"
for name in server1 web1; do
  start_machine "$name"
  cp "$work/dist/$old" "$work/dist/$new" "$work/$name/tmp/"
done
link_machines

walk_ms=$(now_ms)
on server1 "apt-get install -y ./$old"
on server1 "holdfast server setup --listen 0.0.0.0 --config /var/lib/holdfast-server/server.toml"
start_unit server1 holdfast-server
line_of holdfast-server '^page: '
line_of holdfast-server '^agents: '
line_of holdfast-server '^ready: '
on server1 "holdfast token"
enroll=$(sed -n 's/^ *\(holdfast enroll .*\)/\1/p' "$work/out")
[ -n "$enroll" ] || fail "holdfast token printed no enroll line"
on web1 "apt-get install -y ./$old"
on web1 "$enroll"
expect_file web1 /var/lib/holdfast-agent/agent/agent.json
start_unit web1 holdfast-agent
line_of holdfast-agent '^ready: '
line_of holdfast-agent '^synchronised: '
see_change /etc/motd
say "from the first installation to the change: $(seconds "$walk_ms") s"

on server1 "apt-get install -y ./$new"
stop_unit server1 holdfast-server
start_unit server1 holdfast-server
line_of holdfast-server '^ready: '
on web1 "apt-get install -y ./$new"
stop_unit web1 holdfast-agent
start_unit web1 holdfast-agent
line_of holdfast-agent '^connected: '
on web1 "holdfast agent status --config /etc/holdfast/agent.toml"
see_change /etc/issue
on server1 "holdfast changes --path /etc/motd"
grep -qF /etc/motd "$work/out" || fail "the first change is gone after the upgrade"

stop_unit web1 holdfast-agent
stop_unit server1 holdfast-server
for name in server1 web1; do
  on "$name" "apt-get remove -y holdfast"
  on "$name" "apt-get purge -y holdfast"
  if enter "$name" test -e /usr/bin/holdfast; then fail "$name: the program is still there"; fi
done
expect_file server1 /etc/holdfast/server.toml
expect_file server1 /var/lib/holdfast-server/data/registry.db
expect_file web1 /etc/holdfast/agent.toml
expect_file web1 /var/lib/holdfast-agent/agent/agent.json
say "configuration and data are still there"
say "passed"
