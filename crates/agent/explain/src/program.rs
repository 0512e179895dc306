//! Programs that explain changes: package managers, their helpers, tools of configuration
//! management, and the scripts of packages. Pure, except for the owner of scripts.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use model::{Candidate, ProcessInfo};

use crate::start;

/// The executable of dpkg.
pub(crate) const DPKG: &str = "/usr/bin/dpkg";
/// Package managers by their executable, with their name.
const PACKAGE_MANAGERS: &[(&str, &str)] = &[
    (DPKG, "dpkg"),
    ("/usr/bin/apt", "apt"),
    ("/usr/bin/apt-cache", "apt-cache"),
    ("/usr/bin/apt-get", "apt-get"),
    ("/usr/bin/apt-mark", "apt-mark"),
    ("/usr/bin/aptitude", "aptitude"),
    ("/usr/bin/aptitude-curses", "aptitude"),
    ("/usr/bin/dselect", "dselect"),
    ("/usr/libexec/packagekitd", "packagekit"),
    ("/usr/lib/packagekit/packagekitd", "packagekit"),
    ("/usr/sbin/synaptic", "synaptic"),
];
/// Package managers that are scripts for Python. A shell could run other code before a program that
/// it is given as a script.
const PACKAGE_MANAGER_SCRIPTS: &[(&str, &str)] = &[
    ("/usr/bin/unattended-upgrade", "unattended-upgrade"),
    ("/usr/share/unattended-upgrades/unattended-upgrade-shutdown", "unattended-upgrade"),
];
/// Programs that dpkg starts to unpack the control files of a package.
const UNPACKERS: &[&str] =
    &["/usr/bin/dpkg-deb", "/usr/bin/rm", "/usr/bin/tar", "/bin/rm", "/bin/tar"];
/// Folder of the programs that apt starts to fetch files.
const FETCHERS: &str = "/usr/lib/apt/methods";
/// Tools of configuration management by the file name of their script, and the interpreter that runs
/// it. None is a compiled program: an executable of such a name is a copy of something else. A shell
/// could run other code before the script.
const MANAGEMENT: &[(&str, &str, &str)] = &[
    ("ansible", "ansible", "python"),
    ("ansible-playbook", "ansible", "python"),
    ("ansible-pull", "ansible", "python"),
    ("chef-apply", "chef", "ruby"),
    ("chef-client", "chef", "ruby"),
    ("chef-solo", "chef", "ruby"),
    ("cinc-apply", "chef", "ruby"),
    ("cinc-client", "chef", "ruby"),
    ("cinc-solo", "chef", "ruby"),
    ("cloud-init", "cloud-init", "python"),
    ("puppet", "puppet", "ruby"),
    ("salt-call", "salt", "python"),
    ("salt-minion", "salt", "python"),
];
/// Folders of the scripts of these tools. Vendors and virtual environments have theirs below `/opt`.
const MANAGEMENT_FOLDERS: &[&str] = &["/usr/bin", "/usr/local/bin", "/root/.local/bin"];
const VENDORS: &str = "/opt";
/// Folders of the interpreters of these tools, besides those of the system.
const MANAGEMENT_INTERPRETER_FOLDERS: &[&str] = &[
    "/opt/chef/embedded/bin",
    "/opt/cinc/embedded/bin",
    "/opt/puppetlabs/puppet/bin",
    "/opt/saltstack/salt/bin",
    "/usr/local/bin",
];
/// Part of the path of a module that ansible copied to the host. It is removed after its run.
const ANSIBLE_MODULE: &str = "/.ansible/tmp/ansible-tmp-";
/// File names of interpreters, without a version.
const INTERPRETERS: &[&str] = &["python", "ruby", "perl", "sh", "bash", "dash"];
/// End of the path of dpkg's database.
const DATABASE: &str = "var/lib/dpkg";
/// Folders of dpkg's database that have the scripts of packages.
const SCRIPT_FOLDERS: [&str; 2] = ["info", "tmp.ci"];
/// The program that runs a package's script which asks questions.
const DEBCONF: &str = "/usr/share/debconf/frontend";
/// Folders of the system's interpreters, which run the scripts of packages. A copy elsewhere may be any
/// program of that name.
const INTERPRETER_FOLDERS: &[&str] = &["/bin", "/usr/bin"];
/// Options of Python that are followed by a value, or have it attached, and that run no code.
const OPTIONS_WITH_VALUE: &[&str] = &["-W", "-X"];
/// Value of `-X` with which Python loads compiled modules from another folder.
const OTHER_MODULES: &str = "pycache_prefix";
/// Flag in the first line of the scripts of chef.
const WITHOUT_GEMS: &str = "--disable-gems";

