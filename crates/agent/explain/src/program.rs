//! Programs that explain changes: package managers, tools of configuration management, and the
//! scripts of packages. Pure, except for the owner of scripts.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use model::{Candidate, ProcessInfo};

/// The executable of dpkg.
pub(crate) const DPKG: &str = "/usr/bin/dpkg";
/// Package managers by their executable or script, with their name.
const PACKAGE_MANAGERS: &[(&str, &str)] = &[
    (DPKG, "dpkg"),
    ("/usr/bin/apt", "apt"),
    ("/usr/bin/apt-get", "apt-get"),
    ("/usr/bin/aptitude", "aptitude"),
    ("/usr/bin/aptitude-curses", "aptitude"),
    ("/usr/bin/dselect", "dselect"),
    ("/usr/bin/unattended-upgrade", "unattended-upgrade"),
    ("/usr/libexec/packagekitd", "packagekit"),
    ("/usr/lib/packagekit/packagekitd", "packagekit"),
    ("/usr/sbin/synaptic", "synaptic"),
];
/// Tools of configuration management by the file name of their executable or script.
const MANAGEMENT: &[(&str, &str)] = &[
    ("ansible", "ansible"),
    ("ansible-playbook", "ansible"),
    ("ansible-pull", "ansible"),
    ("chef-apply", "chef"),
    ("chef-client", "chef"),
    ("chef-solo", "chef"),
    ("cinc-apply", "chef"),
    ("cinc-client", "chef"),
    ("cinc-solo", "chef"),
    ("cloud-init", "cloud-init"),
    ("puppet", "puppet"),
    ("salt-call", "salt"),
    ("salt-minion", "salt"),
];
/// Part of the path of a module that ansible copied to the host. It is removed after its run.
const ANSIBLE_MODULE: &str = "/.ansible/tmp/ansible-tmp-";
/// File names of interpreters, without a version.
const INTERPRETERS: &[&str] = &["python", "ruby", "perl", "sh", "bash", "dash"];
/// The program that runs a package's script which asks questions.
const DEBCONF: &str = "/usr/share/debconf/frontend";
/// Options of interpreters that are followed by a value.
const OPTIONS_WITH_VALUE: &[&str] = &["-W", "-X", "-I", "-r", "-o"];

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

    /// Returns the name of a package manager. One that the host does not have at its path is none.
    pub(crate) fn manager(&self) -> Option<&'static str> {
        let of_script = || self.script().and_then(|path| manager_of_path(path.to_str()?));
        manager_of_path(self.path).or_else(of_script).filter(|_| !self.foreign)
    }

    /// Returns the name of a tool of configuration management.
    pub(crate) fn management(&self) -> Option<&'static str> {
        if self.foreign {
            return None;
        }
        let by_name = |path: &Path| {
            let tool = management_of_path(path)?;
            is_of_root(path).then_some(tool)
        };
        if let Some(found) = by_name(Path::new(self.path)) {
            return Some(found);
        }
        let script = self.script()?;
        if is_ansible_module(&script) {
            return Some("ansible");
        }
        by_name(&script)
    }

    /// Returns the name of the package's script that the program runs, such as `coreutils.postinst`.
    /// `database` is dpkg's folder.
    pub(crate) fn maintainer_script(&self, database: &Path) -> Option<&'a str> {
        let of_folder = |path: &'a str| {
            let path = Path::new(path);
            let folder = path.parent()?;
            let is_folder = ["info", "tmp.ci"].iter().any(|name| folder == database.join(name));
            is_folder.then(|| path.file_name()?.to_str()).flatten()
        };
        if let Some(name) = of_folder(self.path) {
            return Some(name);
        }
        let interpreter = interpreter(self.path)?;
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

/// Returns the paths that decide whether a program explains changes, see
/// `attribution::IdentityPaths`.
pub fn identity_paths(executable: &Path, arguments: &[u8], folder: &Path) -> Vec<PathBuf> {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let arguments: Vec<String> = arguments.split(|byte| *byte == 0).map(text).collect();
    let (Some(path), Some(folder)) = (executable.to_str(), folder.to_str()) else {
        return Vec::new();
    };
    let explains = |path: &Path| {
        path.to_str().and_then(manager_of_path).or(management_of_path(path)).is_some()
            || is_ansible_module(path)
    };
    let mut paths = Vec::new();
    if explains(executable) {
        paths.push(executable.to_owned());
    }
    let script = script_of(path, arguments.iter().map(String::as_str), folder);
    if let Some(script) = script.filter(|script| explains(script)) {
        // Another interpreter can do anything with a script of the host.
        paths.extend([executable.to_owned(), script]);
    }
    paths
}

fn manager_of_path(path: &str) -> Option<&'static str> {
    PACKAGE_MANAGERS.iter().find(|(known, _)| *known == path).map(|(_, name)| *name)
}

fn management_of_path(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    MANAGEMENT.iter().find(|(known, _)| *known == name).map(|(_, tool)| *tool)
}

fn is_ansible_module(script: &Path) -> bool {
    let bytes = script.as_os_str().as_bytes();
    bytes.windows(ANSIBLE_MODULE.len()).any(|part| part == ANSIBLE_MODULE.as_bytes())
}

/// Returns the name of an interpreter without its version.
fn interpreter(executable: &str) -> Option<&'static str> {
    let name = Path::new(executable).file_name().and_then(OsStr::to_str)?;
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.iter().find(|known| **known == plain).copied()
}

/// Returns true for flags that a first line such as `#!/bin/sh -e` may have, and that run no code.
fn is_flag_of_first_line(interpreter: &str, word: &str) -> bool {
    let allowed = match interpreter {
        "perl" => "wWtTX",
        "python" => "BEIsSu",
        "ruby" => "wW",
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
    interpreter(executable)?;
    let mut words = arguments.skip(1);
    while let Some(word) = words.next() {
        match word {
            // The code follows, not a script.
            "-c" | "-e" | "-m" => return None,
            option if OPTIONS_WITH_VALUE.contains(&option) => drop(words.next()),
            option if option.starts_with('-') => {}
            path => return Some(Path::new(folder).join(path)),
        }
    }
    None
}

/// Returns true if only root can change the file, or if it is gone.
fn is_of_root(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(meta) => meta.uid() == 0 && meta.mode() & 0o002 == 0 && only_root_group(&meta),
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    }
}

fn only_root_group(meta: &fs::Metadata) -> bool {
    meta.mode() & 0o020 == 0 || meta.gid() == 0
}
