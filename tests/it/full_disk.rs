//! A full disk on either side: the error is reported, nothing is lost, and work continues once
//! there is space. The tests need root to mount small file systems; without root they print a
//! message and pass.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::mounted::{Mounted, folder_to_watch};
use crate::common::{Api, Running, differences, disk, eventually, folder, free_port, run, stored};

fn fleet(base: &Path, server_data: &Path, agent_data: &Path, tree: &Path) -> (Running, Running) {
    let agents = free_port();
    let server_toml = base.join("server.toml");
    let agent_toml = base.join("agent.toml");
    fs::write(
        &server_toml,
        format!(
            "data = {server_data:?}\n[api]\nlisten = \"127.0.0.1:0\"\nplain_http = true\n\
             [agents]\nlisten = \"127.0.0.1:{agents}\"\n[journal]\nsegment_mib = 4\n"
        ),
    )
    .unwrap();
    fs::write(
        &agent_toml,
        format!(
            "data = {agent_data:?}\nserver = \"https://127.0.0.1:{agents}\"\n[scan]\n\
             interval = \"1h\"\n[sync]\nheartbeat = \"200ms\"\n[[watch]]\npath = {tree:?}\n"
        ),
    )
    .unwrap();
    let config = server_toml.to_str().unwrap();
    let server = Running::start(&["server", "--config", config], &base.join("server.log"));
    server.line("ready: ");
    let (code, token, error) = run(&["token", "--data", server_data.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    let config = agent_toml.to_str().unwrap();
    let (code, _, error) = run(&["enroll", "--config", config, "--token", token.trim()]);
    assert_eq!(code, 0, "{error}");
    let agent = Running::start(&["agent", "--config", config], &base.join("agent.log"));
    (server, agent)
}

fn create_files(tree: &Path, files: u32) {
    for i in 0..files {
        let dir = tree.join(format!("d{}", i % 100));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("a-rather-long-file-name-{i}")), b"x").unwrap();
    }
}

#[test]
fn agent_with_a_full_disk_reports_it_and_catches_up() {
    let base = folder("full-agent");
    let (tree, data) = (folder_to_watch(base.join("tree")), base.join("agent"));
    let Some(mounted) = Mounted::new(data.clone(), 2) else { return };
    create_files(&tree, 30_000);
    let (server, agent) = fleet(&base, &base.join("server"), &data, &tree);
    let problem = agent.line("scan failed: ");
    assert!(problem.contains("full") || problem.contains("space"), "{problem}");
    let grown = Command::new("mount").args(["-o", "remount,size=200m"]).arg(&mounted.0).status();
    assert!(grown.unwrap().success());
    let api = Api::of(&base.join("server"));
    api.rescan("001");
    eventually("the server equals the disk", || differences(&disk(&tree), &stored(&api, "001")));
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}

#[test]
fn server_with_a_full_disk_refuses_and_loses_nothing() {
    let base = folder("full-server");
    let (tree, data) = (folder_to_watch(base.join("tree")), base.join("server"));
    let Some(_mounted) = Mounted::new(data.clone(), 400) else { return };
    create_files(&tree, 500);
    let (server, agent) = fleet(&base, &data, &base.join("agent"), &tree);
    agent.line("synchronised: ");
    // Leave less space than the server's reserve: it must refuse before the disk is full.
    let ballast = data.join("ballast");
    fs::write(&ballast, vec![0; 300 * 1024 * 1024]).unwrap();
    let api = Api::of(&data);
    let mut round = 0;
    eventually("the server refuses", || {
        // The server checks the free space once a second, so make changes until it refuses.
        round += 1;
        fs::write(tree.join(format!("new{round}")), b"meanwhile").unwrap();
        let _ = api.request("PUT", "/syscheck?agents_list=001");
        let printed = agent.printed();
        let refused = |line: &&String| {
            let told = line.strip_prefix("not synchronised: ");
            told.is_some_and(|why| why.contains("503") && why.contains("changes are kept"))
        };
        printed.iter().find(refused).map(drop).ok_or_else(|| format!("{printed:#?}"))
    });
    fs::remove_file(&ballast).unwrap();
    eventually("the server equals the disk", || differences(&disk(&tree), &stored(&api, "001")));
    assert_eq!(agent.stop(), 0);
    assert_eq!(server.stop(), 0);
}
