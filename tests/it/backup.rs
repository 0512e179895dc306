//! A backup holds the server's configuration, wherever its file is.

use std::fs;
use std::path::Path;

use crate::common::deployment::{Deployment, start};
use crate::common::run;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn backup_includes_a_configuration_outside_the_data_folder() {
    let deployment = Deployment::new("backup-config");
    let (data, file) = (deployment.data(), deployment.base.join("server.toml"));
    let (saved, restored) = (deployment.base.join("saved"), deployment.base.join("restored"));
    let server = start(&deployment.base, "server");
    server.line("ready: ");
    let (code, out, error) = run(&["backup", "--data", text(&data), "--to", text(&saved)]);
    assert_eq!(code, 0, "{out}{error}");
    assert_eq!(server.stop(), 0);
    let original = fs::read(&file).unwrap();
    assert!(fs::read(saved.join("server.toml")).unwrap() == original);
    fs::write(&file, "# changed later\n").unwrap();
    let (code, out, error) = run(&["restore", "--from", text(&saved), "--data", text(&restored)]);
    assert_eq!(code, 0, "{out}{error}");
    assert!(fs::read(restored.join("server.toml")).unwrap() == original);
    assert_eq!(fs::read_to_string(&file).unwrap(), "# changed later\n", "it was overwritten");
    assert!(out.contains(text(&file)) && out.contains("restored/server.toml"), "{out}");
    // A file that is gone is reported, and the rest is saved.
    fs::remove_file(&file).unwrap();
    let again = deployment.base.join("again");
    let (code, out, error) = run(&["backup", "--data", text(&data), "--to", text(&again)]);
    assert_eq!(code, 0, "{out}{error}");
    assert!(out.contains("without") && out.contains(text(&file)), "{out}");
}
