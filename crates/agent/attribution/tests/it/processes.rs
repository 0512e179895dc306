//! Real processes change files, and the attribution names them: short-lived ones, subshells,
//! processes with other users, and processes in another namespace.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::common::{Watched, now_ns};
use attribution::{Attribution, Options};
use model::{Actor, Attribution as Certainty, Writer};

/// A user without a name or rights.
const OTHER_USER: u32 = 54_321;

/// The process that changed a file.
struct Truth {
    pid: u32,
    real_user: u32,
    effective_user: u32,
    executable: PathBuf,
}

/// A folder that every user may write, and what changed its files.
struct Bench {
    folder: tempfile::TempDir,
    truth: BTreeMap<String, Truth>,
}

fn program(name: &str) -> PathBuf {
    let found = ["/usr/bin", "/bin"].iter().map(|folder| Path::new(folder).join(name));
    fs::canonicalize(found.into_iter().find(|path| path.exists()).unwrap()).unwrap()
}

/// Returns a command that becomes another user and runs its arguments. The standard library could
/// change the user too, but would call `fork`, which stops every allocation of this process.
fn as_other_user() -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={OTHER_USER}"), "--clear-groups"]);
    command
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        Self { folder, truth: BTreeMap::new() }
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn know(&mut self, name: &str, pid: u32, users: (u32, u32), executable: PathBuf) {
        let truth = Truth { pid, real_user: users.0, effective_user: users.1, executable };
        self.truth.insert(name.to_owned(), truth);
    }

    /// Runs a command that changes the file as its own process.
    fn run(&mut self, name: &str, command: &mut Command, users: (u32, u32), executable: PathBuf) {
        let mut child = command.spawn().unwrap();
        self.know(name, child.id(), users, executable);
        assert!(child.wait().unwrap().success());
    }

    /// Runs a script whose processes write their number into the files.
    fn run_script(&mut self, command: &mut Command, names: &[String]) {
        assert!(command.status().unwrap().success());
        for name in names {
            let pid = fs::read_to_string(self.at(name)).unwrap().trim().parse().unwrap();
            self.know(name, pid, (0, 0), program("bash"));
        }
    }

    fn touch(&mut self, n: usize) {
        let name = format!("touch-{n}");
        let path = self.at(&name);
        self.run(&name, Command::new("touch").arg(path), (0, 0), program("touch"));
    }

    fn exec_after_write(&mut self, n: usize) {
        let name = format!("exec-{n}");
        let script = format!("echo > {}; exec true", self.at(&name));
        self.run(&name, Command::new("sh").args(["-c", &script]), (0, 0), program("sh"));
    }

    fn subshell(&mut self, n: usize) {
        let name = format!("subshell-{n}");
        let script = format!("(echo $BASHPID > {}); true", self.at(&name));
        self.run_script(Command::new("bash").args(["-c", &script]), &[name]);
    }

    fn burst(&mut self, n: usize, size: usize) {
        let names: Vec<_> = (0..size).map(|child| format!("burst-{n}-{child}")).collect();
        let start = self.at(&format!("burst-{n}-"));
        let script =
            format!("for ((i = 0; i < {size}; i++)); do (echo $BASHPID > {start}$i) & done; wait");
        self.run_script(Command::new("bash").args(["-c", &script]), &names);
    }

    fn other_user(&mut self, n: usize) {
        let name = format!("user-{n}");
        let path = self.at(&name);
        let users = (OTHER_USER, OTHER_USER);
        let command = &mut as_other_user();
        self.run(&name, command.arg("touch").arg(path), users, program("touch"));
    }

    /// Runs a set-user-id copy of touch, as another user.
    fn setuid(&mut self, n: usize, executable: &Path) {
        let name = format!("setuid-{n}");
        let path = self.at(&name);
        let users = (OTHER_USER, 0);
        let command = &mut as_other_user();
        self.run(&name, command.arg(executable).arg(path), users, executable.to_owned());
    }

    fn namespace(&mut self, n: usize) {
        let name = format!("namespace-{n}");
        // This /proc belongs to the first namespace, so it shows the number there.
        let script = format!("read -r pid rest < /proc/self/stat; echo $pid > {}", self.at(&name));
        let mut command = Command::new("unshare");
        self.run_script(command.args(["--pid", "--fork", "bash", "-c", &script]), &[name]);
    }
}

