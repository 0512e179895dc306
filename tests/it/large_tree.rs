//! Scans and synchronises a large tree, and compares the server's documents with an independent walk.
//! A soak test takes everything below /usr of this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::common::mounted::folder_to_watch;
use crate::common::{Api, Running, differences, disk, folder, stored};

/// Directories of the generated tree, and files and links in each: 20,211 entries with the root.
const DIRECTORIES: usize = 200;
const FILES: usize = 98;
const LINKS: usize = 2;

/// Creates a tree with files of different sizes, links, and names beyond ASCII.
fn generated(tree: &Path) {
    for directory in 0..DIRECTORIES {
        let path = tree.join(format!("d{}/folder-ä{directory}", directory % 10));
        fs::create_dir_all(&path).unwrap();
        for file in 0..FILES {
            let content = format!("{directory} {file}\n").repeat(directory * file % 200);
            fs::write(path.join(format!("f{file}")), content).unwrap();
        }
        for link in 0..LINKS {
            symlink(format!("f{link}"), path.join(format!("l{link}"))).unwrap();
        }
    }
}

/// Returns the tree to watch.
fn tree(base: &Path) -> PathBuf {
    if std::env::var_os("HOLDFAST_SOAK").is_some() {
        return "/usr".into();
    }
    let tree = folder_to_watch(base.join("tree"));
    generated(&tree);
    tree
}

#[test]
fn server_documents_of_a_large_tree_equal_the_disk() {
    let base = folder("large-tree");
    let (data, tree) = (base.join("data"), tree(&base));
    let words = [
        "up",
        "--data",
        data.to_str().unwrap(),
        "--watch",
        tree.to_str().unwrap(),
        "--api",
        "127.0.0.1:0",
        "--scan-interval",
        "1h",
        "--plain-http",
    ];
    let up = Running::start(&words, &base.join("up.log"));
    let synchronised = up.line("synchronised: ");
    let api = Api::of(&data);
    let on_disk = disk(&tree);
    let told: usize = synchronised.split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(told, on_disk.len(), "each entry once");
    differences(&on_disk, &stored(&api, "001")).unwrap();
    println!("{} entries; agent and server together peaked at {} KiB", told, up.peak_kib());

    // Nothing changed, so a rescan must report nothing.
    let before = up.lines();
    api.rescan("001");
    let (_, scan) = up.line_after(before, "scan: ");
    assert!(!scan.contains("created") && !scan.contains("in the baseline"), "{scan}");
    assert_eq!(up.stop(), 0);
}
