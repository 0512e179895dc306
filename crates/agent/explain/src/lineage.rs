//! Tools that a writer descends from.
//!
//! An unprivileged user can run a copy of any tool, and can let a program that runs as root for
//! everybody write for it. Therefore only processes count that ran as root when the change was
//! made, see [`model::ProcessInfo::is_root`], the host must have the program at its path, and the
//! script or executable of a tool of configuration management must belong to root.
//!
//! What a package manager starts is not its work: `apt-get -o DPkg::Pre-Invoke::=CMD` and
//! `dpkg --pre-invoke=CMD` run any command. A descendant counts only if the process directly below
//! dpkg runs a script of a package, or if it is a helper in the folder for its work.

use std::path::Path;

use model::{Actor, ProcessInfo};

use crate::program::{Helper, Program};

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
    /// The topmost package manager, if the writer is one or runs for a script of a package.
    pub(crate) packages: Option<Tool>,
    /// True if the writer is dpkg, or runs for a script of a package.
    pub(crate) by_dpkg: bool,
    /// True if the writer is a package manager or such a script only perhaps: it ran other programs
    /// when it made the change.
    pub(crate) doubtful: bool,
    /// True if the writer itself is dpkg.
    pub(crate) is_dpkg: bool,
    /// The script of a package in whose run the change was made, such as `coreutils.postinst`.
    pub(crate) script: Option<String>,
    /// The work for a package manager that the writer does, which explains only files in the folder of
    /// that work.
    pub(crate) helper: Option<Helper>,
    /// The topmost tool of configuration management.
    pub(crate) management: Option<Tool>,
}

/// Returns the tools that a writer descends from. `database` is the folder of dpkg.
pub(crate) fn of(actor: &Actor, database: &Path) -> Lineage {
    let mut lineage = Lineage::default();
    let Some(writer) = actor.process.as_ref() else { return lineage };
    let chain: Vec<&ProcessInfo> = std::iter::once(writer).chain(&actor.ancestors).collect();
    // The topmost one comes last and stays.
    for process in chain.iter().filter(|process| process.is_root) {
        if let Some(name) = Program::of_process(process).and_then(|p| p.management()) {
            lineage.management = Some(tool(name, process));
        }
    }
    if let Some((distance, script)) = script_below_dpkg(&chain, database) {
        lineage.script = Some(script.to_owned());
        lineage.by_dpkg = true;
        add_manager_from(&mut lineage, &chain, distance, database);
    } else if let Some((distance, helper)) = helper_below_manager(actor, &chain, database) {
        lineage.helper = Some(helper);
        lineage.by_dpkg = helper == Helper::Unpack;
        add_manager_from(&mut lineage, &chain, distance, database);
        return lineage;
    }
    if writer.is_root {
        add_writer(&mut lineage, actor, writer, &chain, database);
    }
    lineage
}

/// Returns the place of the dpkg for whose script the writer runs, and the script's name. The writer
/// itself may run other programs too, which is judged elsewhere.
fn script_below_dpkg<'a>(chain: &[&'a ProcessInfo], database: &Path) -> Option<(usize, &'a str)> {
    chain.windows(2).enumerate().find_map(|(below, pair)| {
        let [script, dpkg] = pair else { return None };
        let is_dpkg = manager(dpkg, database) == Some("dpkg") && script.is_root;
        let script = Program::of_process(script).filter(|_| is_dpkg)?;
        Some((below + 1, script.maintainer_script(database)?))
    })
}

/// Returns the place of the package manager whose helper the writer is, and the work of the helper.
/// Each process between them must be such a helper. A dpkg with hooks starts programs for others.
fn helper_below_manager(
    actor: &Actor,
    chain: &[&ProcessInfo],
    database: &Path,
) -> Option<(usize, Helper)> {
    let (programs, all_known) = programs_of(actor, chain);
    let of_work = |helper: Helper| {
        let is_helper = |process: &&&ProcessInfo| {
            Program::of_process(process).is_some_and(|program| program.is_helper(helper))
        };
        let distance = 1 + chain.iter().skip(1).take_while(is_helper).count();
        let above = chain.get(distance)?;
        let name = manager(above, database)?;
        let has_hooks = Program::of_process(above).is_some_and(|program| program.has_hooks());
        let is_its_work = match helper {
            Helper::Unpack => name == "dpkg" && !has_hooks && chain.first()?.is_root,
            Helper::Fetch => name != "dpkg",
        };
        let counts = |program: &Program<'_>| {
            program.is_helper(helper) || program.manager(database) == Some(name)
        };
        let is_one = programs.iter().any(|program| program.is_helper(helper));
        (is_its_work && is_one && programs.iter().all(counts)).then_some((distance, helper))
    };
    [Helper::Unpack, Helper::Fetch].into_iter().filter(|_| all_known).find_map(of_work)
}

