//! The rule: which cause a change has.
//!
//! 1. `package`: the content is what a package delivered, and every writer descends from dpkg. A
//!    change without known writers needs a line of `dpkg.log` near its time. What was removed has no
//!    content: the writer decides.
//! 2. `deployment`: every writer runs for a script of a package, or descends from a tool of
//!    configuration management. A file of a package with another content is not explained by that.
//!    Package managers themselves account only for their own files.
//! 3. Otherwise it is unexplained. If only the content is that of a package, the detail says so.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use env::clock::Clock;
use model::{Cause, CauseKind, CausePackage, Change, ChangeKind, Field, Kind};

use crate::account::{self, Account, Run};
use crate::doors::{Doors, unexplained};
use crate::history::History;
use crate::lineage::Tool;
use crate::lists::{Lists, Member};
use crate::log::{Action, Log, LogLine};
use crate::{DpkgLock, content, limits, own};

/// Ends of the names of files that dpkg writes and renames.
const TEMPORARY: [&[u8]; 2] = [b".dpkg-new", b".dpkg-tmp"];
/// Ends of the names of files with the content of another file of the package.
const DELIVERED: [&[u8]; 2] = [b".dpkg-new", b".dpkg-dist"];

/// End of the name of a configuration file that dpkg has replaced.
const REPLACED: &[u8] = b".dpkg-old";

/// Result of the comparison of a change with the lists of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// The item was removed.
    Removed,
    /// It is what the package delivered.
    Matches,
    /// It is another content.
    Differs,
    /// It was not read: it changed again, or is too large.
    Unread,
    /// The lists do not say.
    Unknown,
}

/// Explains changes of the files of one system.
#[derive(Debug)]
pub struct Explainer {
    log: Log,
    history: History,
    lists: Lists,
    lock: DpkgLock,
    root: PathBuf,
    doors: Doors,
    /// True if dpkg made a change since it was last known to have ended.
    saw_dpkg: bool,
    clock: Arc<dyn Clock>,
    /// Packages whose lists were checked for this batch; `None` before its first use.
    checked: Option<HashSet<String>>,
    /// Time of the last use of the index.
    used: Option<Instant>,
    /// Time at which the packages of a running transaction were last read.
    noted: Option<Instant>,
    /// Versions in the status database, for this batch.
    versions: HashMap<String, String>,
    /// The last cause of each package, for its own event.
    causes: HashMap<String, (Cause, Instant)>,
}

impl Explainer {
    /// Returns an explainer for the system below `root`, usually `/`.
    pub fn new(root: &Path, clock: Arc<dyn Clock>) -> Self {
        Self {
            log: Log::new(root),
            history: History::new(root),
            lists: Lists::new(root),
            lock: DpkgLock::new(root),
            root: root.to_owned(),
            doors: Doors::new(root),
            saw_dpkg: false,
            clock,
            checked: None,
            used: None,
            noted: None,
            versions: HashMap::new(),
            causes: HashMap::new(),
        }
    }

    /// Begins a batch: what dpkg wrote since is read again when it is needed.
    pub fn begin(&mut self) {
        self.checked = None;
        self.versions.clear();
    }

    /// Reads the lists of packages that change now. A package's list is replaced or removed with
    /// it: call this while a transaction runs, so that removed files are known afterwards.
    pub fn note_transaction(&mut self) {
        if self.noted.is_some_and(|noted| noted.elapsed() < limits::NOTE_EVERY) {
            return;
        }
        self.noted = Some(Instant::now());
        self.begin();
        self.log.refresh();
        self.used.get_or_insert_with(Instant::now);
        let packages = self.log.near(self.clock.now_us());
        let packages = packages.filter(|line| line.action != Action::Other);
        self.lists.load(packages.map(|line| line.package.clone()));
    }

    /// Drops what was not needed lately. Call it from time to time.
    pub fn tidy(&mut self) {
        if self.used.is_some_and(|used| used.elapsed() > limits::UNUSED_MAX) {
            self.lists.forget();
            self.log.forget();
            self.used = None;
        }
        self.causes.retain(|_, (_, at)| at.elapsed() < limits::RECENT);
    }

    /// Returns the cause that the files of this version of a package had lately, for the event of
    /// the package. A package without such files has the cause of the transaction in `dpkg.log`
    /// that installed or removed it. The version of a removed package is empty.
    pub fn cause_of_package(&mut self, name: &str, version: &str) -> Option<Cause> {
        let is_version = |cause: &Cause| {
            cause.package.as_ref().is_some_and(|package| package.version == version)
        };
        let known = self.causes.get(name).map(|(cause, _)| cause).filter(|cause| is_version(cause));
        // No process was seen writing the package's entry in the database.
        let known = known.map(|cause| Cause { writer_matches: false, ..cause.clone() });
        known.or_else(|| self.cause_by_log(name, version))
    }

