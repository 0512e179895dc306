#!/usr/bin/env bash
# Installs the program with its units, completions, manual pages, dashboards for Grafana and alerts for
# Prometheus, or takes all of it away again.
# What people wrote (the configuration) and what the program keeps (its data) is never removed.
# usage: install.sh install|uninstall
#   BIN         the program to install
#   DESTDIR     in front of every path, for packages ("")
#   PREFIX      /usr/local
#   SYSCONFDIR  /etc
set -euo pipefail
bin=$(realpath -m -- "${BIN:-.}")
cd "$(dirname "$0")"
prefix=${PREFIX:-/usr/local}
sysconfdir=${SYSCONFDIR:-/etc}
root=${DESTDIR:-}
bindir=$prefix/bin
# In these folders everything that begins with our name is ours.
man=$root$prefix/share/man/man1
units=$root$prefix/lib/systemd/system
bash=$root$prefix/share/bash-completion/completions/holdfast
zsh=$root$prefix/share/zsh/site-functions/_holdfast
fish=$root$prefix/share/fish/vendor_completions.d/holdfast.fish
grafana=$root$prefix/share/holdfast/grafana
prometheus=$root$prefix/share/holdfast/prometheus
config=$root$sysconfdir/holdfast

install_all() {
  : "${BIN:?names the program to install}"
  [ -f "$bin" ] || { echo "$0: $bin: no such program" >&2; exit 2; }
  install -D -m 0755 "$bin" "$root$bindir/holdfast"
  # What debuggers read is two thirds of it; function names stay for backtraces.
  if command -v strip > /dev/null; then strip --strip-debug "$root$bindir/holdfast"; fi
  install -d "$(dirname "$bash")" "$(dirname "$zsh")" "$(dirname "$fish")" "$man" "$units" "$config"
  "$bin" completions bash > "$bash"
  "$bin" completions zsh > "$zsh"
  "$bin" completions fish > "$fish"
  "$bin" man --to "$man"
  install -D -m 0644 -t "$grafana" grafana/hosts.json grafana/fleet.json
  install -D -m 0644 -t "$prometheus" prometheus/holdfast.rules.yml
  for unit in holdfast-server holdfast-agent; do
    sed -e "s#@BINDIR@#$bindir#g" -e "s#@SYSCONFDIR@#$sysconfdir#g" "$unit.service" \
      > "$units/$unit.service"
    chmod 0644 "$units/$unit.service"
  done
  chmod 0644 "$bash" "$zsh" "$fish" "$man"/holdfast*.1
  # An agent's configuration names its server: `holdfast config default agent` prints one. The
  # server's is in its data folder, made by the first start: its user may replace it, and nothing here.
  if [ ! -e "$config/server.toml" ] && [ ! -L "$config/server.toml" ]; then
    ln -s /var/lib/holdfast-server/server.toml "$config/server.toml"
  fi
}

uninstall_all() {
  rm -f "$root$bindir/holdfast" "$bash" "$zsh" "$fish" "$man"/holdfast.1 "$man"/holdfast-*.1 \
    "$units"/holdfast-server.service "$units"/holdfast-agent.service \
    "$grafana"/hosts.json "$grafana"/fleet.json "$prometheus"/holdfast.rules.yml
  # A folder with other files stays.
  rmdir --ignore-fail-on-non-empty "$grafana" "$prometheus" "${grafana%/*}" 2> /dev/null || true
}

case "${1:-}" in
  install) install_all ;;
  uninstall) uninstall_all ;;
  *) echo "usage: $0 install|uninstall" >&2; exit 2 ;;
esac