/// Returns the programs that the writer ran when it made the change, and whether all are known.
fn programs_of<'a>(actor: &'a Actor, chain: &[&'a ProcessInfo]) -> (Vec<Program<'a>>, bool) {
    let own = chain.first().and_then(|writer| Program::of_process(writer));
    let others = actor.executables.iter().chain(&actor.earlier).map(Program::of_candidate);
    (own.into_iter().chain(others).collect(), !actor.reason.contains("unknown"))
}

/// Returns the name of the package manager that a process of root is.
fn manager(process: &ProcessInfo, database: &Path) -> Option<&'static str> {
    let program = Program::of_process(process).filter(|_| process.is_root)?;
    program.manager(database)
}

/// Sets the topmost package manager, from a place in the ancestry on.
fn add_manager_from(lineage: &mut Lineage, chain: &[&ProcessInfo], from: usize, database: &Path) {
    for process in chain.iter().skip(from) {
        if let Some(name) = manager(process, database) {
            lineage.packages = Some(tool(name, process));
        }
    }
}

/// Adds what the writer itself is, if it is no descendant that counts: a package manager, or a
/// script directly below dpkg, among several programs perhaps.
fn add_writer(
    lineage: &mut Lineage,
    actor: &Actor,
    writer: &ProcessInfo,
    chain: &[&ProcessInfo],
    database: &Path,
) {
    let (programs, all_known) = programs_of(actor, chain);
    let of_program = |program: &Program<'_>| program.manager(database);
    let below_dpkg = chain.get(1).is_some_and(|above| manager(above, database) == Some("dpkg"));
    let script = |program: &Program<'_>| -> Option<String> {
        program.maintainer_script(database).filter(|_| below_dpkg).map(str::to_owned)
    };
    let counts = |program: &Program<'_>| of_program(program).is_some() || script(program).is_some();
    let all = programs.iter().all(counts) && all_known;
    let named = || programs.iter().filter_map(of_program);
    let first_script = programs.iter().find_map(script);
    // A script of a package further up is certain, whatever the writer ran.
    let certain = lineage.script.is_some() && first_script.is_none();
    let by_script = first_script.as_ref().map(|_| "dpkg");
    let name = named().find(|name| *name == "dpkg").or(named().next()).or(by_script);
    let Some(name) = name else { return };
    lineage.is_dpkg = programs.iter().all(|program| of_program(program) == Some("dpkg"));
    lineage.by_dpkg |= name == "dpkg";
    lineage.doubtful = !certain && !all;
    lineage.script = lineage.script.take().or(first_script);
    add_manager_from(lineage, chain, 0, database);
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

