"""Packages in two versions and a repository of them. Used by `realtime.py upgrade`."""

import os
import shutil
import subprocess

PREFIX = "holdfast-bench"
LIB, SHARE, ETC, STATE = (f"/{top}/{PREFIX}" for top in ("usr/lib", "usr/share", "etc", "var/lib"))
# Packages with files alone.
PLAIN = 24
MULTIARCH = "/usr/lib/x86_64-linux-gnu"


class Package:
    """A package as both versions of it are built."""

    def __init__(self, name, files=(), links=(), conffiles=(), modes=None, control="", **scripts):
        self.name, self.files, self.links = f"{PREFIX}-{name}", list(files), list(links)
        self.conffiles, self.modes, self.control = list(conffiles), modes or {}, control
        # The names of files that only one of the versions has end with its number.
        self.triggers = scripts.pop("triggers", "")
        self.script_interpreter = scripts.pop("interpreter", "#!/bin/sh -e")
        self.scripts = scripts

    def build(self, folder, version):
        """Writes the package file of a version into a folder."""
        tree = os.path.join(folder, "tree")
        shutil.rmtree(tree, ignore_errors=True)
        os.makedirs(os.path.join(tree, "DEBIAN"))
        for path in self.files + self.conffiles:
            other = "@2" if version == 1 else "@1"
            if path.endswith(other):
                continue
            write(tree + path.removesuffix(f"@{version}"), self.text(path, version))
        for path, target in self.links:
            os.makedirs(os.path.dirname(tree + path), exist_ok=True)
            os.symlink(target.format(v=version), tree + path)
        for path, mode in self.modes.items():
            os.chmod(tree + path, mode)
        self.write_control(tree, version)
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, folder],
            check=True, stdout=subprocess.DEVNULL,
        )
        shutil.rmtree(tree)

    def text(self, path, version):
        if path.startswith(("/usr/bin/", "/usr/sbin/")):
            return f"#!/bin/sh\necho {path} {version}\n"
        if ".service" in path:
            return f"[Unit]\nDescription=version {version}\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
        if path.startswith("/etc/cron.d/"):
            return f"# version {version}\n"
        return f"{path} {version}\n" * 20

    def write_control(self, tree, version):
        control = f"Package: {self.name}\nVersion: {version}.0\nMaintainer: a <a@example.org>\n"
        control += "" if "Architecture:" in self.control else "Architecture: all\n"
        control += self.control.format(v=version) + f"Description: for a bench\n"
        write(f"{tree}/DEBIAN/control", control)
        if self.conffiles:
            other = "@2" if version == 1 else "@1"
            kept = [path.removesuffix(f"@{version}") for path in self.conffiles if not path.endswith(other)]
            write(f"{tree}/DEBIAN/conffiles", "".join(f"{path}\n" for path in kept))
        if self.triggers:
            write(f"{tree}/DEBIAN/triggers", self.triggers)
        for name, text in self.scripts.items():
            text = f"{self.script_interpreter}\n{text}\n".replace("VERSION", str(version))
            write(f"{tree}/DEBIAN/{name}", text)
            os.chmod(f"{tree}/DEBIAN/{name}", 0o755)
        script = "find . -type f ! -path './DEBIAN/*' -printf '%P\\0' | xargs -0r md5sum > DEBIAN/md5sums"
        subprocess.run(["sh", "-ec", script], cwd=tree, check=True)


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as out:
        out.write(text)


def plain(number):
    """A package with files alone; every fourth is large, some are for several architectures."""
    name, many = f"plain{number:02}", 120 if number % 8 == 0 else 8
    files = [f"/usr/bin/{PREFIX}-{name}", f"{SHARE}/{name}/old@1", f"{SHARE}/{name}/new/file@2"]
    files += [f"{SHARE}/{name}/d{n % 7}/data{n}" for n in range(many)]
    links = [(f"{SHARE}/{name}/current", "version-{v}")]
    control = "Architecture: amd64\nMulti-Arch: same\n" if number % 6 == 0 else ""
    return Package(name, files, links, control=control)


