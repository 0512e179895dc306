"""Commands that a person types into an interactive shell, each of which changes one file, and the
program that changes it. Used by `realtime.py who`."""

import os
import pty
import re
import select
import shutil
import subprocess
import termios
import time

PROMPT = b"ready> "

# Name, command, program that makes the last change, words in its arguments. `{t}` is the target.
# A target that begins with `old` exists before with the content "a".
COMMANDS = [
    ("touch", "touch {t}", "touch", "{t}"),
    ("cp", "cp src {t}", "cp", "src {t}"),
    ("mv", "mv src-{t} {t}", "mv", "{t}"),
    ("ln", "ln src-{t} {t}", "ln", "{t}"),
    ("install", "install -m 600 src {t}", "install", "{t}"),
    ("truncate", "truncate -s 5 old-{t}", "truncate", "old-{t}"),
    ("tee", "tee {t} < src > /dev/null", "tee", "{t}"),
    ("sed -i", "sed -i s/a/b/ old-{t}", "sed", "old-{t}"),
    ("perl -i", "perl -i -pe s/a/b/ old-{t}", "perl", "old-{t}"),
    ("chmod", "chmod 600 old-{t}", "chmod", "old-{t}"),
    ("chown", "chown 1 old-{t}", "chown", "old-{t}"),
    ("setfacl", "setfacl -m u:1:r old-{t}", "setfacl", "old-{t}"),
    ("setfattr", "setfattr -n user.a -v b old-{t}", "setfattr", "old-{t}"),
    ("dd", "dd if=src of={t} status=none", "dd", "{t}"),
    ("tar x", "tar xf {t}.tar", "tar", "{t}.tar"),
    ("unzip", "unzip -qo {t}.zip", "unzip", "{t}.zip"),
    ("rsync", "rsync src {t}", "rsync", ""),
    ("patch", "patch -s old-{t} < change.patch", "patch", "old-{t}"),
    ("git checkout", "git -C repo-{t} checkout -q -- {t}", "git", "checkout"),
    ("vim", "vim -u NONE -es -c 'normal ox' -c wq old-{t}", "vim", "old-{t}"),
    ("python3 -c", "/usr/bin/python3 -c 'open(\"{t}\", \"w\").write(\"x\")'", "python3", "{t}"),
    ("busybox", "busybox touch {t}", "busybox", "{t}"),
    ("script with #!", "./with.sh {t}", "dash", "with.sh {t}"),
    ("script without #!", "./without.sh {t}", "bash", ""),
    ("sudo", "sudo touch {t}", "touch", "{t}"),
    ("su -c", "su root -c 'touch {t}'", "touch", "{t}"),
    ("env", "env touch {t}", "touch", "{t}"),
    ("nice", "nice touch {t}", "touch", "{t}"),
    ("echo >", "echo x > {t}", "bash", ""),
    ("cat >", "cat src > {t}", "cat", "src"),
    ("| tee", "cat src | tee {t} > /dev/null", "tee", "{t}"),
]
# What else the process ran when it changed the file.
EARLIER = {"cat >": {"bash"}}


def missing():
    """Returns the commands whose program is not installed."""
    words = {"setfacl", "setfattr", "unzip", "rsync", "patch", "git", "vim", "busybox", "sudo", "perl"}
    return sorted(word for word in words if shutil.which(word) is None)


def name_of(executable):
    """Returns the name of a program without its version or variant."""
    name = executable.rsplit("/", 1)[-1]
    return re.sub(r"^(python3|vim)\..*", r"\1", name)


def target_of(line, target):
    """Returns the name of the file that a command changes."""
    if f"old-{target}" in line:
        return f"old-{target}"
    return f"repo-{target}/{target}" if "repo-" in line else target


def prepare(folder, target, line):
    """Creates what a command needs."""
    path = os.path.join(folder, target_of(line, target))
    write = lambda path, text: open(path, "w").write(text)  # noqa: E731
    if "old-" in line:
        write(path, "a\n")
    if "src-" in line:
        write(os.path.join(folder, f"src-{target}"), "a\n")
    if ".tar" in line or ".zip" in line:
        write(path, "a\n")
        pack = ["tar", "cf", f"{target}.tar", target] if ".tar" in line else ["zip", "-q", f"{target}.zip", target]
        subprocess.run(pack, cwd=folder, check=True)
        os.unlink(path)
    if "repo-" in line:
        repo = os.path.dirname(path)
        os.mkdir(repo)
        write(path, "a\n")
        run = lambda *words: subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a", *words], cwd=repo, check=True)  # noqa: E731
        run("init", "-q")
        run("add", ".")
        run("commit", "-q", "-m", "a")
        write(path, "b\n")


def prepare_folder(folder):
    """Creates what all commands of a folder share."""
    files = {
        "src": "source\n",
        "with.sh": "#!/bin/sh\necho x > $1\n",
        "without.sh": "echo x > $1\n",
        "change.patch": "--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n",
    }
    for name, text in files.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
        os.chmod(os.path.join(folder, name), 0o755)


class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self, folder):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            env = dict(os.environ, PS1=PROMPT.decode(), TERM="dumb")
            os.execvpe("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], env)
        attributes = termios.tcgetattr(self.fd)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(self.fd, termios.TCSANOW, attributes)
        self.seen = b""
        self.wait()
        self.run("bind 'set enable-bracketed-paste off' 2>/dev/null; stty -echo; set +o history")

    def wait(self):
        end = time.monotonic() + 30
        while not self.seen.endswith(PROMPT):
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"no prompt: {self.seen[-500:]}"
            self.seen += os.read(self.fd, 65536)

    def run(self, line):
        self.seen = b""
        os.write(self.fd, line.encode() + b"\n")
        self.wait()

    def end(self):
        os.write(self.fd, b"exit\n")
        os.close(self.fd)
        os.waitpid(self.pid, 0)
