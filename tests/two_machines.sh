#!/usr/bin/env bash
# Follows docs/start.md on two fresh Debian machines: installs the package, sets up the server, enrols
# the agent, sees a change, upgrades and removes. The machines are root file systems that systemd-nspawn
# boots with systemd as process 1, joined by a virtual link; nothing else is on their network.
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
for program in unshare nsenter ip dpkg-deb systemd-nspawn; do
  command -v "$program" > /dev/null || missing "$program (Debian: util-linux iproute2 dpkg systemd-container)"
done
unshare --mount --net --pid --uts --ipc --fork true 2> /dev/null || missing "namespaces of the kernel"
[ -x "$bin" ] || missing "$bin; run make build, or give BIN"
base=$roots/$suite
if [ ! -d "$base" ] && ! command -v mmdebstrap > /dev/null; then
  missing "mmdebstrap (Debian's package mmdebstrap)"
fi

mkdir -p "$roots"
work=$(mktemp -d "$roots/run.XXXXXX")
declare -A container=()
cleanup() {
  # The shell reports each container that it kills.
  { kill -KILL "${container[@]}" && wait; } 2> /dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

now_ms() { local us=${EPOCHREALTIME/[.,]/}; echo $((us / 1000)); }
begin_ms=$(now_ms)
seconds() { local ms=$(($(now_ms) - $1)); printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100)); }
say() { printf '[%6s s] %s\n' "$(seconds "$begin_ms")" "$*"; }
fail() {
  if [ -f "$work/out" ]; then cat "$work/out"; fi
  say "FAILED: $*"
  local name unit
  for name in "${!container[@]}"; do
    for unit in holdfast-server holdfast-agent; do
      enter "$name" journalctl --no-pager -n 20 -u "$unit" 2> /dev/null || true
    done
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
  mmdebstrap --quiet --variant=minbase --include=systemd-sysv "$suite" "$work/base" \
    > "$work/base.log" 2>&1 || fail "mmdebstrap"
  mv "$work/base" "$base"
}

# Boots a machine with a network of its own.
start_machine() {
  local name=$1 root=$work/$1 keep=()
  cp -a --reflink=auto "$base" "$root"
  echo "$name" > "$root/etc/hostname"
  printf '%s\n' '127.0.0.1 localhost' '192.0.2.1 server1.example.org server1' \
    '192.0.2.2 web1.example.org web1' > "$root/etc/hosts"
  # Without systemd here there is nothing to register the machine with.
  [ -d /run/systemd/system ] || keep=(--keep-unit)
  # As on a real machine, root may use every call and capability: the agent needs fanotify.
  SYSTEMD_SECCOMP=0 systemd-nspawn --quiet --boot --directory="$root" --machine="$name" --hostname="$name" \
    --register=no "${keep[@]}" --private-network --resolv-conf=off --timezone=off \
    --link-journal=no --capability=all \
    > "$work/$name-boot.log" 2>&1 < /dev/null &
  container[$name]=$!
}
has_booted() {
  kill -0 "${container[$1]}" 2> /dev/null || fail "$1 does not boot"
  [[ $(enter "$1" systemctl is-system-running 2> /dev/null) =~ ^(running|degraded)$ ]]
}
# Prints the process 1 of a machine, as this system numbers it.
first_process() { tr -d ' ' < "/proc/${container[$1]}/task/${container[$1]}/children"; }
enter() {
  local name=$1
  shift
  nsenter --target "$(first_process "$name")" --mount --net --pid --uts --ipc --cgroup \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"
}
network() { nsenter --target "$(first_process "$1")" --net ip "${@:2}"; }
link_machines() {
  network server1 link add eth0 type veth peer name eth0 netns "$(first_process web1)"
  network server1 address add 192.0.2.1/24 dev eth0
  network web1 address add 192.0.2.2/24 dev eth0
  network server1 link set eth0 up
  network web1 link set eth0 up
}

# Runs a command line as a person would, and prints it with its output, of which `$work/out` has a copy.
on() {
  local name=$1 command=$2
  say "$name# $command"
  enter "$name" sh -c "cd /tmp && $command" > "$work/out" 2>&1 \
    || fail "$name: $command"
  # Of apt's lines, those about the package are enough.
  if [[ $command == apt-get* ]]; then
    grep -E '^(Setting up|Unpacking|Removing|Purging) ' "$work/out" || true
  else
    cat "$work/out"
  fi
}