def scripted():
    """Packages whose scripts do what those of Debian do, and what the script changes besides."""
    tool = lambda name: f"/usr/bin/{PREFIX}-{name}"  # noqa: E731
    generated = lambda name: f"{ETC}/{name}.generated"  # noqa: E731
    helper = "dpkg-maintscript-helper"
    return [
        Package("conf", [tool("conf")], conffiles=[f"{ETC}/conf.conf", f"{ETC}/conf.d/a"]),
        Package("edited", [tool("edited")], conffiles=[f"{ETC}/edited.conf"]),
        Package("cron", [tool("cron")], conffiles=[f"/etc/cron.d/{PREFIX}", f"/etc/cron.daily/{PREFIX}"]),
        Package("logrotate", conffiles=[f"/etc/logrotate.d/{PREFIX}", f"/etc/default/{PREFIX}"]),
        Package(
            "obsolete", [tool("obsolete")], conffiles=[f"{ETC}/obsolete.conf@1", f"{ETC}/renamed.old@1", f"{ETC}/renamed.new@2"],
            **{script: f'{helper} rm_conffile {ETC}/obsolete.conf 1.5~ -- "$@"\n'
                       f'{helper} mv_conffile {ETC}/renamed.old {ETC}/renamed.new 1.5~ -- "$@"'
               for script in ("preinst", "postinst", "postrm")},
        ),
        Package("echo", [tool("echo")], postinst=f"mkdir -p {ETC}; echo VERSION > {generated('echo')}"),
        Package(
            "sed", [tool("sed")],
            postinst=f"mkdir -p {ETC}; [ -e {generated('sed')} ] || echo version 0 > {generated('sed')}\n"
                     f"sed -i 's/version .*/version VERSION/' {generated('sed')}",
        ),
        Package(
            "mv", [tool("mv")],
            postinst=f"mkdir -p {ETC}; t=$(mktemp {ETC}/mv.XXXXXX); echo VERSION | tee $t > /dev/null\n"
                     f"chmod 644 $t; mv $t {generated('mv')}",
        ),
        Package("install", [tool("install")], postinst=f"install -D -m 640 {tool('install')} {generated('install')}"),
        Package(
            "perl", [tool("perl")], interpreter="#!/usr/bin/perl -w",
            postinst=f"use strict; mkdir '{ETC}'; open(my $f, '>', '{generated('perl')}') or die; print $f 'VERSION';",
        ),
        Package(
            "python", [tool("python")], interpreter="#!/usr/bin/python3",
            postinst=f"import os, subprocess\nos.makedirs('{ETC}', exist_ok=True)\nopen('{generated('python')}', 'w').write('VERSION')\n"
                     f"subprocess.run(['sh', '-c', 'echo VERSION > {ETC}/python.child'], check=True)",
        ),
        Package(
            "debconf", [tool("debconf")], interpreter="#!/bin/sh -e\n. /usr/share/debconf/confmodule",
            postinst=f"mkdir -p {ETC}; echo VERSION > {generated('debconf')}",
        ),
        Package("preinst", [tool("preinst")], preinst=f"mkdir -p {ETC}; echo VERSION > {generated('preinst')}"),
        Package(
            "prerm", [tool("prerm")], postinst=f"mkdir -p {STATE}; echo VERSION > {STATE}/prerm.cache",
            prerm=f"rm -f {STATE}/prerm.cache; echo VERSION > {generated('prerm')}",
        ),
        Package("setuid", [tool("setuid"), f"{LIB}/setgid"], modes={tool("setuid"): 0o4755, f"{LIB}/setgid": 0o2755}),
        Package("chmod", [tool("chmod")], postinst=f"chmod 4755 {tool('chmod')}"),
        Package("setcap", [tool("setcap")], postinst=f"setcap cap_net_raw+ep {tool('setcap')}"),
        Package(
            "unit", [f"/lib/systemd/system/{PREFIX}.service"],
            postinst=f"deb-systemd-helper unmask {PREFIX}.service > /dev/null || :\n"
                     f"deb-systemd-helper enable {PREFIX}.service > /dev/null || :\n"
                     f"deb-systemd-helper update-state {PREFIX}.service > /dev/null || :",
            postrm=f"if [ \"$1\" = purge ]; then deb-systemd-helper purge {PREFIX}.service > /dev/null || :; fi",
        ),
        Package(
            "newunit", [f"/usr/lib/systemd/system/{PREFIX}-new.service@2", tool("newunit")],
            postinst=f"if [ VERSION = 2 ]; then deb-systemd-helper enable {PREFIX}-new.service > /dev/null || :; fi",
            postrm=f"if [ \"$1\" = purge ]; then deb-systemd-helper purge {PREFIX}-new.service > /dev/null || :; fi",
        ),
        Package(
            "alternative", [tool("editor1"), tool("editor2")],
            postinst=f"update-alternatives --quiet --install /usr/bin/{PREFIX}-editor {PREFIX}-editor {tool('editorVERSION')} VERSION0",
            prerm=f"[ \"$1\" != remove ] || for n in 1 2; do update-alternatives --quiet --remove {PREFIX}-editor {tool('editor')}$n; done",
        ),
        Package("ldconfig", [f"{MULTIARCH}/lib{PREFIX}.so.1"], triggers="activate-noawait ldconfig\n"),
        Package(
            "trigger", [tool("trigger")], triggers=f"interest-noawait {SHARE}\n",
            postinst=f"mkdir -p {STATE}; find {SHARE} -type f | sort > {STATE}/index.new; mv {STATE}/index.new {STATE}/index\n"
                     f"echo \"$1\" >> {STATE}/runs",
        ),
        Package(
            "divert", [f"{tool('plain01')}@2", tool("divert")],
            preinst=f"if [ VERSION = 2 ]; then dpkg-divert --quiet --package {PREFIX}-divert --rename --divert {tool('plain01')}.real --add {tool('plain01')}; fi",
            postrm=f"if [ \"$1\" = remove ]; then dpkg-divert --quiet --package {PREFIX}-divert --rename --remove {tool('plain01')}; fi",
        ),
        Package(
            "user", [tool("user")],
            postinst=f"adduser --quiet --system --group --no-create-home --home {STATE} {PREFIX}; mkdir -p {STATE}/user\n"
                     f"chown {PREFIX} {STATE}/user; echo VERSION > {STATE}/user/version",
        ),
        Package("moved-from", [f"{LIB}/moved@1", tool("from")]),
        Package("moved-to", [f"{LIB}/moved@2", tool("to")], control=f"Replaces: {PREFIX}-moved-from (<< {{v}})\nBreaks: {PREFIX}-moved-from (<< {{v}})\n"),
        Package("ask", [tool("ask")], control="Depends: debconf\n", postinst=f"ucf --three-way --debconf-ok {tool('ask')} {ETC}/ucf.conf < /dev/null",
                postrm=f"if [ \"$1\" = purge ]; then rm -f {ETC}/ucf.conf; ucf --purge {ETC}/ucf.conf; fi"),
    ]


