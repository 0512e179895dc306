#!/usr/bin/env bash
# Installs, upgrades and removes the .rpm in a root folder of its own. Without root or rpmbuild the test
# is skipped.
# usage: rpm.sh
#   BIN  the program to package (target/debug/holdfast)
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath -- "${BIN:-target/debug/holdfast}")
[ "$(id -u)" = 0 ] || { tests/skip.sh rpm "rpm --root needs root"; exit 0; }
tests/packages.sh rpmbuild rpm || { tests/skip.sh rpm "rpmbuild cannot be installed here"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
fail() { echo "$0: $*" >&2; exit 1; }
# Compares text, with its name in the message.
expect() { [ "$2" = "$3" ] || fail "$1: got '$2', expected '$3'"; }

build() {
  BIN=$bin VERSION=$1 OUT=$work/dist FORMATS="deb rpm" COMPRESSION=none ./packaging/packages.sh
}
said=$(build 1.0.0-rc1)
build 1.0.0 > "$work/said"
old=$(echo "$work"/dist/holdfast-1.0.0~rc1-1.*.rpm)
new=$(echo "$work"/dist/holdfast-1.0.0-1.*.rpm)
glibc=$(echo "$said" | sed -n 's/^needs glibc //p')
rpm -qp --requires "$old" | grep -F "libc.so.6(GLIBC_$glibc)" > /dev/null || fail "$old: no glibc $glibc"
cp "$new" "$work/first.rpm"
build 1.0.0 > "$work/said"
cmp "$new" "$work/first.rpm"

# The files are those of the Debian package.
dpkg-deb --fsys-tarfile "$work"/dist/holdfast_1.0.0_*.deb | tar -t | grep -v '/$' | sed 's/^\.//' \
  | sort > "$work/deb.list"
rpm -qpl "$new" | grep -vxE '/etc/holdfast|/usr/share/holdfast(/grafana|/prometheus)?' | sort > "$work/rpm.list"
diff "$work/deb.list" "$work/rpm.list"

# The root has what the scripts call: a shell, ln, and a systemctl that records its arguments. Its C
# library is not from a package, hence --nodeps below.
for program in sh ln; do
  path=$(command -v "$program")
  ldd "$path" | grep -o '/[^ ]*' | while read -r library; do
    install -D "$library" "$root$library"
  done
  install -D "$path" "$root/bin/$program"
done
mkdir -p "$root/run/systemd/system"
printf '#!/bin/sh\necho "$*" >> /calls\n' > "$root/bin/systemctl"
chmod 0755 "$root/bin/systemctl"
calls() {
  if [ -f "$root/calls" ]; then paste -sd ';' "$root/calls"; rm "$root/calls"; fi
}
package() { rpm --root "$root" --dbpath /var/lib/rpm "$@"; }
config=$root/etc/holdfast/server.toml
units='holdfast-server.service holdfast-agent.service'

package --nodeps --install "$old"
expect version "$("$root/usr/bin/holdfast" --version)" "$("$bin" --version)"
expect link "$(readlink "$config")" /var/lib/holdfast-server/server.toml
expect installation "$(calls)" daemon-reload
[ ! -e "$root/etc/systemd" ] || fail "a unit is enabled"
if readelf -S "$root/usr/bin/holdfast" | grep debug_info > /dev/null; then fail "debug symbols inside"; fi

# An upgrade keeps the plain file of an administrator, and restarts what runs.
rm "$config"
echo '# mine' > "$config"
package --nodeps --upgrade "$new"
expect upgraded "$(package --query holdfast)" "$(basename "$new" .rpm)"
expect configuration "$(cat "$config")" '# mine'
expect upgrade "$(calls)" "daemon-reload;try-restart $units;daemon-reload"

mkdir -p "$root/var/lib/holdfast-server/data"
package --erase holdfast
expect removal "$(calls)" "disable --now $units;daemon-reload"
[ ! -e "$root/usr/bin/holdfast" ] || fail "the program is still there"
[ -f "$config" ] && [ -d "$root/var/lib/holdfast-server/data" ] || fail "configuration or data is gone"
expect files "$(find "$root/usr" "$root/etc" -name '*holdfast*' ! -path "$root/etc/holdfast")" ''
echo "rpm: installed, upgraded, removed"