# --- What must hold.

journal_has() { enter "$1" journalctl -u "$2" -o cat | grep "$3" > /dev/null; }
main_process() { enter "$1" systemctl show --property=MainPID --value "$2"; }
has_change() { enter server1 holdfast changes --path "$1" > "$work/out" 2>&1 && grep -qF "$1" "$work/out"; }
# Changes a file on web1, and sees it on server1.
see_change() {
  local path=$1 from
  on web1 "echo '# changed' >> $path"
  from=$(now_ms)
  until_true 60 "a change of $path" has_change "$path"
  say "server1# holdfast changes --path $path   (after $(seconds "$from") s)"
  cat "$work/out"
  grep -F " modified $path " "$work/out" | grep ' \(001\|web1\) ' > /dev/null || fail "not that change of web1"
}
# Installs the newer package, and expects that the unit runs the new program.
upgrade() {
  local name=$1 unit=$2 before
  before=$(main_process "$name" "$unit")
  on "$name" "apt-get install -y ./$new"
  [ "$(main_process "$name" "$unit")" != "$before" ] || fail "$unit was not restarted"
  on "$name" "systemctl is-active $unit"
}
# Removes the package, and expects that its unit is stopped and disabled.
remove() {
  local name=$1 unit=$2
  on "$name" "apt-get remove -y holdfast"
  if enter "$name" systemctl --quiet is-active "$unit"; then fail "$unit still runs"; fi
  if enter "$name" test -e "/etc/systemd/system/multi-user.target.wants/$unit.service"; then
    fail "$unit is still enabled"
  fi
  on "$name" "apt-get purge -y holdfast"
  if enter "$name" test -e /usr/bin/holdfast; then fail "$name: the program is still there"; fi
}
expect_file() { enter "$1" test -s "$2" || fail "$1: $2 is gone"; }

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
say "boot the machines server1 and web1"
for name in server1 web1; do
  start_machine "$name"
  until_true 120 "$name boots" has_booted "$name"
  # /tmp is there once it has booted.
  for package in "$old" "$new"; do
    enter "$name" sh -c "cat > /tmp/$package" < "$work/dist/$package"
  done
done
link_machines

walk_ms=$(now_ms)
on server1 "apt-get install -y ./$old"
if enter server1 systemctl --quiet is-enabled holdfast-server; then fail "the unit is enabled"; fi
on server1 "holdfast server setup --listen 0.0.0.0"
on server1 "systemctl enable --now holdfast-server"
on server1 "journalctl -u holdfast-server -o cat | grep -E '^(page|agents|log in|ready): '"
on server1 "holdfast token"
enroll=$(sed -n 's/^ *\(holdfast enroll .*\)/\1/p' "$work/out")
[ -n "$enroll" ] || fail "holdfast token printed no enroll line"
on web1 "apt-get install -y ./$old"
on web1 "$enroll"
on web1 "systemctl enable --now holdfast-agent"
until_true 120 "the first scan arrives" journal_has web1 holdfast-agent '^synchronised: '
on web1 "journalctl -u holdfast-agent -o cat | grep -E '^(connected|synchronised): '"
see_change /etc/motd
say "from the first installation to the change: $(seconds "$walk_ms") s"

upgrade server1 holdfast-server
upgrade web1 holdfast-agent
see_change /etc/issue
on web1 "holdfast agent status | head -n 5"
grep -qx 'connection: connected' "$work/out" || fail "the agent is not connected"
on server1 "holdfast changes --path /etc/motd"
grep -qF /etc/motd "$work/out" || fail "the first change is gone after the upgrade"

# Root restores into the folder of the unit, whose user must then be able to write there.
on server1 "holdfast backup --to /root/backup"
on server1 "systemctl stop holdfast-server && rm -r /var/lib/holdfast-server/data"
on server1 "holdfast restore --from /root/backup --data /var/lib/holdfast-server/data"
on server1 "systemctl start holdfast-server"
on server1 "holdfast changes --path /etc/issue"
grep -qF /etc/issue "$work/out" || fail "the change is gone after the restore"

remove web1 holdfast-agent
remove server1 holdfast-server
expect_file server1 /etc/holdfast/server.toml
expect_file server1 /var/lib/holdfast-server/data/registry.db
expect_file web1 /etc/holdfast/agent.toml
expect_file web1 /var/lib/holdfast-agent/agent/agent.json
say "configuration and data are still there"
say "passed"
