"""An upgrade of 50 packages by the real apt-get on the real system, while another process plants
files, and impostors of package managers. The command `realtime.py upgrade`.

Everything has the prefix `holdfast-bench` and is removed at the end, also after an error.
"""

import os
import shutil
import subprocess
import threading
import time

import upgrade_impostors
import upgrade_packages
from upgrade_packages import ETC, LIB, PREFIX, SHARE, STATE

PLANTED = 40
# The agent reports files that existed for a moment after a minute, and looks every 30 s.
TRANSIENT_S = 95
# Packages of Debian that are installed again where they are installed and their files are offered.
AGAIN = (
    "fontconfig hostname man-db shared-mime-info ucf sgml-base xml-core sensible-utils media-types "
    "libc-bin debconf procps netbase"
).split()
# Packages of Debian that are installed and purged where they are not installed.
FRESH = "at cron iputils-ping logrotate".split()
# Folders of the default paths, and those that the packages have besides.
WATCHED = [
    "/etc", "/usr/bin", "/usr/sbin", "/usr/lib/systemd", LIB, SHARE, STATE,
    "/usr/share/man", "/usr/share/doc", "/usr/share/mime", "/var/cache/man",
]


def prepare():
    """Creates what must exist before the agent starts."""
    door = os.path.dirname(upgrade_impostors.DOOR)
    for folder in (f"{SHARE}/impostors", f"{SHARE}/planted", LIB, ETC, STATE, door):
        os.makedirs(folder, exist_ok=True)


def snapshot():
    """Returns what `lstat` has of each file and link below the watched folders."""
    found = {}
    for top in WATCHED:
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                at = os.lstat(path)
                found[path] = (at.st_ino, at.st_mode, at.st_uid, at.st_gid, at.st_size, at.st_mtime_ns)
    return found