/// Outcomes of a comparison.
#[derive(Debug, Default)]
struct Score {
    right: usize,
    ambiguous: usize,
    not_known: Vec<String>,
    wrong: Vec<String>,
}

impl Score {
    fn add(&mut self, name: &str, truth: &Truth, actor: &Actor) {
        match judge(truth, actor) {
            Err(error) => self.wrong.push(format!("{name}: {error}: {actor:?}")),
            Ok(false) => self.not_known.push(format!("{name}: {}", actor.reason)),
            Ok(true) => {
                self.right += 1;
                self.ambiguous += usize::from(actor.attribution == Certainty::Ambiguous);
            }
        }
    }
}

/// Returns true if the process is named, false if the answer says that it is not known, and an
/// error if it names another one.
fn judge(truth: &Truth, actor: &Actor) -> Result<bool, String> {
    let pid = actor.process.as_ref().map(|process| process.pid);
    if pid != Some(truth.pid) {
        return Err(format!("pid is {}", truth.pid));
    }
    for (named, is) in
        [(&actor.real_user, truth.real_user), (&actor.effective_user, truth.effective_user)]
    {
        if named.as_ref().is_some_and(|user| user.id != is) {
            return Err(format!("user is {is}"));
        }
    }
    if actor.login_user.is_some() {
        return Err("there is no login".into());
    }
    let executable = actor.process.as_ref().and_then(|process| process.executable.as_ref());
    let candidates = actor.executables.iter().map(|candidate| &candidate.executable);
    let named: Vec<_> = candidates.chain(executable).collect();
    let contains = named.iter().any(|e| Path::new(&e.path) == truth.executable);
    if actor.attribution == Certainty::Exact && !(contains && named.len() == 1) {
        return Err(format!("executable is {}", truth.executable.display()));
    }
    if !named.is_empty() && !contains && !actor.reason.contains("unknown") {
        return Err(format!("executable is {}", truth.executable.display()));
    }
    let user =
        actor.effective_user.iter().chain(&actor.users).any(|u| u.id == truth.effective_user);
    Ok(contains && user)
}

fn score(
    bench: &Bench,
    writers: &BTreeMap<String, Vec<Writer>>,
    attribution: &Attribution,
) -> Score {
    let mut score = Score::default();
    for (name, truth) in &bench.truth {
        let [writer] = writers[name].as_slice() else {
            panic!("{name} has the writers {:?}", writers[name]);
        };
        score.add(name, truth, &attribution.resolve(&[*writer])[0]);
    }
    score
}

#[test]
fn short_lived_writers_are_named() {
    if !needs::root("for the process connector and fanotify") {
        return;
    }
    let mut bench = Bench::new();
    let tools = tempfile::tempdir().unwrap();
    fs::set_permissions(tools.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let setuid = tools.path().join("touch");
    fs::copy(program("touch"), &setuid).unwrap();
    fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).unwrap();
    let attribution = Attribution::start(Options::default()).unwrap();
    // The first interval must not reach back to the start, where the table is incomplete.
    let started_ns = now_ns();
    while now_ns() < started_ns + 20_000_000 {
        assert!(Command::new("true").status().unwrap().success());
    }
    let watched = Watched::start(bench.folder.path());
    for n in 0..50 {
        (0..5).for_each(|m| bench.touch(n * 5 + m));
        (0..4).for_each(|m| bench.exec_after_write(n * 4 + m));
        (0..4).for_each(|m| bench.subshell(n * 4 + m));
        bench.other_user(n);
        bench.setuid(n, &setuid);
        bench.namespace(n);
    }
    (0..2).for_each(|n| bench.burst(n, 100));
    let writers = watched.finish();
    let score = score(&bench, &writers, &attribution);
    let all = bench.truth.len();
    println!(
        "{all} writers: {} right, {} of them ambiguous, {} not known, {} wrong; {:?}",
        score.right,
        score.ambiguous,
        score.not_known.len(),
        score.wrong.len(),
        attribution.status(),
    );
    assert_eq!(all, 1000);
    assert!(score.wrong.is_empty(), "{:#?}", score.wrong);
    // On a loaded machine some processes are gone before they are read.
    assert!(score.right * 10 >= all * 9, "{:#?}", score.not_known);
}