    fn cause_by_log(&mut self, name: &str, version: &str) -> Option<Cause> {
        self.log.refresh();
        self.history.refresh(self.log.offset_us());
        self.used.get_or_insert_with(Instant::now);
        let now_us = self.clock.now_us();
        let line = self.log.last_of(name, now_us).filter(|line| line.after == version)?;
        let is_recent = u128::from(now_us.abs_diff(line.at_us)) <= limits::RECENT.as_micros();
        let run = Some(line.run).filter(|_| is_recent)?;
        let apt = self.history.run_at(line.at_us);
        // The files of another package name the tool of the run, or of the run of apt around it.
        let of_run = |(name, _): &(&String, &(Cause, Instant))| {
            let other = self.log.last_of(name, now_us);
            other.is_some_and(|other| {
                other.run == run || apt.is_some() && self.history.run_at(other.at_us) == apt
            })
        };
        let newest = self.causes.iter().filter(of_run).max_by_key(|(_, (_, at))| *at);
        let (tool, id) = match (newest, &apt) {
            (Some((_, (cause, _))), _) => (cause.tool.clone(), cause.id.clone()),
            (None, Some(apt)) => {
                (apt.tool.clone(), format!("{}-{}", apt.tool, second(apt.began_us)))
            }
            (None, None) => ("dpkg".to_owned(), transaction_id(run.first_us)),
        };
        let (version, previous_version) = (line.after.clone(), line.before.clone());
        let package = CausePackage { name: name.to_owned(), version, previous_version };
        let detail = format!("{tool}: {}", step(&package));
        let (kind, package) = (CauseKind::Package, Some(package));
        Some(Cause { kind, detail, id, tool, package, ..Cause::default() })
    }

    /// Returns true once after dpkg made a change and no longer runs.
    pub fn has_dpkg_ended(&mut self) -> bool {
        let ended = self.saw_dpkg && self.lock.holder().is_none();
        self.saw_dpkg &= !ended;
        ended
    }

    /// Returns true if a transaction of dpkg runs.
    pub fn is_dpkg_running(&mut self) -> bool {
        self.lock.holder().is_some()
    }

    /// Returns true for the creation of a file that dpkg writes and renames, while dpkg runs.
    pub fn is_temporary(&mut self, change: &Change) -> bool {
        let is_directory = change.after.as_ref().is_some_and(|now| now.kind == Kind::Directory);
        if change.kind != ChangeKind::Created
            || is_directory
            || !is_temporary_name(&change.key.name)
        {
            return false;
        }
        let by_dpkg = match account::of(change, &self.root) {
            Account::Unnoticed => true,
            Account::Packages(run) => run.by_dpkg,
            _ => false,
        };
        by_dpkg && self.lock.holder().is_some()
    }

    /// Returns the cause of a change; `None` if nothing explains it.
    pub fn explain(&mut self, change: &Change) -> Option<Cause> {
        let account = account::of(change, &self.root);
        self.saw_dpkg |= matches!(&account, Account::Packages(run) if run.by_dpkg);
        let cause = self.explain_content(change, &account)?;
        Some(self.doors.judge(change, &account, cause))
    }

    fn explain_content(&mut self, change: &Change, account: &Account) -> Option<Cause> {
        let member = self.member(change, *account == Account::Unnoticed);
        let content = match &member {
            Some(member) => content_of(change, member),
            None if change.after.is_none() => Content::Removed,
            None => Content::Unknown,
        };
        let package = member.as_ref().map(|member| member.package.as_str());
        match (account, content) {
            (Account::Packages(run), Content::Matches) if run.by_dpkg => {
                Some(self.by_package(change, package, run.tool.clone(), true))
            }
            (Account::Packages(run), Content::Removed)
                if run.by_dpkg && (package.is_some() || (run.is_dpkg && !run.doubtful)) =>
            {
                Some(self.by_package(change, package, run.tool.clone(), false))
            }
            (Account::Packages(run), Content::Differs) if run.by_dpkg => {
                Some(unexplained(format!("content is not that of {}", package.unwrap_or_default())))
            }
            (Account::Packages(_), Content::Unread) => {
                let package = package.unwrap_or_default();
                Some(unexplained(format!("content was not compared with that of {package}")))
            }
            (Account::Packages(run), _) if !run.doubtful => {
                let is_own =
                    package.is_some() && run.is_dpkg || self.is_of_tool(&change.key.path(), run);
                Some(by_packages_tool(run, package, is_own))
            }
            (Account::Management(tool), _) => Some(deployment(tool, &run_of(tool))),
            (Account::Unnoticed, Content::Matches) => self.by_log(change, package?),
            (Account::Packages(_) | Account::Other, Content::Matches) => {
                only_content(change, package?, "writer is not dpkg")
            }
            (Account::Unknown, Content::Matches) => {
                only_content(change, package?, "writer unknown")
            }
            _ => None,
        }
    }

