//! Which tools a writer descends from. Pure, except for the owner of scripts.
//!
//! An unprivileged user can run a copy of any tool, and can let a program that runs as root for
//! everybody write for it. Therefore only processes count that ran as root when the change was
//! made, see [`model::ProcessInfo::is_root`], and the script or executable of a tool of configuration
//! management must belong to root.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use model::{Actor, ProcessInfo};

/// The executable of dpkg.
const DPKG: &str = "/usr/bin/dpkg";
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
/// Options of interpreters that are followed by a value.
const OPTIONS_WITH_VALUE: &[&str] = &["-W", "-X", "-I", "-r", "-o"];

/// A tool in the ancestry of a writer, or the writer itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    /// Id of the topmost process of its kind.
    pub(crate) id: String,
}

/// The tools that one writer descends from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Lineage {
    /// The topmost package manager.
    pub(crate) packages: Option<Tool>,
    /// True if dpkg is the writer or an ancestor.
    pub(crate) by_dpkg: bool,
    /// True if the writer is a package manager only perhaps: it had other executables in the
    /// interval of the change, and no ancestor is one.
    pub(crate) doubtful: bool,
    /// True if the writer itself is dpkg.
    pub(crate) is_dpkg: bool,
    /// The script of a package in whose run the change was made, such as `coreutils.postinst`.
    pub(crate) script: Option<String>,
    /// The topmost tool of configuration management.
    pub(crate) management: Option<Tool>,
}

/// Returns the tools that a writer descends from.
pub(crate) fn of(actor: &Actor) -> Lineage {
    let mut lineage = Lineage::default();
    let Some(writer) = actor.process.as_ref() else { return lineage };
    let mut manager_above = false;
    // The topmost one comes last and stays.
    for (distance, process) in std::iter::once(writer).chain(&actor.ancestors).enumerate() {
        if !process.is_root {
            continue;
        }
        if let Some(name) = package_manager(process) {
            lineage.packages = Some(tool(name, process));
            lineage.by_dpkg |= name == "dpkg";
            lineage.is_dpkg |= name == "dpkg" && distance == 0;
            manager_above |= distance > 0;
        } else if let Some(name) = management(process) {
            lineage.management = Some(tool(name, process));
        }
        if lineage.script.is_none() {
            lineage.script = maintainer_script(&process.command_line);
        }
    }
    if writer.is_root {
        add_candidates(&mut lineage, actor, writer, manager_above);
    }
    lineage
}

/// Adds what the candidates for the writer's program say, if there are several, and the programs
/// that it ran when it made earlier changes.
fn add_candidates(lineage: &mut Lineage, actor: &Actor, writer: &ProcessInfo, above: bool) {
    let own = writer.executable.is_some().then(|| package_manager(writer));
    let others = actor.executables.iter().chain(&actor.earlier);
    let others = others.map(|program| manager_of_path(&program.executable.path));
    let names: Vec<Option<&'static str>> = own.into_iter().chain(others).collect();
    let named = || names.iter().flatten().copied();
    let Some(name) = named().find(|name| *name == "dpkg").or(named().next()) else { return };
    lineage.by_dpkg |= name == "dpkg";
    let all = names.iter().all(Option::is_some) && !actor.reason.contains("unknown");
    lineage.doubtful = !above && !all;
    if lineage.packages.is_none() {
        lineage.packages = Some(tool(name, writer));
    }
}

fn tool(name: &'static str, process: &ProcessInfo) -> Tool {
    let ProcessInfo { entity_id, pid, start, .. } = process;
    // A process without an id never executed a program; number and start are as good.
    let id = if entity_id.is_empty() { format!("{pid}@{start}") } else { entity_id.clone() };
    Tool { name, id }
}

fn manager_of_path(path: &str) -> Option<&'static str> {
    PACKAGE_MANAGERS.iter().find(|(known, _)| *known == path).map(|(_, name)| *name)
}

fn package_manager(process: &ProcessInfo) -> Option<&'static str> {
    let executable = process.executable.as_ref()?;
    let of_script = || script(process).and_then(|path| manager_of_path(path.to_str()?));
    manager_of_path(&executable.path).or_else(of_script)
}

fn management(process: &ProcessInfo) -> Option<&'static str> {
    let executable = Path::new(&process.executable.as_ref()?.path);
    let by_name = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        let (_, tool) = MANAGEMENT.iter().find(|(known, _)| *known == name)?;
        is_of_root(path).then_some(*tool)
    };
    if let Some(found) = by_name(executable) {
        return Some(found);
    }
    let script = script(process)?;
    if script.to_str()?.contains(ANSIBLE_MODULE) {
        return Some("ansible");
    }
    by_name(&script)
}

/// Returns the absolute path of the script that an interpreter runs.
fn script(process: &ProcessInfo) -> Option<PathBuf> {
    let executable = Path::new(&process.executable.as_ref()?.path).file_name()?.to_str()?;
    let plain = executable.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if !INTERPRETERS.contains(&plain) {
        return None;
    }
    let mut words = process.command_line.split(' ').skip(1);
    while let Some(word) = words.next() {
        match word {
            // The code follows, not a script.
            "-c" | "-e" | "-m" => return None,
            option if OPTIONS_WITH_VALUE.contains(&option) => drop(words.next()),
            option if option.starts_with('-') => {}
            path => return Some(Path::new(&process.working_directory).join(path)),
        }
    }
    None
}