/// A write through an `io_uring` is made by a thread of the kernel, which belongs to the process.
#[test]
fn writer_through_an_io_uring_is_named() {
    if !needs::root("for the process connector and fanotify") {
        return;
    }
    let mut ring = match io_uring::IoUring::new(8) {
        Ok(ring) => ring,
        Err(error) => return needs::skip(format_args!("this system has no io_uring: {error}")),
    };
    let bench = Bench::new();
    let attribution = Attribution::start(Options::default()).unwrap();
    let started_ns = now_ns();
    while now_ns() < started_ns + 20_000_000 {
        assert!(Command::new("true").status().unwrap().success());
    }
    let file = fs::File::create(bench.at("ring")).unwrap();
    let watched = Watched::start(bench.folder.path());
    let fd = io_uring::types::Fd(file.as_raw_fd());
    let content = b"content";
    let write = io_uring::opcode::Write::new(fd, content.as_ptr(), content.len() as u32).build();
    // Never inline in this thread.
    let write = write.flags(io_uring::squeue::Flags::ASYNC);
    #[expect(unsafe_code, reason = "the binding cannot see how long the buffer lives")]
    // SAFETY: the buffer and the file outlive the wait for the completion.
    unsafe {
        ring.submission().push(&write).unwrap();
    }
    ring.submit_and_wait(1).unwrap();
    assert_eq!(ring.completion().next().unwrap().result(), content.len() as i32);
    let writers = watched.finish();
    let [writer] = writers["ring"].as_slice() else { panic!("{writers:?}") };
    let actor = &attribution.resolve(&[*writer])[0];
    assert_eq!(actor.attribution, Certainty::Exact, "{actor:?}");
    let process = actor.process.as_ref().unwrap();
    assert_eq!(process.pid, std::process::id());
    let executable = process.executable.as_ref().unwrap();
    assert_eq!(Path::new(&executable.path), std::env::current_exe().unwrap());
}

/// Starts processes that do nothing, as fast as possible.
fn load() -> Child {
    let script = "for ((i = 0; i < 50; i++)); do /bin/true & done; wait";
    Command::new("bash").args(["-c", script]).spawn().unwrap()
}

#[test]
fn lost_messages_never_name_a_wrong_process() {
    if !needs::root("for the process connector and fanotify") {
        return;
    }
    let mut bench = Bench::new();
    // Room for a few messages.
    let options = Options { buffer_bytes: 2048, ..Options::default() };
    let attribution = Attribution::start(options).unwrap();
    let watched = Watched::start(bench.folder.path());
    // Messages are lost while the thread reads /proc for another one. Other processes of the machine
    // may have lost some before the first writer.
    let before = attribution.status().losses;
    let mut n = 0;
    while attribution.status().losses < before + 5 && n < 200 {
        let mut loads = [load(), load(), load()];
        bench.burst(n, 20);
        bench.touch(n);
        bench.exec_after_write(n);
        for load in &mut loads {
            assert!(load.wait().unwrap().success());
        }
        n += 1;
    }
    let writers = watched.finish();
    let score = score(&bench, &writers, &attribution);
    let status = attribution.status();
    println!("{} right, {} not known; {status:?}", score.right, score.not_known.len());
    assert!(status.losses > before && status.uncertain + status.unknown > 0, "{status:?}");
    assert!(score.wrong.is_empty(), "{:#?}", score.wrong);
}