    /// Returns true for the files of package managers themselves, and former configuration files.
    fn is_of_tool(&self, path: &[u8], run: &Run) -> bool {
        let replaced = path.strip_suffix(REPLACED);
        own::is_of_tool(path, &self.root, run.by_dpkg)
            || replaced.is_some_and(|path| self.lists.find(path).is_some())
    }

    /// Returns the package of the changed item. A change that a scan found is compared with the
    /// packages that the log names near its time.
    fn member(&mut self, change: &Change, unnoticed: bool) -> Option<Member> {
        self.refresh();
        if unnoticed && let Some(at_us) = changed_us(change) {
            let lines = self.log.near(at_us).filter(|line| line.action != Action::Other);
            let packages: Vec<String> = lines.map(|line| line.package.clone()).collect();
            self.load(packages);
        }
        if self.lists.is_empty() {
            return None;
        }
        let path = change.key.path();
        let delivered = || {
            let end = DELIVERED.iter().find(|end| path.ends_with(end))?;
            path.strip_suffix(*end)
        };
        let is_file = change.after.as_ref().is_some_and(|now| now.kind == Kind::File);
        let mut found = self.lists.find(&path);
        if found.is_none()
            && let Some(path) = delivered()
        {
            self.lists.load_conffiles();
            found = self.lists.find(path);
        } else if let Some(member) = found.take_if(|member| is_file && !has_content(change, member))
        {
            // The digest of a configuration file is missing, or that of the former version.
            self.lists.load_conffiles();
            found = self.lists.find(&path).or(Some(member));
        }
        if found.is_some() {
            self.used = Some(Instant::now());
        }
        found
    }

    /// Reads the lists that changed recently, once a batch.
    fn refresh(&mut self) {
        if self.checked.is_some() {
            return;
        }
        self.checked = Some(HashSet::new());
        self.log.refresh();
        let from_us = self.clock.now_us().saturating_sub(limits::RECENT.as_micros() as u64);
        let lines = self.log.since(from_us).filter(|line| line.action != Action::Other);
        let mut packages: Vec<String> = lines.map(|line| line.package.clone()).collect();
        packages.extend(self.lists.recent());
        self.load(packages);
    }

    fn load(&mut self, packages: Vec<String>) {
        let checked = self.checked.get_or_insert_default();
        let new = packages.into_iter().filter(|package| checked.insert(package.clone()));
        let new: Vec<String> = new.collect();
        if !new.is_empty() {
            self.used.get_or_insert_with(Instant::now);
            self.lists.load(new);
        }
    }

    /// Returns the cause of what a package delivered or removed.
    fn by_package(
        &mut self,
        change: &Change,
        package: Option<&str>,
        tool: Tool,
        content_matches: bool,
    ) -> Cause {
        let at_us = changed_us(change).unwrap_or(change.found_at_us);
        let name = match package {
            Some(name) => Some(name.to_owned()),
            None => self.only_package_near(at_us),
        };
        let package = name.map(|name| self.package(name, at_us));
        let Tool { name: tool, id } = tool;
        let detail = match &package {
            Some(package) => format!("{tool}: {}", step(package)),
            None => format!("{tool}: removed by dpkg"),
        };
        let tool = tool.to_owned();
        let kind = CauseKind::Package;
        let cause = Cause {
            kind,
            detail,
            id,
            tool,
            package,
            content_matches,
            writer_matches: true,
            attention: false,
        };
        if let Some(CausePackage { name, .. }) = &cause.package
            && (self.causes.len() < limits::REMEMBERED_MAX || self.causes.contains_key(name))
        {
            self.causes.insert(name.clone(), (cause.clone(), Instant::now()));
        }
        cause
    }

    /// Returns the cause of a content of a package that a scan found.
    fn by_log(&mut self, change: &Change, package: &str) -> Option<Cause> {
        let at_us = changed_us(change)?;
        // dpkg rarely changes them, and who did is not known: a set-uid bit must not be explained.
        let attributes = [Field::Mode, Field::Uid, Field::Gid, Field::Xattrs, Field::Flags];
        let altered = attributes.into_iter().any(|field| change.fields.contains(field));
        if altered || !self.log.near(at_us).any(|line| line.name() == package) {
            return only_content(change, package, "writer unknown");
        }
        let line = self.log.near(at_us).find(|line| line.name() == package);
        let first_us = line.map_or(at_us, |line| line.run.first_us);
        let tool = Tool { name: "dpkg", id: transaction_id(first_us) };
        let cause = self.by_package(change, Some(package), tool, true);
        Some(Cause { writer_matches: false, ..cause })
    }