def packages():
    return [plain(n) for n in range(PLAIN)] + scripted()


def build(base):
    """Builds both versions of all packages. Returns their names."""
    every = packages()
    for version in (1, 2):
        folder = os.path.join(base, f"version{version}")
        os.makedirs(folder)
        for package in every:
            package.build(folder, version)
    return [package.name for package in every]


class Apt:
    """apt with the bench's repository alone, on the real system."""

    def __init__(self, base):
        self.base, self.repository = base, os.path.join(base, "repository")
        lists, cache = os.path.join(base, "lists"), os.path.join(base, "cache")
        for folder in (self.repository, f"{lists}/partial", f"{cache}/archives/partial"):
            os.makedirs(folder, exist_ok=True)
        write(f"{base}/sources.list", f"deb [trusted=yes] file:{self.repository} ./\n")
        self.options = ["-q", "-y", "-o", "DPkg::Lock::Timeout=300", "-o", "APT::Sandbox::User=root"]
        self.options += ["-o", "DPkg::Options::=--force-confold", "-o", "APT::Get::Never-Include-Phased-Updates=true"]
        self.own = ["-o", f"Dir::Etc::SourceList={base}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null"]
        self.own += ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={cache}"]

    def command(self):
        """Returns the command for a shell, with the bench's repository."""
        return " ".join(["apt-get", *self.options, *self.own])

    def offer(self, version):
        """Puts the packages of a version into the repository."""
        folder = os.path.join(self.base, f"version{version}")
        for name in os.listdir(folder):
            shutil.copy(os.path.join(folder, name), self.repository)
        with open(f"{self.repository}/Packages", "w") as out:
            subprocess.run(["dpkg-scanpackages", "-m", "."], cwd=self.repository, check=True, stdout=out, stderr=subprocess.DEVNULL)
        self.run("update")

    def run(self, *words, own=True):
        """Runs apt-get. Returns its output, and raises an error with it where it fails."""
        env = dict(os.environ, DEBIAN_FRONTEND="noninteractive", NEEDRESTART_SUSPEND="1")
        command = ["apt-get", *self.options, *(self.own if own else []), *words]
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout


def installed():
    """Returns the names of all packages that are not completely removed."""
    text = subprocess.check_output(["dpkg-query", "-W", "-f", "${binary:Package}\\n"], text=True)
    return set(text.split())
