"""Programs that pretend to be a package manager, or let one run them. Used by `realtime.py upgrade`.

In a script, `$T` is the file that it writes, in a watched folder, `$B` a folder of its own, `$APT`
apt-get with the bench's repository, and `$P` the prefix of all names.
"""

import os
import re
import subprocess

import upgrade_packages
from upgrade_packages import LIB, PREFIX, SHARE, STATE

TARGETS = f"{SHARE}/impostors"
# A library that writes the file of the environment variable TARGET before the program starts.
PRELOADED = """
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void run(void) {
  const char *path = getenv("TARGET");
  int fd = path ? open(path, O_WRONLY | O_CREAT | O_EXCL, 0644) : -1;
  if (fd >= 0) { write(fd, "x\\n", 2); close(fd); }
}
"""
NAMED = "printf '#!/bin/sh\\necho x > %s\\n' $T > $B/{0}; chmod 755 $B/{0}; {1}"
MOUNTED = "cp /bin/bash $B/copy; unshare -m sh -ec 'mount --bind $B/copy /usr/bin/dpkg; exec /usr/bin/dpkg -c \"{}\"'"

# The name, and the script.
IMPOSTORS = {
    "shell-named-dpkg": "cp /bin/bash $B/dpkg; $B/dpkg -c 'echo x > $T'",
    "copy-of-dpkg": "cp /usr/bin/dpkg $B/dpkg; $B/dpkg --pre-invoke='echo x > $T' --configure -a",
    "script-named-dpkg": NAMED.format("dpkg", "$B/dpkg -i x.deb"),
    "script-named-apt-get": NAMED.format("apt-get", "PATH=$B:$PATH; apt-get upgrade"),
    "script-named-unattended-upgrade": "printf 'open(\"%s\", \"w\").write(\"x\")' $T > $B/unattended-upgrade; "
    "/usr/bin/python3 $B/unattended-upgrade",
    "script-of-a-user-named-ansible": NAMED.format("ansible-playbook", "chown 65534 $B/ansible-playbook; sh $B/ansible-playbook"),
    "script-named-puppet-in-a-folder-of-all": NAMED.format("puppet", "chmod 1777 $B; sh $B/puppet agent"),
    "mounted-over-dpkg": MOUNTED.format("echo x > $T"),
    "below-one-mounted-over-dpkg": MOUNTED.format("touch $T; true"),
    "argv-is-dpkg": "bash -c 'exec -a /usr/bin/dpkg bash -c \"echo x > $T\"'",
    "comm-is-dpkg": "/usr/bin/python3 -c 'import ctypes; ctypes.CDLL(None).prctl(15, b\"dpkg\", 0, 0, 0); open(\"$T\", \"w\").write(\"x\")'",
    "dpkg-is-the-script-of-a-shell": "echo 'echo x > $T; exit' > $B/env; BASH_ENV=$B/env bash /usr/bin/dpkg -i x.deb",
    "dpkg-with-preloaded-library": "TARGET=$T LD_PRELOAD=$B/preloaded.so dpkg --version",
    "apt-with-preloaded-library": "TARGET=$T LD_PRELOAD=$B/preloaded.so apt-get --version",
    "dpkg-pre-invoke": "dpkg --pre-invoke='echo x > $T' --configure -a",
    "dpkg-post-invoke": "dpkg --post-invoke='touch $T' --configure -a",
    "dpkg-status-logger": "dpkg --status-logger='cat > $T' --configure $P-echo || dpkg --status-logger='cat > $T' -i $REPO/$P-echo_2.0_all.deb",
    "apt-dpkg-options": "$APT -o DPkg::Options::='--pre-invoke=touch $T' install --reinstall $P-plain02",
    "apt-dpkg-pre-invoke": "$APT -o DPkg::Pre-Invoke::='echo x > $T' install --reinstall $P-plain03",
    "apt-dpkg-post-invoke": "$APT -o DPkg::Post-Invoke::='cp /etc/hostname $T' install --reinstall $P-plain04",
    "apt-pre-install-pkgs": "$APT -o DPkg::Pre-Install-Pkgs::='cat > $T' install --reinstall $P-plain05",
    "apt-update-pre-invoke": "$APT -o APT::Update::Pre-Invoke::='echo x > $T' update",
    "apt-hook-of-a-file": "echo 'APT::Update::Post-Invoke { \"echo x > $T\"; };' > /etc/apt/apt.conf.d/99$P; $APT update; rm /etc/apt/apt.conf.d/99$P",
    "script-outside-of-info": "mkdir -p $B/var/lib/dpkg/info; echo 'echo x > $T' > $B/var/lib/dpkg/info/a.postinst; "
    "dpkg --pre-invoke=\"sh $B/var/lib/dpkg/info/a.postinst\" --configure -a",
    "script-of-info-as-an-argument": "dpkg --pre-invoke='touch $T /var/lib/dpkg/info/dpkg.postinst' --configure -a",
    "script-of-info-by-hand": "echo 'echo x > $T' > $B/env; BASH_ENV=$B/env bash /var/lib/dpkg/info/dpkg.postinst none",
    "content-of-a-package": f"cp {SHARE}/plain06/d1/data1 $T",
    "dpkg-extract": "mkdir -p $B/x$T; mv $B/x$T $B/f; mkdir -p $B/x/DEBIAN; rmdir $B/f; echo x > $B/x$T; "
    "cp $B/control $B/x/DEBIAN; dpkg-deb -Znone -b $B/x $B/x.deb; dpkg -x $B/x.deb /",
    "dpkg-with-own-database": "mkdir -p $B/x$T; rmdir $B/x$T; mkdir -p $B/x/DEBIAN $B/db/info $B/db/updates $B/db/triggers; : > $B/db/status; "
    "echo x > $B/x$T; cp $B/control $B/x/DEBIAN; dpkg-deb -Znone -b $B/x $B/x.deb; dpkg --admindir=$B/db --instdir=/ -i $B/x.deb",
    "script-with-own-database": "mkdir -p $B/x/DEBIAN $B/db/info $B/db/updates $B/db/triggers; : > $B/db/status; cp $B/control $B/x/DEBIAN; "
    "printf '#!/bin/sh\\necho x > %s\\n' $T > $B/x/DEBIAN/postinst; chmod 755 $B/x/DEBIAN/postinst; "
    "dpkg-deb -Znone -b $B/x $B/x.deb; dpkg --admindir=$B/db --instdir=/ -i $B/x.deb",
    "script-in-a-chroot": "r=$B/root; mkdir -p $r/bin $r/lib64 $r/lib/x86_64-linux-gnu $r/var/lib/dpkg/info $r/var/lib/dpkg/updates $r/mnt; "
    ": > $r/var/lib/dpkg/status; cp /bin/dash $r/bin/sh; cp /lib64/ld-linux-x86-64.so.2 $r/lib64; cp /lib/x86_64-linux-gnu/libc.so.6 $r/lib/x86_64-linux-gnu; "
    "mkdir -p $B/x/DEBIAN; cp $B/control $B/x/DEBIAN; printf '#!/bin/sh\\necho x > /mnt/%s\\n' $(basename $T) > $B/x/DEBIAN/postinst; "
    "chmod 755 $B/x/DEBIAN/postinst; dpkg-deb -Znone -b $B/x $B/x.deb; "
    "unshare -m sh -ec \"mount --bind $(dirname $T) $r/mnt; dpkg --root=$r --force-not-root --force-bad-path -i $B/x.deb\"",
    "dpkg-divert-by-hand": "echo x > $B/f; cp $B/f /usr/bin/$P-by-hand; sleep 1; dpkg-divert --local --rename --divert $T --add /usr/bin/$P-by-hand",
    "update-alternatives-by-hand": "update-alternatives --install $T $P-by-hand /bin/true 1",
    "statoverride-by-hand": "cp /bin/true $T; sleep 1; dpkg-statoverride --update --add root root 4755 $T",
    "daemon-of-a-script": "mkdir -p $B/x/DEBIAN; cp $B/control $B/x/DEBIAN; "
    "printf '#!/bin/sh\\nsetsid sh -c \"sleep 4; echo x > %s\" > /dev/null 2>&1 < /dev/null &\\n' $T > $B/x/DEBIAN/postinst; "
    "chmod 755 $B/x/DEBIAN/postinst; dpkg-deb -Znone -b $B/x $B/x.deb; dpkg -i $B/x.deb; sleep 5",
    "setuid-by-a-script": "cp /bin/true $T; sleep 1; mkdir -p $B/x/DEBIAN; cp $B/control $B/x/DEBIAN; printf '#!/bin/sh\\nchmod 4755 %s\\n' $T > $B/x/DEBIAN/postinst; "
    "chmod 755 $B/x/DEBIAN/postinst; dpkg-deb -Znone -b $B/x $B/x.deb; dpkg -i $B/x.deb",
}
# The one that opens a door as a script of a package: it must be explained with attention.
DOOR = f"/etc/sudoers.d/{PREFIX}"
DOOR_SCRIPT = (
    "mkdir -p $B/x/DEBIAN; cp $B/control $B/x/DEBIAN; printf '#!/bin/sh\\necho \"# none\" > %s\\n' $T > $B/x/DEBIAN/postinst; "
    "chmod 755 $B/x/DEBIAN/postinst; dpkg-deb -Znone -b $B/x $B/x.deb; dpkg -i $B/x.deb"
)


