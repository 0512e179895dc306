#!/usr/bin/env bash
# Unpacks the OCI image and runs it in namespaces as its configuration says: the server answers, and
# ends with exit code 0. Without root or namespaces the test is skipped.
# usage: image.sh
#   BIN  the program to package (target/debug/holdfast)
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath -- "${BIN:-target/debug/holdfast}")
[ "$(id -u)" = 0 ] || { tests/skip.sh image "chroot needs root"; exit 0; }
unshare --mount --net --pid --fork true || { tests/skip.sh image "no namespaces here"; exit 0; }
tests/packages.sh curl curl
tests/packages.sh ip iproute2
work=$(mktemp -d)
holder=
# Set by the image's configuration.
user='' folder='' command=()
cleanup() {
  [ -z "$holder" ] || kill -KILL "$holder" 2> /dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
fail() { echo "$0: $*" >&2; cat "$work/log" >&2 || true; exit 1; }
# Repeats a command until it succeeds, for at most 60 seconds.
until_true() {
  local deadline=$((SECONDS + 60))
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || fail "not within 60 s: $*"
    sleep 0.1
  done
}

for run in 1 2; do
  BIN=$bin OUT=$work/dist$run FORMATS=image ./packaging/packages.sh > "$work/said"
done
image=$(echo "$work"/dist1/*.oci.tar)
cmp "$image" "$work/dist2/$(basename "$image")"

mkdir "$work/layout" "$work/root"
tar -C "$work/layout" -xf "$image"
# Checks every digest and size, unpacks the layer, and prints the configuration for the shell.
python3 - "$work/layout" "$work/root" > "$work/config" << 'PYTHON'
import gzip, hashlib, json, pathlib, shlex, subprocess, sys
layout, root = map(pathlib.Path, sys.argv[1:])
def blob(descriptor):
    name, digest = descriptor["digest"].split(":")
    data = (layout / "blobs" / name / digest).read_bytes()
    assert hashlib.sha256(data).hexdigest() == digest and len(data) == descriptor["size"], digest
    return data
assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
index = json.loads((layout / "index.json").read_text())
manifest = json.loads(blob(index["manifests"][0]))
image = json.loads(blob(manifest["config"]))
for layer, diff in zip(manifest["layers"], image["rootfs"]["diff_ids"], strict=True):
    plain = gzip.decompress(blob(layer))
    assert "sha256:" + hashlib.sha256(plain).hexdigest() == diff, diff
    subprocess.run(["tar", "-C", root, "--numeric-owner", "-xp"], input=plain, check=True)
config = image["config"]
print("user=" + shlex.quote(config["User"]), "folder=" + shlex.quote(config["WorkingDir"]))
print("command=(" + shlex.join(config["Entrypoint"] + config["Cmd"]) + ")")
PYTHON
# shellcheck source=/dev/null
. "$work/config"

# What a container's runtime provides: /proc, /dev and a network.
mkdir "$work/root/proc" "$work/root/dev"
user=$user folder=$folder root=$work/root unshare --mount --net --pid --fork --kill-child sh -c '
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  ip link set lo up
  exec env -i unshare --root="$root" --wd="$folder" --setuid="${user%:*}" --setgid="${user#*:}" "$@"
' sh "${command[@]}" > "$work/log" 2>&1 &
holder=$!
program() { cat "/proc/$holder/task/$holder/children" 2> /dev/null | tr -d ' '; }
answers() {
  kill -0 "$holder" 2> /dev/null || fail "it ended"
  [ -n "$(program)" ] && nsenter --target "$(program)" --net \
    curl -sfk --max-time 5 https://127.0.0.1:55000/readyz > "$work/ready"
}
until_true answers
# As `podman exec` does: the working folder has ./data, and the image has no authorities of others.
inside() {
  nsenter --target "$(program)" --mount --net --pid --root --wd \
    --setuid "${user%:*}" --setgid "${user#*:}" "${command[0]}" "$@"
}
inside token > "$work/token" 2>&1 || fail "token: $(cat "$work/token")"
inside changes > "$work/changes" 2>&1 || fail "changes: $(cat "$work/changes")"
owner=$(stat -c %u:%g "$work/root$folder/data/registry.db")
[ "$owner" = "$user" ] || fail "the data belongs to $owner, not to $user"
kill -TERM "$(program)"
code=0
wait "$holder" || code=$?
[ "$code" = 0 ] || fail "exit code $code"
echo "image: started as $user, answered, stopped"
