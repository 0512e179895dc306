//! Turns what the table found into an [`Actor`]: names, masked command lines, hashes and times.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use model::{
    Actor, ActorUser, Attribution, Candidate, Executable, ProcessInfo, Writer, WriterSeen,
    timestamp,
};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

use crate::clock::WallOffset;
use crate::container;
use crate::find::{FindOutcome, Found, Reason};
use crate::hash::{Hashes, hex};
use crate::image::{Ancestor, Image, ObservedImage, Program, Start};
use crate::limits;
use crate::mask;

/// The caches behind descriptions. **Locking:** each lock guards one cache, is held for a lookup
/// only, and no two are held at once.
#[derive(Debug)]
pub(crate) struct Describer {
    patterns: Vec<String>,
    boot: String,
    /// The agent's own container; empty outside of containers.
    container: String,
    hashes: Hashes,
    names: Mutex<HashMap<u32, (String, Instant)>>,
    wall: Mutex<WallOffset>,
}

impl Describer {
    pub(crate) fn new(patterns: Vec<String>) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self {
            patterns,
            boot: boot.trim().to_owned(),
            container: container::id(&groups).unwrap_or_default(),
            hashes: Hashes::default(),
            names: Mutex::default(),
            wall: Mutex::new(WallOffset::now()),
        }
    }

    /// Describes the process of a notification.
    pub(crate) fn actor(&self, writer: &Writer, finding: &FindOutcome) -> Actor {
        let (attribution, reason) = match finding {
            FindOutcome::Process(found) => {
                let mut actor = self.process(writer.pid, found);
                if writer.seen == WriterSeen::OnlyClosing
                    && actor.attribution < Attribution::Uncertain
                {
                    actor.attribution = Attribution::Uncertain;
                    actor.reason = self.reason(Reason::OnlyClosed);
                }
                return actor;
            }
            FindOutcome::Unknown(reason) => (Attribution::Unknown, *reason),
            FindOutcome::Uncertain(reason) => (Attribution::Uncertain, *reason),
        };
        // The number alone says little, but it is what the kernel reported.
        let process =
            (writer.pid != 0).then(|| ProcessInfo { pid: writer.pid, ..ProcessInfo::default() });
        Actor { attribution, reason: self.reason(reason), process, ..Actor::default() }
    }

    fn process(&self, pid: u32, found: &Found) -> Actor {
        let mut candidates = self.candidates(pid, &found.images, limits::CANDIDATES_MAX);
        let one_image = found.images.len() == 1 && found.unknown_image.is_none();
        let one_user = found.ids.len() == 1 && found.logins.len() == 1;
        let (attribution, reason) = match (&found.unknown_image, candidates.as_slice()) {
            (None, [_]) if one_image && one_user => (Attribution::Exact, String::new()),
            (Some(reason), []) => (Attribution::Unknown, self.reason(*reason)),
            // An image became doubtful between the search and now.
            (None, []) => (Attribution::Unknown, self.reason(Reason::Gone)),
            (reason, _) => (Attribution::Ambiguous, ambiguity(found, reason.is_some())),
        };
        let mut process = self.info(pid, found.start);
        process.is_root = !found.ids.is_empty()
            && found.ids.iter().all(|ids| ids.effective == 0)
            && found.images.iter().chain(&found.earlier).all(|seen| self.is_own_container(seen));
        if one_image && let (Some(seen), [candidate]) = (found.images.first(), &*candidates) {
            process.executable = Some(candidate.executable.clone());
            self.add_image(&mut process, &seen.image, limits::COMMAND_LINE_BYTES_MAX);
            candidates.clear();
        }
        let login = one(&found.logins);
        let real = distinct(found.ids.iter().map(|ids| ids.real));
        let effective = distinct(found.ids.iter().map(|ids| ids.effective));
        let several = effective.iter().filter(|_| effective.len() > 1);
        let users = several.map(|id| self.user(*id)).collect();
        let image = one(&found.images).filter(|_| one_image).map(|seen| &seen.image);
        Actor {
            attribution,
            reason,
            process: Some(process),
            executables: candidates,
            earlier: self.candidates(pid, &found.earlier, limits::EARLIER_MAX),
            ancestors: self.ancestors(found),
            users,
            real_user: one(&real).map(|id| self.user(*id)),
            effective_user: one(&effective).map(|id| self.user(*id)),
            login_user: login.and_then(|login| login.user).map(|user| self.user(user)),
            session: login.and_then(|login| login.session),
            tty: image.map(|image| image.tty.clone()).unwrap_or_default(),
            container_id: image.map(|image| image.container.clone()).unwrap_or_default(),
        }
    }

    /// Describes at most `most` of the last programs of a process.
    fn candidates(&self, pid: u32, images: &[Arc<ObservedImage>], most: usize) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let skipped = images.len().saturating_sub(most);
        for seen in images.iter().skip(skipped) {
            let Some(program) = seen.known_program() else { continue };
            let mut info = ProcessInfo::default();
            self.add_image(&mut info, &seen.image, limits::ANCESTOR_COMMAND_LINE_BYTES_MAX);
            let candidate = Candidate {
                executable: executable(program, self.hashes.of(pid, program)),
                command_line: info.command_line,
                working_directory: info.working_directory,
                foreign: info.foreign,
                arguments: info.arguments,
            };
            if !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
        candidates
    }

    fn ancestors(&self, found: &Found) -> Vec<ProcessInfo> {
        // An ancestor that ended before the change explains nothing: a service that a package
        // started descends from the package manager for the rest of its life.
        let running = found.ancestors_running.iter().copied().chain(std::iter::repeat(false));
        let each = found.ancestors.iter().zip(running);
        each.map(|(ancestor, running)| self.ancestor(ancestor, running)).collect()
    }

    fn is_own_container(&self, seen: &ObservedImage) -> bool {
        seen.image.container == self.container
    }

    fn ancestor(&self, ancestor: &Ancestor, running: bool) -> ProcessInfo {
        let mut info = self.info(ancestor.pid, ancestor.start);
        if let Some(seen) = &ancestor.image
            && let Some(program) = seen.known_program()
        {
            info.is_root = running && ancestor.user == Some(0) && self.is_own_container(seen);
            info.executable = Some(executable(program, self.hashes.cached(program)));
            self.add_image(&mut info, &seen.image, limits::ANCESTOR_COMMAND_LINE_BYTES_MAX);
        }
        info
    }

    fn info(&self, pid: u32, start: Start) -> ProcessInfo {
        let wall = {
            let mut wall = self.wall.lock();
            *wall = wall.refreshed();
            *wall
        };
        let start_text = start.at_ns.map(|at_ns| timestamp::micros(wall.micros(at_ns)));
        let entity = start.ticks.filter(|_| !self.boot.is_empty()).map(|ticks| {
            let id = digest(&SHA256, format!("{} {pid} {ticks}", self.boot).as_bytes());
            hex(id.as_ref().get(..16).unwrap_or_default())
        });
        ProcessInfo {
            pid,
            entity_id: entity.unwrap_or_default(),
            start: start_text.unwrap_or_default(),
            ..ProcessInfo::default()
        }
    }

    fn add_image(&self, info: &mut ProcessInfo, image: &Image, command_line_bytes: usize) {
        // A program may make thousands of changes, and is an ancestor of others that do.
        let command_line =
            image.command_line.get_or_init(|| mask::command_line(&image.arguments, &self.patterns));
        info.command_line = printable(command_line, command_line_bytes);
        info.foreign = image.foreign;
        info.arguments = image.first_arguments.get_or_init(|| first_arguments(image)).clone();
        info.working_directory = path(&image.working_directory);
    }

    fn user(&self, id: u32) -> ActorUser {
        if let Some((name, at)) = self.names.lock().get(&id)
            && at.elapsed() < limits::NAME_AGE_MAX
        {
            return ActorUser { id, name: name.clone() };
        }
        let user = uzers::get_user_by_uid(id);
        let name = user.map(|user| user.name().to_string_lossy().into_owned()).unwrap_or_default();
        let mut names = self.names.lock();
        if names.len() >= limits::NAMES_MAX {
            names.clear();
        }
        names.insert(id, (name.clone(), Instant::now()));
        ActorUser { id, name }
    }

    fn reason(&self, reason: Reason) -> String {
        match reason {
            Reason::Gone => "gone before it was read".to_owned(),
            Reason::OtherNamespace => "other pid namespace".to_owned(),
            Reason::Kernel => "kernel".to_owned(),
            Reason::NotPermitted => "executable not readable".to_owned(),
            Reason::Incomplete(from_ns, to_ns) => {
                let wall = *self.wall.lock();
                let time = |ns| timestamp::micros(wall.micros(i64::try_from(ns).unwrap_or(0)));
                format!("table incomplete {}..{}", time(from_ns), time(to_ns))
            }
            Reason::Reused => "process number reused in the interval".to_owned(),
            Reason::ManyImages => "more executables in the interval than are kept".to_owned(),
            Reason::OnlyClosed => "closed it; not seen writing".to_owned(),
            Reason::Behind => "process table is behind".to_owned(),
        }
    }
}