def run(base, apt):
    """Runs each impostor. Returns the file of each."""
    targets = {name: f"{TARGETS}/{name}" for name in IMPOSTORS}
    scripts = [(name, script, targets[name]) for name, script in IMPOSTORS.items()]
    for name, script, target in [*scripts, ("door", DOOR_SCRIPT, DOOR)]:
        folder = os.path.join(base, "impostors", name)
        os.makedirs(folder)
        upgrade_packages.write(
            f"{folder}/control",
            f"Package: {PREFIX}-{name}\nVersion: 1\nArchitecture: all\nMaintainer: a <a@example.org>\nDescription: none\n",
        )
        if "preloaded" in script:
            upgrade_packages.write(f"{folder}/preloaded.c", PRELOADED)
            subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", "preloaded.so", "preloaded.c"], cwd=folder, check=True)
        words = {"APT": apt.command(), "REPO": apt.repository, "T": target, "B": folder, "P": PREFIX}
        script = re.sub(r"\$(APT|REPO|T|B|P)\b", lambda found: words[found[1]], script)
        env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        done = subprocess.run(["bash", "-c", script], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=folder)
        # Some of the package managers fail after they have run the command.
        if not os.path.lexists(target):
            raise RuntimeError(f"{name} wrote nothing: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return targets


def clean_up():
    """Removes what impostors leave outside of the watched folder of the targets."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["dpkg-divert", "--local", "--no-rename", "--remove", f"/usr/bin/{PREFIX}-by-hand"], **quiet)
    subprocess.run(["update-alternatives", "--remove-all", f"{PREFIX}-by-hand"], **quiet)
    subprocess.run(["dpkg-statoverride", "--remove", f"{TARGETS}/statoverride-by-hand"], **quiet)
    for path in (DOOR, f"/usr/bin/{PREFIX}-by-hand", f"/etc/apt/apt.conf.d/99{PREFIX}"):
        if os.path.lexists(path):
            os.unlink(path)
