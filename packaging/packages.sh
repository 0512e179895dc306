#!/usr/bin/env bash
# Makes a Debian package and a tarball from the files that `make install` installs, and keeps what
# debuggers read in a file of its own.
# usage: packages.sh
#   BIN          the program to package
#   OUT          folder for the packages (dist)
#   COMPRESSION  of the Debian package: xz, gzip or none (xz)
set -euo pipefail
: "${BIN:?names the program to package}"
bin=$(realpath -- "$BIN")
out=$(realpath -m -- "${OUT:-dist}")
cd "$(dirname "$0")"
version=$("$bin" --version | awk '{ print $2 }')
arch=$(dpkg --print-architecture)
name=holdfast_${version}_$arch
# The newest symbol of the C library that the program needs.
glibc=$(objdump -T "$bin" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1)
mkdir -p "$out"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 0755 "$stage"

BIN=$bin DESTDIR=$stage/holdfast PREFIX=/usr ./install.sh install
tar -C "$stage" --owner=0 --group=0 --numeric-owner -czf "$out/$name.tar.gz" holdfast
objcopy --only-keep-debug --compress-debug-sections "$bin" "$out/$name.debug"

# The link to the server's configuration is made when the package is installed: as a file of the
# package it would replace the plain file of an administrator.
rm "$stage/holdfast/etc/holdfast/server.toml"
install -d "$stage/holdfast/DEBIAN"
install -m 0755 deb/postinst deb/prerm "$stage/holdfast/DEBIAN/"
cat > "$stage/holdfast/DEBIAN/control" << CONTROL
Package: holdfast
Version: $version
Architecture: $arch
Maintainer: Holdfast
Section: admin
Priority: optional
Installed-Size: $(du -sk "$stage/holdfast" | cut -f 1)
Depends: libc6 (>= $glibc), libgcc-s1
Description: knows what changed on every machine
 Agent and server in one program: watches files and packages, keeps every
 change until the server has it, and serves a page and an API. Neither unit is
 enabled. See holdfast(1).
CONTROL
dpkg-deb --root-owner-group "-Z${COMPRESSION:-xz}" --build "$stage/holdfast" "$out/$name.deb" > /dev/null
echo "needs glibc $glibc"
ls -l "$out/$name".* | awk '{ print $5, $NF }'
