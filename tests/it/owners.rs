//! Commands do not trust a data folder or a socket of another user that they only found.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Uid;

const NOBODY: u32 = 65_534;

/// A folder `data` whose socket belongs to another user, which listens on it.
struct Foreign {
    base: tempfile::TempDir,
    /// Bytes that commands have sent to the socket.
    received: Arc<AtomicUsize>,
}

impl Foreign {
    fn new() -> Option<Self> {
        if !needs::root("to act as another user") {
            return None;
        }
        let base = tempfile::tempdir().unwrap();
        let data = base.path().join("data");
        fs::create_dir(&data).unwrap();
        for path in [base.path(), &data] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        fs::write(base.path().join("keys"), "").unwrap();
        let received = Arc::new(AtomicUsize::new(0));
        let (listens, listening) = std::sync::mpsc::channel();
        let (socket, counted) = (data.join("holdfast.sock"), Arc::clone(&received));
        std::thread::spawn(move || {
            let nobody = Uid::from_raw(NOBODY);
            // Only this thread becomes the other user.
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let listener = UnixListener::bind(socket).unwrap();
            listens.send(()).unwrap();
            for stream in listener.incoming() {
                let mut bytes = [0; 4096];
                counted.fetch_add(stream.unwrap().read(&mut bytes).unwrap(), Ordering::SeqCst);
            }
        });
        listening.recv().unwrap();
        Some(Self { base, received })
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(words).current_dir(self.base.path()).env_remove("HOLDFAST_DATA");
        command.output().unwrap()
    }

    /// Runs a command that must be refused, and returns its error.
    fn refused(&self, words: &[&str]) -> String {
        let done = self.run(words);
        let error = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{words:?}: {error}");
        assert_eq!(self.received.load(Ordering::SeqCst), 0, "{words:?}: was sent");
        error
    }

    fn data(&self) -> std::path::PathBuf {
        self.base.path().join("data")
    }
}

/// Every command that finds `./data` by itself, with and without a server.
const COMMANDS: [&[&str]; 13] = [
    &["users", "password", "admin"],
    &["users"],
    &["changes"],
    &["agents"],
    &["agents", "import", "keys"],
    &["token"],
    &["clock", "show"],
    &["clock", "accept"],
    &["series", "stat"],
    &["backup", "--to", "copy"],
    &["authority", "reissue"],
    &["queue", "status"],
    &["up", "--api", "127.0.0.1:0"],
];

#[test]
fn default_folder_of_another_user_is_refused_by_all_commands() {
    let Some(place) = Foreign::new() else { return };
    for words in COMMANDS {
        let error = place.refused(words);
        let expected = "./data: belongs to user nobody (65534), and was found by default";
        assert!(error.contains(expected) && error.contains("--data"), "{words:?}: {error}");
    }
    let left: Vec<_> =
        fs::read_dir(place.data()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["holdfast.sock"], "a command wrote into the folder");
}

#[test]
fn default_folder_in_which_others_may_write_is_refused() {
    let Some(place) = Foreign::new() else { return };
    chown(place.data(), Some(0), Some(0)).unwrap();
    for mode in [0o777, 0o770, 0o757] {
        fs::set_permissions(place.data(), fs::Permissions::from_mode(mode)).unwrap();
        let error = place.refused(&["changes"]);
        assert!(error.contains("others may write in it") && error.contains("chmod"), "{error}");
    }
}

#[test]
fn socket_of_another_account_in_a_folder_of_root_is_not_asked() {
    let Some(place) = Foreign::new() else { return };
    chown(place.data(), Some(0), Some(0)).unwrap();
    let data = place.data();
    for words in [&["changes"][..], &["changes", "--data", data.to_str().unwrap()]] {
        let error = place.refused(words);
        assert!(error.contains("user nobody (65534) listens on it"), "{words:?}: {error}");
    }
    let from = format!("unix:{}/holdfast.sock", data.display());
    let error = place.refused(&["journal", "follow", "--from", &from, "--to", "copy", "--once"]);
    assert!(error.contains("user nobody (65534) listens on it"), "{error}");
}

#[test]
fn named_folder_of_another_account_is_taken_and_its_owner_said() {
    let Some(place) = Foreign::new() else { return };
    let data = place.data();
    let done = place.run(&["changes", "--data", data.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(error.contains("data belongs to user nobody (65534)"), "{error}");
    assert!(place.received.load(Ordering::SeqCst) > 0, "{error}");
    assert_eq!(error.matches("belongs to").count(), 1, "{error}");
    // By the environment it is named too.
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(["agents"]).env("HOLDFAST_DATA", "data").current_dir(Path::new(place.base.path()));
    let error = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    assert!(error.contains("data belongs to user nobody (65534)"), "{error}");
}