/// A program as a process ran it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program<'a> {
    /// Path of the executable; empty if it is not known.
    pub(crate) path: &'a str,
    arguments: &'a [String],
    working_directory: &'a str,
    foreign: bool,
}

impl<'a> Program<'a> {
    pub(crate) fn of_process(process: &'a ProcessInfo) -> Option<Self> {
        let ProcessInfo { arguments, working_directory, foreign, .. } = process;
        let path = &process.executable.as_ref()?.path;
        Some(Self { path, arguments, working_directory, foreign: *foreign })
    }

    pub(crate) fn of_candidate(candidate: &'a Candidate) -> Self {
        let Candidate { executable, arguments, working_directory, foreign, .. } = candidate;
        Self { path: &executable.path, arguments, working_directory, foreign: *foreign }
    }

    /// Returns the name of a package manager. One that the host does not have at its path is none, and
    /// neither is a dpkg that works on another system than that of `database`, its folder.
    pub(crate) fn manager(&self, database: &Path) -> Option<&'static str> {
        let of_script = || manager_of_script(self.path, &self.script()?);
        let is_other =
            self.foreign || self.path == DPKG && !start::is_of_database(self.arguments, database);
        manager_of_path(self.path).or_else(of_script).filter(|_| !is_other)
    }

    /// Returns true for a program that a package manager starts for this work.
    pub(crate) fn is_helper(&self, helper: Helper) -> bool {
        helper_of_path(self.path) == Some(helper) && !self.foreign
    }

    /// Returns true if dpkg was given commands that it runs before or after its work.
    pub(crate) fn has_hooks(&self) -> bool {
        self.path == DPKG && start::has_hooks(self.arguments)
    }

    /// Returns the name of a tool of configuration management.
    pub(crate) fn management(&self) -> Option<&'static str> {
        let script = self.script().filter(|_| !self.foreign)?;
        let tool = management_of_script(self.path, &script)?;
        let is_of_root =
            is_of_root(Path::new(self.path)) && (is_ansible_module(&script) || is_of_root(&script));
        is_of_root.then_some(tool)
    }

    /// Returns the name of the package's script that the program runs, such as `coreutils.postinst`.
    /// `database` is dpkg's folder.
    pub(crate) fn maintainer_script(&self, database: &Path) -> Option<&'a str> {
        let (folder, name) = self.script_of_database().filter(|_| !self.foreign)?;
        (folder == database).then_some(name)
    }

    /// Returns the database of a package whose script the program runs, and the script's name.
    fn script_of_database(&self) -> Option<(&'a Path, &'a str)> {
        let of_folder = |path: &'a str| {
            let path = Path::new(path);
            let (folder, name) = (path.parent()?, path.file_name()?.to_str()?);
            let database = folder.parent().filter(|database| database.ends_with(DATABASE))?;
            let is_folder = SCRIPT_FOLDERS.iter().any(|name| folder.ends_with(name));
            is_folder.then_some((database, name))
        };
        if let Some(found) = of_folder(self.path) {
            return Some(found);
        }
        let interpreter = system_interpreter(self.path)?;
        let mut words = self.arguments.iter().skip(1).map(String::as_str).peekable();
        // The kernel passes at most one argument of the first line of a script.
        words.next_if(|word| is_flag_of_first_line(interpreter, word));
        let script = words.next()?;
        of_folder(if script == DEBCONF { words.next()? } else { script })
    }

    /// Returns the absolute path of the script that an interpreter runs.
    fn script(&self) -> Option<PathBuf> {
        script_of(self.path, self.arguments.iter().map(String::as_str), self.working_directory)
    }
}

/// Work that a package manager leaves to another program, in a folder of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Helper {
    /// dpkg: the control files of a package.
    Unpack,
    /// apt: lists and packages, often as a user of its own.
    Fetch,
}

/// Returns the paths that decide whether a program explains changes, see `attribution::Identity`.
pub fn identity_paths(executable: &Path, arguments: &[u8], folder: &Path) -> Vec<PathBuf> {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let arguments: Vec<String> = arguments.split(|byte| *byte == 0).map(text).collect();
    let (Some(path), Some(folder)) = (executable.to_str(), folder.to_str()) else {
        return Vec::new();
    };
    let mut paths = Vec::new();
    if manager_of_path(path).is_some() || helper_of_path(path).is_some() {
        paths.push(executable.to_owned());
    }
    let script = script_of(path, arguments.iter().map(String::as_str), folder);
    let explains = |script: &PathBuf| {
        manager_of_script(path, script).or(management_of_script(path, script)).is_some()
    };
    if let Some(script) = script.filter(explains) {
        // Another interpreter can do anything with a script of the host.
        paths.extend([executable.to_owned(), script]);
    }
    let program =
        Program { path, arguments: &arguments, working_directory: folder, foreign: false };
    if let Some((database, _)) = program.script_of_database() {
        // dpkg runs the scripts of another system in a chroot. The script itself may be gone already.
        paths.extend([database.join("info"), database.to_owned()]);
        paths.extend(system_interpreter(path).map(|_| executable.to_owned()));
    }
    paths
}