class Planter(threading.Thread):
    """Writes files into the folders of the packages while they are upgraded, each in another way."""

    WAYS = [
        "echo x > {path}",
        "cp /etc/hostname {path}",
        "touch {path}",
        "echo x > {path}.dpkg-new; mv {path}.dpkg-new {path}",
        "cp {own} {path}",
        "ln -s /etc/hostname {path}",
        "mkdir {path}",
        "cp /bin/true {path}; chmod 4755 {path}",
        "touch {path}; rm {path}",
    ]
    FOLDERS = ["/usr/bin", "/etc", ETC, LIB, SHARE, f"{SHARE}/plain01/d1", f"{SHARE}/plain08/new", "/etc/cron.d", "/usr/lib/systemd/system", f"{SHARE}/planted"]

    def __init__(self, pause_s):
        super().__init__(daemon=True)
        self.pause_s, self.planted, self.ending = pause_s, [], False

    def run(self):
        while len(self.planted) < PLANTED and not self.ending:
            number = len(self.planted)
            folder = self.FOLDERS[number % len(self.FOLDERS)]
            if not os.path.isdir(folder):
                folder = SHARE
            path = f"{folder}/{PREFIX}-planted{number}"
            way = self.WAYS[(number + number // len(self.WAYS)) % len(self.WAYS)]
            script = way.format(path=path, own=f"/usr/bin/{PREFIX}-plain02")
            subprocess.run(["sh", "-c", script], stderr=subprocess.DEVNULL)
            self.planted.append(path)
            time.sleep(self.pause_s)

    def end(self):
        self.ending = True
        self.join()
        return [path for path in self.planted if os.path.lexists(path)]


def is_explained(change):
    return change["cause"]["kind"] != "unexplained"


def has_attention(change):
    return change["cause"].get("attention", False)


def is_planted(change):
    names = [change["path"], *(change.get("transient") or {}).get("names", [])]
    return any(f"{PREFIX}-planted" in name for name in names)


def told(change):
    """Returns a change in a line, for what misses its goal."""
    process = change.get("process") or {}
    chain = [process.get("command_line") or process.get("attribution") or "?"]
    chain += [one.get("command_line", "?") for one in (process.get("parent"), *process.get("ancestors", [])) if one]
    names = (change.get("transient") or {}).get("names", "")
    return f"{change['kind']} {change['path']} {names} {change['cause']} | {' <- '.join(word[:90] for word in chain[:4])}"


def report_share(case, changes, row):
    """Counts the explained changes and prints those that are not."""
    moments = [one for one in changes if one["kind"] == "transient"]
    files = [one for one in changes if one["path"].startswith("/") and one not in moments]
    packages = [one for one in changes if not one["path"].startswith("/")]
    for name, items in (("files", files), ("packages", packages), ("moments", moments)):
        if not items:
            continue
        explained = [one for one in items if is_explained(one)]
        for one in items:
            if not is_explained(one):
                print(f"  unexplained: {told(one)}")
        row(case, name, "changes", len(items), "", 1)
        row(case, name, "explained_share", len(explained) / len(items), "", len(items))
    attention = [one for one in changes if is_explained(one) and has_attention(one)]
    for one in attention:
        print(f"  attention: {told(one)}")
    row(case, "all", "attention", len(attention), "", len(changes))


def report_unexplained(case, paths, changes, row):
    """Counts the paths whose newest change is explained: there should be none."""
    newest = {}
    for change in changes:
        newest.setdefault(change["path"], change)
    missing = [path for path in paths if path not in newest]
    assert not missing, f"not reported: {missing}"
    found = [newest[path] for path in paths if is_explained(newest[path])]
    for change in found:
        print(f"  explained: {told(change)}")
    row(case, "holdfast", "explained", len(found), "", len(paths))


def measure(up, base, row, quick):
    """Runs the case. `up` is a server and an agent that are not started yet. The short run leaves the
    packages of Debian out."""
    os.chmod(base, 0o755)
    apt = upgrade_packages.Apt(base)
    before = upgrade_packages.installed()
    prepare()
    try:
        names = upgrade_packages.build(base)
        apt.offer(1)
        apt.run("install", *names)
        with open(f"{ETC}/edited.conf", "a") as out:
            out.write("# by the administrator\n")
        apt.offer(2)
        up.start(path for path in WATCHED if os.path.isdir(path))
        up.settle()
        try:
            cases(up, base, apt, names, row, quick)
        finally:
            up.stop()
    finally:
        clean_up(before)


def cases(up, base, apt, names, row, quick):
    since, before = up.newest(), snapshot()
    planter = Planter(0.02)
    planter.start()
    apt.run("dist-upgrade")
    planted = planter.end()
    finish(up, since + len(names) + len(planted))
    changes, after = up.changes(since), snapshot()
    case = f"upgrade of {len(names)} packages"
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    unreported = changed - {one["path"] for one in changes}
    for path in sorted(unreported):
        print(f"  not reported: {path}")
    row(case, "holdfast", "unreported", len(unreported), "files", len(changed))
    report_share(case, [one for one in changes if not is_planted(one)], row)
    case = f"{len(planted)} planted files"
    report_unexplained(case, planted, changes, row)
    moments = [one for one in changes if one["kind"] == "transient" and is_planted(one)]
    row(case, "moments", "explained", sum(map(is_explained, moments)), "", len(moments))
    if not quick:
        packages_of_debian(up, apt, row)
    since = up.newest()
    targets = upgrade_impostors.run(base, apt)
    up.settle(since + len(targets))
    changes = up.changes(since)
    report_unexplained(f"{len(targets)} impostors", list(targets.values()), changes, row)
    door = [one for one in changes if one["path"] == upgrade_impostors.DOOR]
    assert door, "the door of a script was not reported"
    marked = [one for one in door if has_attention(one) or not is_explained(one)]
    row("sudoers by a script", "holdfast", "listed_share", len(marked) / len(door), "", len(door))


def packages_of_debian(up, apt, row):
    """Installs packages of Debian again, and installs and purges others."""
    since, again = up.newest(), offered_again(apt)
    before = upgrade_packages.installed()
    fresh = [name for name in FRESH if name not in before]
    added = steps(apt, "install", "--no-install-recommends", *fresh) if fresh else []
    if again:
        apt.run("install", "--reinstall", *again, own=False)
    if added:
        apt.run("install", "--no-install-recommends", *fresh, own=False)
        apt.run("purge", *added, own=False)
    finish(up, since + len(again))
    case = f"{len(again)} packages again, {len(added)} in and out"
    report_share(case, up.changes(since), row)


def finish(up, least):
    """Waits until all has arrived, also the files that existed for a moment."""
    up.settle(least)
    time.sleep(TRANSIENT_S)
    up.settle(least)


def steps(apt, *words):
    """Returns the packages that apt would install or remove, if it can download them."""
    try:
        plan = apt.run("-s", *words, own=False)
        apt.run("--download-only", *words, own=False)
    except RuntimeError as e:
        print(f"  {words[-1]} is left out: {str(e).strip().splitlines()[-1]}")
        return []
    lines = [line.split() for line in plan.splitlines()]
    return [words[1] for words in lines if words and words[0] in ("Inst", "Remv")]


def offered_again(apt):
    """Returns the packages that can be installed again without any other change."""
    present = {name.split(":")[0] for name in upgrade_packages.installed()}
    names = [name for name in AGAIN if name in present]
    return [name for name in names if steps(apt, "install", "--reinstall", name) == [name]][:10]


def clean_up(before):
    """Removes the packages and files of the bench."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    upgrade_impostors.clean_up()
    added = upgrade_packages.installed() - before
    added = sorted(name for name in added if name.startswith(PREFIX) or name in FRESH)
    if added:
        env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        # Folders with planted files stay until below, of which dpkg warns.
        command = ["dpkg", "--force-depends", "--purge", *added]
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stderr)
    subprocess.run(["deluser", "--quiet", "--system", PREFIX], **quiet)
    for folder in (SHARE, LIB, ETC, STATE):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in ("/usr/bin", "/etc", "/etc/cron.d", "/etc/systemd/system", "/usr/lib/systemd/system"):
        for name in os.listdir(folder):
            if name.startswith(f"{PREFIX}-"):
                path = os.path.join(folder, name)
                shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    try:
        os.rmdir(os.path.dirname(upgrade_impostors.DOOR))
    except OSError:
        pass  # It has other files.