/// Returns the name of the script of a package in a command line.
fn maintainer_script(command_line: &str) -> Option<String> {
    let mut words = command_line.split(' ').take(4);
    words.find_map(|word| {
        let (folder, name) = word.rsplit_once('/')?;
        let folder = folder.rsplit_once("/var/lib/dpkg/").map(|(_, folder)| folder);
        matches!(folder, Some("info" | "tmp.ci")).then(|| name.to_owned())
    })
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

#[cfg(test)]
mod tests {
    use model::{Candidate, Executable};

    use super::*;

    fn process(executable: &str, command_line: &str) -> ProcessInfo {
        let path = executable.to_owned();
        let executable = Some(Executable { path, ..Executable::default() });
        let (entity_id, command_line) = (format!("id of {command_line}"), command_line.to_owned());
        let working_directory = "/usr/bin".to_owned();
        ProcessInfo {
            pid: 1,
            executable,
            entity_id,
            command_line,
            working_directory,
            is_root: true,
            ..ProcessInfo::default()
        }
    }

    fn actor(processes: &[ProcessInfo]) -> Actor {
        let (writer, ancestors) = processes.split_first().unwrap();
        let process = Some(writer.clone());
        Actor { process, ancestors: ancestors.to_vec(), ..Actor::default() }
    }

    #[test]
    fn topmost_package_manager_is_the_tool() {
        let upgrade = "/usr/bin/python3 /usr/bin/unattended-upgrade --quiet";
        let script = "/bin/sh /var/lib/dpkg/info/a.postinst configure 1";
        let found = of(&actor(&[
            process("/usr/bin/touch", "touch x"),
            process("/usr/bin/dash", script),
            process("/usr/bin/dpkg", "dpkg --configure a"),
            process("/usr/bin/python3.11", upgrade),
            process("/usr/lib/systemd/systemd", "/sbin/init"),
        ]));
        assert_eq!(found.packages.unwrap().name, "unattended-upgrade");
        assert_eq!(found.script.as_deref(), Some("a.postinst"));
        assert!(found.by_dpkg && !found.is_dpkg && !found.doubtful);
    }

    #[test]
    fn process_of_another_user_is_no_tool() {
        let mut dpkg = process("/usr/bin/dpkg", "dpkg -i x.deb");
        dpkg.is_root = false;
        let found = of(&actor(&[process("/usr/bin/passwd", "passwd"), dpkg]));
        assert_eq!(found, Lineage::default());
    }

    #[test]
    fn dpkg_among_several_executables_is_doubtful() {
        let mut writer = process("", "");
        writer.executable = None;
        let mut of_shell = actor(&[writer, process("/usr/bin/bash", "bash")]);
        let executable = |path: &str| Candidate {
            executable: Executable { path: path.into(), ..Executable::default() },
            ..Candidate::default()
        };
        of_shell.executables = vec![executable("/usr/bin/bash"), executable("/usr/bin/dpkg")];
        let found = of(&of_shell);
        assert!(found.by_dpkg && found.doubtful && !found.is_dpkg);
        of_shell.executables = vec![executable("/usr/bin/apt"), executable("/usr/bin/dpkg")];
        assert!(!of(&of_shell).doubtful, "both are package managers");
        of_shell.ancestors.push(process("/usr/bin/dpkg", "dpkg -i x"));
        of_shell.executables = vec![executable("/usr/bin/dpkg"), executable("/usr/bin/dash")];
        assert!(!of(&of_shell).doubtful, "an ancestor is certain");
        of_shell = actor(&[process("/usr/bin/dpkg", "dpkg -i x")]);
        assert!(!of(&of_shell).doubtful);
        of_shell.earlier = vec![executable("/usr/bin/bash")];
        assert!(of(&of_shell).doubtful, "another program of the process changed it before");
    }

    #[test]
    fn management_needs_a_script_of_root() {
        let folder = tempfile::tempdir().unwrap();
        let forged = folder.path().join("puppet");
        fs::write(&forged, "").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        fs::set_permissions(&forged, mode).unwrap();
        let line = format!("ruby {}", forged.display());
        let found = of(&actor(&[process("/usr/bin/ruby3.1", &line)]));
        assert_eq!(found.management, None);
        let gone = of(&actor(&[process("/usr/bin/ruby3.1", "ruby -W0 /opt/x/bin/puppet agent")]));
        assert_eq!(gone.management.unwrap().name, "puppet");
    }

    #[test]
    fn module_of_ansible_is_recognised_by_its_folder() {
        let module = "/root/.ansible/tmp/ansible-tmp-1.2-3-4/AnsiballZ_copy.py";
        let python = |line: &str| of(&actor(&[process("/usr/bin/python3", line)])).management;
        assert_eq!(python(&format!("python3 {module}")).unwrap().name, "ansible");
        assert_eq!(python(&format!("python3 -c pass {module}")), None, "not the script");
        assert_eq!(python(&format!("python3 /x.py {module}")), None, "not the script");
    }
}