    /// Returns the only package that the log installs or removes near a time.
    fn only_package_near(&self, at_us: u64) -> Option<String> {
        let mut lines = self.log.near(at_us).filter(|line| line.action != Action::Other);
        let name = lines.next()?.name();
        lines.all(|line| line.name() == name).then(|| name.to_owned())
    }

    /// Returns a package with its versions: from the log, else from the status database.
    fn package(&mut self, name: String, at_us: u64) -> CausePackage {
        let window_us = limits::LOG_WINDOW.as_micros() as u64;
        let line = self.log.last_of(&name, at_us.saturating_add(window_us));
        let is_near = |line: &&LogLine| {
            u128::from(line.at_us.abs_diff(at_us)) <= limits::VERSION_WINDOW.as_micros()
        };
        if let Some(line) = line.filter(is_near) {
            let (version, previous_version) = (line.after.clone(), line.before.clone());
            return CausePackage { name, version, previous_version };
        }
        let Self { lists, versions, .. } = self;
        let version = versions
            .entry(name.clone())
            .or_insert_with(|| lists.version(&name).unwrap_or_default());
        let version = version.clone();
        CausePackage { name, version, previous_version: String::new() }
    }
}

/// Returns the id of a transaction whose writers are not known.
fn transaction_id(first_us: u64) -> String {
    format!("dpkg-{}", second(first_us))
}

fn second(at_us: u64) -> String {
    model::timestamp::micros(at_us / 1_000_000 * 1_000_000)
}

fn content_of(change: &Change, member: &Member) -> Content {
    let Some(now) = &change.after else { return Content::Removed };
    match (now.kind, member.md5) {
        // A list has nothing but their path.
        (Kind::Directory | Kind::Symlink, None) => Content::Matches,
        (Kind::File, Some(delivered)) => match content::md5(change) {
            Some(found) if found == delivered => Content::Matches,
            Some(_) => Content::Differs,
            None => Content::Unread,
        },
        (_, Some(_)) => Content::Differs,
        (_, None) => Content::Unknown,
    }
}

fn has_content(change: &Change, member: &Member) -> bool {
    content_of(change, member) == Content::Matches
}

/// Returns the time of the last change of the item's inode; `None` if it was removed.
fn changed_us(change: &Change) -> Option<u64> {
    u64::try_from(change.after.as_ref()?.ctime_ns / 1_000).ok()
}

/// Returns the cause of a file that only has the content of a package.
fn only_content(change: &Change, package: &str, writer: &str) -> Option<Cause> {
    let is_file = change.after.as_ref().is_some_and(|now| now.kind == Kind::File);
    let content_matches = true;
    let cause = unexplained(format!("content of {package}, {writer}"));
    is_file.then_some(Cause { content_matches, ..cause })
}

/// Returns the cause of what a package manager made that is no content of a package. What it wrote
/// itself must be its own.
fn by_packages_tool(run: &Run, package: Option<&str>, is_own: bool) -> Cause {
    let what = match (&run.script, package) {
        (Some(script), _) => format!("script {script}"),
        (None, Some(package)) if run.is_dpkg => format!("{package} has no digest of the content"),
        (None, _) if run.is_dpkg => "written by dpkg itself".to_owned(),
        (None, _) if run.has_helper => format!("written by a helper of {}", run.tool.name),
        (None, _) => format!("written by {} itself", run.tool.name),
    };
    if !run.is_scripted && !is_own {
        return unexplained(format!("{what}, but in the list of no package"));
    }
    deployment(&run.tool, &what)
}

/// Returns true for names of files that dpkg writes and renames.
pub(crate) fn is_temporary_name(name: &[u8]) -> bool {
    TEMPORARY.iter().any(|end| name.ends_with(end))
}

pub(crate) fn run_of(tool: &Tool) -> String {
    format!("written by {} or a program that it started", tool.name)
}

pub(crate) fn deployment(tool: &Tool, what: &str) -> Cause {
    Cause {
        kind: CauseKind::Deployment,
        detail: format!("{}: {what}", tool.name),
        id: tool.id.clone(),
        tool: tool.name.to_owned(),
        writer_matches: true,
        ..Cause::default()
    }
}

/// Returns what happened to a package, such as `coreutils 9.1-1 to 9.1-2`.
fn step(package: &CausePackage) -> String {
    let CausePackage { name, version, previous_version: before } = package;
    match (before.as_str(), version.as_str()) {
        ("", "") => name.clone(),
        ("", new) => format!("{name} {new}"),
        (old, "") => format!("{name} {old} removed"),
        (old, new) if old == new => format!("{name} {new} installed again"),
        (old, new) => format!("{name} {old} to {new}"),
    }
}
