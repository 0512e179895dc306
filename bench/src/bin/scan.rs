//! Scanning files: baseline and rescan of one tree, next to AIDE and to two limits (walk and statx;
//! read and SHA-256). The runs are interleaved, and every figure is that of a whole process.
//!
//! TREE names another tree than /usr.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use detect::{Cancel, Progress, Rules, ScanOptions, Scanner, SystemNames};
use env::clock::SystemClock;
use env::random::SystemRandom;
use holdfast_bench::{Cost, Results, measure, quick};
use model::Dataset;
use queue::{Queue, QueueOptions};

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["walk", tree] => walk(Path::new(tree), &mut |_| ()),
        ["read", tree] => read(Path::new(tree)),
        ["holdfast", tree, db] => holdfast(tree, Path::new(db)),
        _ => compare(),
    }
}

fn compare() -> anyhow::Result<()> {
    let tree = PathBuf::from(std::env::var("TREE").unwrap_or_else(|_| "/usr".into()));
    let tree = if quick() { tree.join("share/doc") } else { tree };
    let rounds = 3;
    let base = std::env::temp_dir().join(format!("holdfast-bench-scan-{}", std::process::id()));
    fs::create_dir_all(&base)?;
    let mut results = Results::default();
    let own = std::env::current_exe()?;
    let this = |words: &[&std::ffi::OsStr]| -> anyhow::Result<Cost> {
        measure(Command::new(&own).args(words), &[0])
    };
    let db = base.join("agent.db");
    // Warm the cache, so that all subjects find the tree in memory.
    this(&["read".as_ref(), tree.as_os_str()])?;
    for _ in 0..rounds {
        results.add_cost("rescan", "walk + statx", this(&["walk".as_ref(), tree.as_os_str()])?);
        results.add_cost("baseline", "read + SHA-256", this(&["read".as_ref(), tree.as_os_str()])?);
        for file in ["agent.db", "agent.db-wal", "agent.db-shm", "agent.db.lock"] {
            let _ = fs::remove_file(base.join(file));
        }
        let scan = ["holdfast".as_ref(), tree.as_os_str(), db.as_os_str()];
        results.add_cost("baseline", "holdfast", this(&scan)?);
        // The first rescan rereads racy files; the second one is the steady state.
        this(&scan)?;
        results.add_cost("rescan", "holdfast", this(&scan)?);
        let files = count(&tree)?;
        let bytes = fs::metadata(&db)?.len();
        results.add("baseline", "holdfast", "db_bytes_per_file", "B", bytes as f64 / files as f64);
        aide(&tree, &base, &mut results)?;
    }
    fs::remove_dir_all(&base)?;
    println!("tree {}: {} entries", tree.display(), count(&tree)?);
    results.print("holdfast");
    results.save("scan")
}

/// Measures AIDE with the same attributes and hash: init and check.
fn aide(tree: &Path, base: &Path, results: &mut Results) -> anyhow::Result<()> {
    let config = base.join("aide.conf");
    let shown = base.display();
    fs::write(
        &config,
        format!(
            "database_in=file:{shown}/aide.db\ndatabase_out=file:{shown}/aide.db.new\n\
             gzip_dbout=no\nreport_url=stdout\nAll=p+ftype+i+n+u+g+s+m+c+sha256\n{} All\n",
            tree.display()
        ),
    )?;
    let run = |action: &str, accepted: &[i32]| {
        let mut command = Command::new("aide");
        command.arg("--config").arg(&config).arg(action);
        measure(&mut command, accepted)
    };
    results.add_cost("baseline", "aide", run("--init", &[0])?);
    fs::rename(base.join("aide.db.new"), base.join("aide.db"))?;
    // Exit codes up to 7 name the kinds of differences; from 8 on they are errors.
    results.add_cost("rescan", "aide", run("--check", &[0, 1, 2, 3, 4, 5, 6, 7])?);
    Ok(())
}

/// Measures the limit of a rescan: names and statx, one thread.
fn walk(tree: &Path, visit: &mut dyn FnMut(PathBuf)) -> anyhow::Result<()> {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
    let mut todo = vec![tree.to_owned()];
    while let Some(folder) = todo.pop() {
        let Ok(fd) = openat(CWD, &folder, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) else {
            continue;
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_owned();
            if name.to_bytes() != b"." && name.to_bytes() != b".." {
                names.push((entry.ino(), name));
            }
        }
        names.sort_unstable_by_key(|(inode, _)| *inode);
        for (_, name) in names {
            let Ok(stat) = statx(&fd, &name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)
            else {
                continue;
            };
            let path = || folder.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            match u32::from(stat.stx_mode) & libc::S_IFMT {
                libc::S_IFDIR => todo.push(path()),
                libc::S_IFREG => visit(path()),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Measures the limit of a baseline: reading everything and SHA-256, two threads.
fn read(tree: &Path) -> anyhow::Result<()> {
    let (sender, receiver) = std::sync::mpsc::sync_channel::<PathBuf>(1024);
    let receiver = Arc::new(Mutex::new(receiver));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let receiver = receiver.clone();
            std::thread::spawn(move || {
                let mut buffer = vec![0; 256 * 1024];
                loop {
                    let Ok(path) = receiver.lock().expect("no reader panics").recv() else { break };
                    let _ = hash(&path, &mut buffer);
                }
            })
        })
        .collect();
    walk(tree, &mut |path| {
        let _ = sender.send(path);
    })?;
    drop(sender);
    readers.into_iter().for_each(|r| {
        let _ = r.join();
    });
    Ok(())
}

fn hash(path: &Path, buffer: &mut [u8]) -> std::io::Result<ring::digest::Digest> {
    use std::io::Read as _;
    let mut file = fs::File::open(path)?;
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    loop {
        match file.read(buffer)? {
            0 => return Ok(context.finish()),
            n => context.update(&buffer[..n]),
        }
    }
}

fn count(tree: &Path) -> anyhow::Result<u64> {
    let mut files = 0;
    walk(tree, &mut |_| files += 1)?;
    Ok(files)
}

/// Runs the agent's work: a scan into `agent.db`.
fn holdfast(tree: &str, db: &Path) -> anyhow::Result<()> {
    let clock = Arc::new(SystemClock::new());
    let (queue, _) =
        Queue::open(db, QueueOptions::default(), clock.clone(), Arc::new(SystemRandom))?;
    let dataset = Dataset::fim_files();
    let mut baseline = queue.baseline(&dataset)?;
    let mut sink = queue.sink(&dataset, Arc::new(SystemNames::new()))?;
    let scanner = Scanner::new(Rules::of_paths([tree]), ScanOptions::default(), clock)?;
    let report =
        scanner.scan(&mut baseline, &mut sink, &Progress::new(), &Cancel::new()).context("scan")?;
    queue.close()?;
    println!("{report:?}");
    Ok(())
}