fn manager_of_path(path: &str) -> Option<&'static str> {
    PACKAGE_MANAGERS.iter().find(|(known, _)| *known == path).map(|(_, name)| *name)
}

fn manager_of_script(executable: &str, script: &Path) -> Option<&'static str> {
    let path = script.to_str().filter(|_| system_interpreter(executable) == Some("python"))?;
    PACKAGE_MANAGER_SCRIPTS.iter().find(|(known, _)| *known == path).map(|(_, name)| *name)
}

fn helper_of_path(path: &str) -> Option<Helper> {
    if UNPACKERS.contains(&path) {
        return Some(Helper::Unpack);
    }
    (Path::new(path).parent()? == Path::new(FETCHERS)).then_some(Helper::Fetch)
}

fn management_of_script(executable: &str, script: &Path) -> Option<&'static str> {
    let is_of_tool = || {
        let folder = Path::new(executable).parent().and_then(Path::to_str)?;
        interpreter(executable).filter(|_| MANAGEMENT_INTERPRETER_FOLDERS.contains(&folder))
    };
    let interpreter = system_interpreter(executable).or_else(is_of_tool)?;
    if is_ansible_module(script) {
        return (interpreter == "python").then_some("ansible");
    }
    let folder = script.parent()?;
    let is_place = MANAGEMENT_FOLDERS.iter().any(|known| folder == Path::new(known))
        || folder.starts_with(VENDORS);
    let name = script.file_name()?.to_str().filter(|_| is_place)?;
    let is_it = |(known, _, by): &&(&str, &str, &str)| *known == name && *by == interpreter;
    MANAGEMENT.iter().find(is_it).map(|(_, tool, _)| *tool)
}

/// Returns true for an interpreter of Python.
pub(crate) fn is_python(executable: &Path) -> bool {
    executable.to_str().and_then(interpreter) == Some("python")
}

pub(crate) fn is_ansible_module(script: &Path) -> bool {
    let bytes = script.as_os_str().as_bytes();
    bytes.windows(ANSIBLE_MODULE.len()).any(|part| part == ANSIBLE_MODULE.as_bytes())
}

/// Returns the name of an interpreter without its version.
fn interpreter(executable: &str) -> Option<&'static str> {
    let name = Path::new(executable).file_name().and_then(OsStr::to_str)?;
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.iter().find(|known| **known == plain).copied()
}

/// Returns the name of an interpreter that lies in a folder of the system.
fn system_interpreter(executable: &str) -> Option<&'static str> {
    let folder = Path::new(executable).parent()?.to_str()?;
    interpreter(executable).filter(|_| INTERPRETER_FOLDERS.contains(&folder))
}

/// Returns true for flags that a first line such as `#!/bin/sh -e` may have, and that run no code.
fn is_flag_of_first_line(interpreter: &str, word: &str) -> bool {
    let allowed = match interpreter {
        "perl" => "wWtTX",
        "python" => "BEIsSu",
        "ruby" if word == WITHOUT_GEMS => return true,
        "ruby" => "wW012",
        _ => "aefhnuvx",
    };
    let letters = word.strip_prefix('-').unwrap_or_default();
    !letters.is_empty() && letters.chars().all(|letter| allowed.contains(letter))
}

fn script_of<'a>(
    executable: &str,
    arguments: impl Iterator<Item = &'a str>,
    folder: &str,
) -> Option<PathBuf> {
    let interpreter = interpreter(executable)?;
    let mut words = arguments.skip(1);
    while let Some(word) = words.next() {
        let value = OPTIONS_WITH_VALUE.iter().find_map(|option| word.strip_prefix(option));
        match value.filter(|_| interpreter == "python") {
            Some("") if words.next().is_none_or(|value| value.starts_with(OTHER_MODULES)) => {
                return None;
            }
            Some(value) if value.starts_with(OTHER_MODULES) => return None,
            Some(_) => {}
            None if !word.starts_with('-') => return Some(Path::new(folder).join(word)),
            None if is_flag_of_first_line(interpreter, word) => {}
            // Code may follow or be attached, such as `-c`, `-cCODE` or `-Mmodule`.
            None => return None,
        }
    }
    None
}