#[cfg(test)]
mod tests {
    use std::fs;

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
            arguments: command_line.split(' ').map(str::to_owned).collect(),
            command_line,
            working_directory,
            is_root: true,
            ..ProcessInfo::default()
        }
    }

    fn of(actor: &Actor) -> Lineage {
        super::of(actor, Path::new("/var/lib/dpkg"))
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
        let found = of(&actor(&[process("/usr/bin/passwd", "passwd"), dpkg.clone()]));
        assert_eq!(found, Lineage::default());
        let (mut foreign, mut script) = (process("/usr/bin/dpkg", "dpkg -i x"), dpkg);
        foreign.foreign = true;
        assert_eq!(of(&actor(&[foreign.clone()])), Lineage::default(), "not that of the host");
        script.arguments = ["sh", "/var/lib/dpkg/info/a.postinst"].map(str::to_owned).into();
        assert_eq!(of(&actor(&[script, foreign])), Lineage::default());
    }

    #[test]
    fn commands_of_hooks_are_not_the_work_of_package_managers() {
        let dpkg = || process("/usr/bin/dpkg", "dpkg --pre-invoke=x -i a.deb");
        let apt = || process("/usr/bin/apt-get", "apt-get -o DPkg::Pre-Invoke::=x update");
        let touch = || process("/usr/bin/touch", "touch x");
        for chain in [
            vec![touch(), apt()],
            vec![process("/usr/bin/dash", "sh -c x"), apt()],
            vec![touch(), process("/usr/bin/dash", "sh -c x"), dpkg(), apt()],
            vec![process("/usr/bin/dash", "sh -c x /var/lib/dpkg/info/a.postinst"), dpkg()],
            vec![process("/usr/bin/dash", "sh /tmp/var/lib/dpkg/info/a.postinst"), dpkg()],
            vec![process("/usr/bin/dash", "sh /x /var/lib/dpkg/info/a.postinst"), dpkg()],
            vec![process("/usr/bin/perl", "perl -e x /var/lib/dpkg/info/a.postinst"), dpkg()],
            vec![process("/usr/bin/perl", "perl -Mx /var/lib/dpkg/info/a.postinst"), dpkg()],
            vec![process("/usr/bin/cat", "cat /var/lib/dpkg/info/a.postinst"), dpkg()],
            vec![process("/usr/bin/dash", "sh /var/lib/dpkg/info/../../../tmp/x"), dpkg()],
        ] {
            assert_eq!(of(&actor(&chain)), Lineage::default(), "{chain:?}");
        }
        for line in [
            "/bin/sh -e /var/lib/dpkg/info/a.postinst configure",
            "/bin/bash /var/lib/dpkg/tmp.ci/preinst upgrade",
            "/usr/bin/perl -w /usr/share/debconf/frontend /var/lib/dpkg/info/a.postinst",
        ] {
            let interpreter = if line.contains("perl") { "/usr/bin/perl" } else { "/usr/bin/bash" };
            let found = of(&actor(&[touch(), process(interpreter, line), dpkg(), apt()]));
            assert!(found.by_dpkg && found.script.is_some() && !found.is_dpkg, "{line}");
            assert_eq!(found.packages.unwrap().name, "apt-get");
        }
        let compiled = process("/var/lib/dpkg/tmp.ci/preinst", "preinst install");
        assert_eq!(of(&actor(&[compiled, dpkg()])).script.as_deref(), Some("preinst"));
        assert!(of(&actor(&[apt()])).packages.is_some(), "apt itself");
    }

    #[test]
    fn program_that_a_shell_gets_as_its_script_is_no_manager() {
        for line in ["bash /usr/bin/dpkg -i x.deb", "bash /usr/bin/unattended-upgrade"] {
            assert_eq!(of(&actor(&[process("/usr/bin/bash", line)])), Lineage::default(), "{line}");
        }
        let python = process("/usr/bin/python3.11", "python3 /usr/bin/unattended-upgrade");
        assert_eq!(of(&actor(&[python])).packages.unwrap().name, "unattended-upgrade");
    }

    #[test]
    fn script_of_another_system_is_none_of_a_package() {
        let dpkg = || process("/usr/bin/dpkg", "dpkg --force-script-chrootless -i a.deb");
        let mut script = process("/usr/bin/dash", "/bin/sh /var/lib/dpkg/info/a.postinst");
        assert!(of(&actor(&[script.clone(), dpkg()])).by_dpkg);
        script.foreign = true;
        assert_eq!(of(&actor(&[script.clone(), dpkg()])), Lineage::default());
        script.foreign = false;
        let other = || process("/usr/bin/dpkg", "dpkg --admindir=/srv/x -i a.deb");
        assert_eq!(of(&actor(&[script, other()])), Lineage::default(), "of another database");
        assert_eq!(of(&actor(&[other()])), Lineage::default());
    }

    #[test]
    fn helpers_count_only_directly_below_their_manager() {
        let dpkg = || process("/usr/bin/dpkg", "dpkg -i a.deb");
        let [deb, tar] = ["dpkg-deb", "tar"].map(|name| process(&format!("/usr/bin/{name}"), name));
        let shell = process("/usr/bin/dash", "sh -c x");
        let apt = process("/usr/bin/apt-get", "apt-get update");
        let found = of(&actor(&[tar.clone(), deb.clone(), dpkg(), apt.clone()]));
        assert_eq!(found.helper, Some(Helper::Unpack));
        assert_eq!(found.packages.unwrap().name, "apt-get");
        let hooked = process("/usr/bin/dpkg", "dpkg --pre-invoke=x -i a.deb");
        for chain in [
            vec![tar.clone(), shell.clone(), dpkg()],
            vec![tar.clone(), deb.clone(), hooked],
            vec![tar.clone(), apt.clone()],
            vec![shell],
        ] {
            assert_eq!(of(&actor(&chain)), Lineage::default(), "{chain:?}");
        }
        let mut method = process("/usr/lib/apt/methods/http", "http");
        method.is_root = false;
        let found = of(&actor(&[method.clone(), apt]));
        assert_eq!(found.helper, Some(Helper::Fetch), "it gives up the rights of root");
        assert_eq!(of(&actor(&[method, dpkg()])), Lineage::default());
        let mut both = actor(&[tar, dpkg()]);
        both.process.as_mut().unwrap().executable = None;
        let program = |path: &str| Candidate {
            executable: Executable { path: path.into(), ..Executable::default() },
            ..Candidate::default()
        };
        both.executables = vec![program("/usr/bin/dpkg"), program("/usr/bin/rm")];
        assert_eq!(of(&both).helper, Some(Helper::Unpack));
        both.executables.push(program("/usr/bin/bash"));
        assert_eq!(of(&both).helper, None);
    }

    #[test]
    fn dpkg_of_another_system_leaves_the_cause_to_the_tool_above() {
        let ansible = process("/usr/bin/python3", "python3 /usr/bin/ansible-playbook x.yml");
        let dpkg = process("/usr/bin/dpkg", "dpkg --root=/srv/x -i a.deb");
        let found = of(&actor(&[dpkg, ansible]));
        assert!(found.packages.is_none());
        assert_eq!(found.management.unwrap().name, "ansible");
    }

    #[test]
    fn package_manager_among_several_programs_is_doubtful() {
        let mut writer = process("", "");
        writer.executable = None;
        let mut of_shell = actor(&[writer, process("/usr/bin/bash", "bash")]);
        let program = |path: &str, line: &str| Candidate {
            executable: Executable { path: path.into(), ..Executable::default() },
            arguments: line.split(' ').map(str::to_owned).collect(),
            ..Candidate::default()
        };
        let script = || program("/usr/bin/dash", "sh /var/lib/dpkg/info/a.postinst");
        of_shell.executables = vec![program("/usr/bin/bash", ""), program("/usr/bin/dpkg", "")];
        let found = of(&of_shell);
        assert!(found.by_dpkg && found.doubtful && !found.is_dpkg);
        of_shell.executables = vec![program("/usr/bin/apt", ""), program("/usr/bin/dpkg", "")];
        assert!(!of(&of_shell).doubtful, "both are package managers");
        of_shell.executables = vec![program("/usr/bin/dpkg", ""), script()];
        assert!(of(&of_shell).doubtful, "dpkg did not start it");
        of_shell.ancestors = vec![process("/usr/bin/dpkg", "dpkg -i x")];
        let found = of(&of_shell);
        assert!(!found.doubtful && found.by_dpkg && !found.is_dpkg, "both explain");
        of_shell.executables.push(program("/usr/bin/dash", "sh -c x"));
        assert!(of(&of_shell).doubtful);
        of_shell = actor(&[process("/usr/bin/dpkg", "dpkg -i x")]);
        assert!(!of(&of_shell).doubtful);
        of_shell.earlier = vec![program("/usr/bin/bash", "")];
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
        fs::set_permissions(&forged, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let found = of(&actor(&[process("/usr/bin/ruby3.1", &line)]));
        assert_eq!(found.management, None, "its folder is in one that all may write to");
        let gone = of(&actor(&[process("/usr/bin/ruby3.1", "ruby -W0 /opt/x/bin/puppet agent")]));
        let line = "puppet agent";
        assert_eq!(of(&actor(&[process("/opt/x/bin/puppet", line)])).management, None, "no script");
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