fn first_arguments(image: &Image) -> Arc<[String]> {
    let arguments = image.arguments.split(|byte| *byte == 0);
    let text = |argument| String::from_utf8_lossy(argument).into_owned();
    arguments.take(limits::FIRST_ARGUMENTS_MAX).map(text).collect()
}

fn executable(program: &Program, sha256: Option<String>) -> Executable {
    Executable { path: path(&program.path), sha256, deleted: program.deleted }
}

fn path(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(bytes), limits::PATH_BYTES_MAX)
}

/// Returns the text without control characters, which take 6 bytes in JSON, and cut off at this
/// size.
fn printable(text: &str, most: usize) -> String {
    let mut shown: String = text
        .chars()
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if shown.len() > most {
        shown.truncate(shown.floor_char_boundary(most - 3));
        shown.push_str("...");
    }
    shown
}

fn distinct(ids: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut ids: Vec<u32> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn one<T>(set: &[T]) -> Option<&T> {
    if let [only] = set { Some(only) } else { None }
}

/// Returns the reason of an ambiguous attribution.
fn ambiguity(found: &Found, further: bool) -> String {
    if found.images.len() > 1 || further {
        let further = if further { ", one of them unknown" } else { "" };
        return format!("several executables in the interval{further}");
    }
    match (found.ids.len(), found.logins.len()) {
        (0, _) | (_, 0) => "user unknown".to_owned(),
        _ => "several users in the interval".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use model::Interval;

    use super::*;
    use crate::image::{FileId, Login};
    use crate::message::Ids;

    fn sighting(byte: u8, inode: u64) -> Arc<ObservedImage> {
        let file = FileId { device: 0, inode, ctime_ns: 0 };
        let mut path = vec![byte; 4096];
        path[0] = b'a' + inode as u8;
        let program = Program { path, deleted: false, file };
        let image = Image {
            program: Some(program),
            arguments: vec![byte; limits::ARGUMENTS_BYTES_MAX],
            working_directory: vec![byte; 4096],
            ..Image::default()
        };
        Arc::new(ObservedImage::of_reading(Arc::new(image)))
    }

    #[test]
    fn eight_of_the_largest_descriptions_fit_into_an_event() {
        // Control characters, quotes, and bytes that are no text.
        for byte in [0x01, b'"', 0xff] {
            let images: Vec<_> =
                (0..limits::PHASES_MAX as u64).map(|inode| sighting(byte, inode)).collect();
            let start = Start { at_ns: Some(i64::MAX), ticks: Some(u64::MAX) };
            let image = images.first().cloned();
            let ancestor = Arc::new(Ancestor { pid: u32::MAX, start, image, user: None });
            let found = Found {
                start,
                images: images.clone(),
                unknown_image: Some(Reason::ManyImages),
                earlier: images.clone(),
                ids: vec![Ids { real: 0, effective: 1 }, Ids { real: 1, effective: 2 }],
                logins: vec![Login { user: Some(1), session: Some(1) }],
                ancestors: vec![ancestor; limits::ANCESTORS_MAX].into(),
                ancestors_running: Vec::new(),
                read_ns: 0,
            };
            let describer = Describer::new(Vec::new());
            let writer = Writer::new(1, WriterSeen::Changing, Interval::default());
            let actor = describer.actor(&writer, &FindOutcome::Process(Box::new(found)));
            let bytes = serde_json::to_vec(&actor).unwrap().len();
            assert!(bytes > 30_000 && 9 * bytes < model::limits::DOCUMENT_BYTES_MAX, "{bytes}");
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(printable("a\nb", 9), "a\u{fffd}b");
        assert_eq!(printable("ключключ", 9), "клю...");
    }
}
