#!/usr/bin/env bash
# Writes an OCI image (layout in a tar file) with one layer: the program, the libraries that it needs,
# their loader, a user without rights, and an empty data folder. There is no shell in it.
# usage: image.sh STAGE VERSION ARCH FILE
#   STAGE  folder with usr/bin/holdfast
#   ARCH   as Debian names it
# The same program and SOURCE_DATE_EPOCH give the same bytes.
set -euo pipefail
stage=$1 version=$2 arch=$3 file=$4
epoch=${SOURCE_DATE_EPOCH:-0}
user=65532
data=/var/lib/holdfast-server
# The image's architectures are those of Go.
case $arch in
  armhf) arch=arm ;;
  ppc64el) arch=ppc64le ;;
  i386) arch=386 ;;
esac
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root layout=$work/layout
program=$stage/usr/bin/holdfast

install -D -m 0755 "$program" "$root/usr/bin/holdfast"
# Each library under the path at which the loader finds it; ldd prints the loader without `=>`.
ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' \
  | while read -r library; do install -D -m 0755 "$library" "$root$library"; done
install -d "$root/etc" "$root/var/lib"
install -d -m 1777 "$root/tmp"
printf 'root:x:0:0:root:/:/sbin/nologin\nholdfast:x:%s:%s:Holdfast:%s:/sbin/nologin\n' \
  "$user" "$user" "$data" > "$root/etc/passwd"
printf 'root:x:0:\nholdfast:x:%s:\n' "$user" > "$root/etc/group"

pack=(tar --sort=name --format=ustar --numeric-owner "--mtime=@$epoch")
"${pack[@]}" --owner=0 --group=0 -C "$root" -cf "$work/layer.tar" .
# Only this folder belongs to the user, so it is appended.
install -d -m 0750 "$work/data/.$data"
"${pack[@]}" "--owner=$user" "--group=$user" -C "$work/data" -rf "$work/layer.tar" ".$data"

digest() { sha256sum "$1" | cut -d ' ' -f 1; }
# Moves a file to the blobs. Prints its descriptor.
store() {
  local sum size
  sum=$(digest "$1") size=$(stat -c %s "$1")
  mv "$1" "$layout/blobs/sha256/$sum"
  printf '"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%s' \
    "$2" "$sum" "$size"
}
mkdir -p "$layout/blobs/sha256"
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
diff=$(digest "$work/layer.tar")
gzip -n "$work/layer.tar"
layer=$(store "$work/layer.tar.gz" layer.v1.tar+gzip)
cat > "$work/config" << CONFIG
{"created":"$created","architecture":"$arch","os":"linux",
"config":{"User":"$user:$user","WorkingDir":"$data",
"Env":["PATH=/usr/bin"],"Entrypoint":["/usr/bin/holdfast"],
"Cmd":["server","--config","server.toml","--listen","0.0.0.0"],
"ExposedPorts":{"1517/tcp":{},"55000/tcp":{}},"Volumes":{"$data":{}},"StopSignal":"SIGTERM",
"Labels":{"org.opencontainers.image.title":"holdfast","org.opencontainers.image.version":"$version",
"org.opencontainers.image.licenses":"Apache-2.0"}},
"rootfs":{"type":"layers","diff_ids":["sha256:$diff"]},
"history":[{"created":"$created","created_by":"packaging/image.sh"}]}
CONFIG
config=$(store "$work/config" config.v1+json)
cat > "$work/manifest" << MANIFEST
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
"config":{$config},"layers":[{$layer}]}
MANIFEST
manifest=$(store "$work/manifest" manifest.v1+json)
cat > "$layout/index.json" << INDEX
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{$manifest,
"platform":{"architecture":"$arch","os":"linux"},
"annotations":{"org.opencontainers.image.ref.name":"holdfast:$version"}}]}
INDEX
echo '{"imageLayoutVersion":"1.0.0"}' > "$layout/oci-layout"
"${pack[@]}" --owner=0 --group=0 -C "$layout" -cf "$file" blobs index.json oci-layout