/// Returns true if the file belongs to root and others can neither change nor replace it. A file
/// that is gone is judged by its folders.
pub(crate) fn is_of_root(path: &Path) -> bool {
    let is_safe = |path: &Path, by_group: bool| match fs::metadata(path) {
        Ok(meta) => {
            let writable = if by_group && meta.gid() != 0 { 0o022 } else { 0o002 };
            meta.uid() == 0 && meta.mode() & writable == 0
        }
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    };
    // Debian's `/usr/local` is writable by a group.
    is_safe(path, true) && path.ancestors().skip(1).all(|folder| is_safe(folder, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_of_a_package_script_is_that_of_its_database() {
        let paths = |executable: &str, line: &str| {
            let arguments = line.replace(' ', "\0");
            identity_paths(Path::new(executable), arguments.as_bytes(), Path::new("/"))
        };
        let script = "sh -e /var/lib/dpkg/info/a.postinst configure 1";
        let database = ["/var/lib/dpkg/info", "/var/lib/dpkg", "/usr/bin/dash"].map(PathBuf::from);
        assert_eq!(paths("/usr/bin/dash", script), database);
        assert!(paths("/root/sh", script).is_empty(), "a program of any kind");
        assert!(paths("/usr/bin/dash", "sh /srv/info/a.postinst").is_empty());
        assert_eq!(paths("/usr/bin/dpkg", "dpkg -i x"), [PathBuf::from("/usr/bin/dpkg")]);
    }

    #[test]
    fn code_in_an_option_is_no_script() {
        let script = |executable: &str, line: &str| script_of(executable, line.split(' '), "/");
        let tool = Some(PathBuf::from("/usr/bin/cloud-init"));
        for line in [
            "python3 /usr/bin/cloud-init",
            "python3 -Es -W ignore -Xutf8 /usr/bin/cloud-init",
            "python3 -I /usr/bin/cloud-init",
        ] {
            assert_eq!(script("/usr/bin/python3.11", line), tool, "{line}");
        }
        for (executable, line) in [
            ("/usr/bin/python3", "python3 -ccode /usr/bin/cloud-init"),
            ("/usr/bin/python3", "python3 -Ic code /usr/bin/cloud-init"),
            ("/usr/bin/python3", "python3 -mmodule /usr/bin/cloud-init"),
            ("/usr/bin/python3", "python3 -X pycache_prefix=x /usr/bin/cloud-init"),
            ("/usr/bin/python3", "python3 -Xpycache_prefix=x /usr/bin/cloud-init"),
            ("/usr/bin/perl", "perl -Mmodule /usr/bin/cloud-init"),
            ("/usr/bin/perl", "perl -ecode /usr/bin/cloud-init"),
            ("/usr/bin/ruby", "ruby -r./code /usr/bin/cloud-init"),
            ("/bin/sh", "sh -ec code /usr/bin/cloud-init"),
        ] {
            assert_eq!(script(executable, line), None, "{line}");
        }
    }

    #[test]
    fn tool_of_management_is_a_script_at_its_place() {
        let tool = |executable: &str, script: &str| {
            management_of_script(executable, Path::new(script)).is_some()
        };
        for (executable, script) in [
            ("/usr/bin/python3.11", "/usr/bin/cloud-init"),
            ("/usr/bin/ruby3.1", "/usr/bin/puppet"),
            ("/opt/puppetlabs/puppet/bin/ruby", "/opt/puppetlabs/puppet/bin/puppet"),
            ("/opt/chef/embedded/bin/ruby", "/usr/bin/chef-client"),
            ("/opt/saltstack/salt/bin/python3.10", "/usr/bin/salt-minion"),
            ("/usr/bin/python3.11", "/opt/venv/bin/ansible-playbook"),
            ("/usr/bin/python3.11", "/home/a/.ansible/tmp/ansible-tmp-1/AnsiballZ_copy.py"),
        ] {
            assert!(tool(executable, script), "{executable} {script}");
        }
        for (executable, script) in [
            ("/usr/bin/bash", "/usr/bin/cloud-init"),
            ("/usr/bin/bash", "/root/.ansible/tmp/ansible-tmp-1/AnsiballZ_copy.py"),
            ("/usr/bin/python3.11", "/usr/bin/puppet"),
            ("/usr/bin/ruby3.1", "/srv/puppet"),
            ("/srv/ruby", "/usr/bin/puppet"),
        ] {
            assert!(!tool(executable, script), "{executable} {script}");
        }
        let copy = identity_paths(Path::new("/usr/bin/puppet"), b"puppet\0", Path::new("/"));
        assert!(copy.is_empty(), "a compiled program is none of the tools");
        let chef = "ruby --disable-gems /usr/bin/chef-client";
        let chef = script_of("/opt/chef/embedded/bin/ruby", chef.split(' '), "/");
        assert_eq!(chef, Some(PathBuf::from("/usr/bin/chef-client")));
    }
}
