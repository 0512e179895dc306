#!/usr/bin/env bash
# Makes packages from the files that `make install` installs, and keeps what debuggers read in a file
# of its own. The same program and SOURCE_DATE_EPOCH give the same bytes.
# usage: packages.sh
#   BIN          the program to package
#   OUT          folder for the packages (dist)
#   FORMATS      which of them: deb, rpm, tar, debug, image (all)
#   VERSION      version of the packages (that of the program)
#   COMPRESSION  of deb and rpm: xz, gzip or none (xz)
set -euo pipefail
: "${BIN:?names the program to package}"
bin=$(realpath -- "$BIN")
out=$(realpath -m -- "${OUT:-dist}")
cd "$(dirname "$0")"
formats=${FORMATS:-deb rpm tar debug image}
version=${VERSION:-$("$bin" --version | awk '{ print $2 }')}
tag=$version
# The packages' form of a pre-release, which is older than its release.
version=${version//-/\~}
arch=$(dpkg --print-architecture)
name=holdfast_${version}_$arch
compression=${COMPRESSION:-xz}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || echo 0)}
export SOURCE_DATE_EPOCH
glibc=$(./glibc.sh "$bin")
umask 022
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/holdfast

make_tar() {
  tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    -c holdfast | gzip -n > "$out/$name.tar.gz"
}

make_debug() {
  objcopy --only-keep-debug --compress-debug-sections "$bin" "$out/$name.debug"
  chmod 0644 "$out/$name.debug"
}

make_deb() {
  local libgcc=
  if objdump -p "$bin" | grep -F 'libgcc_s.so' > /dev/null; then libgcc=', libgcc-s1'; fi
  cp -a "$stage" "$work/deb"
  install -d "$work/deb/DEBIAN"
  install -m 0755 deb/postinst deb/prerm deb/postrm "$work/deb/DEBIAN/"
  cat > "$work/deb/DEBIAN/control" << CONTROL
Package: holdfast
Version: $version
Architecture: $arch
Maintainer: Holdfast
Section: admin
Priority: optional
Installed-Size: $(du -sk --apparent-size "$stage" | cut -f 1)
Depends: libc6 (>= $glibc)$libgcc
Description: knows what changed on every machine
 Agent and server in one program: watches files and packages, keeps every
 change until the server has it, and serves a page and an API. Neither unit is
 enabled. See holdfast(1).
CONTROL
  dpkg-deb --root-owner-group "-Z$compression" --build "$work/deb" "$out/$name.deb" > /dev/null
}

make_rpm() {
  command -v rpmbuild > /dev/null || {
    echo "$0: no .rpm: rpmbuild is missing (Debian's package rpm)" >&2
    # Left out of all packages, but not if it was asked for.
    [ -z "${FORMATS:-}" ]
    return
  }
  local payload
  case $compression in
    xz) payload=w6.xzdio ;;
    gzip) payload=w9.gzdio ;;
    none) payload=w.ufdio ;;
    *) echo "$0: COMPRESSION=$compression: give xz, gzip or none" >&2; exit 2 ;;
  esac
  (cd "$stage" && find . ! -type d -printf '/%P\n' | sort) > "$work/list"
  # rpm finds the libraries, and the newest symbol of the C library, by itself.
  rpmbuild -bb --quiet --define "_topdir $work/rpm" --define "_rpmdir $work" \
    --define "_tmppath $work" --define "_build_name_fmt holdfast.rpm" \
    --define "_binary_payload $payload" --define "_buildhost localhost" \
    --define "use_source_date_epoch_as_buildtime 1" \
    --define "clamp_mtime_to_source_date_epoch 1" \
    --define "given_version $version" --define "given_release 1" \
    --define "stage $stage" --define "list $work/list" rpm/holdfast.spec
  mv "$work/holdfast.rpm" "$out/holdfast-$version-1.$(rpm --eval '%{_arch}').rpm"
}

make_image() {
  ./image.sh "$stage" "$tag" "$arch" "$out/$name.oci.tar"
}

BIN=$bin DESTDIR=$stage PREFIX=/usr ./install.sh install
if [[ " $formats " == *" tar "* ]]; then make_tar; fi
# The link to the server's configuration is made when a package is installed: as a file of the
# package it would replace the plain file of an administrator.
rm "$stage/etc/holdfast/server.toml"
find "$work" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
for format in deb rpm debug image; do
  if [[ " $formats " == *" $format "* ]]; then "make_$format"; fi
done
echo "needs glibc $glibc"
ls -l "$out"/holdfast[-_]"$version"[-_]* | awk '{ print $5, $NF }'
