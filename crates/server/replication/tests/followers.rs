//! Followers that are accepted or refused, and what the journal keeps for them and for how long.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use commit::{Commit, CommitOptions};
use env::clock::ManualClock;
use http_body_util::BodyExt as _;
use journal::{Journal, Options};
use model::{Coverage, CoverageKind, EventBody, Record};
use replication::wire::{Decoder, Frame};
use replication::{LocalFollower, Part, SeedSource, ShipOptions, Shipping};
use serde_json::Value;
use state::{Reader, StateOptions, StateStore};
use tempfile::TempDir;
use tower::ServiceExt as _;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

struct Seed;

impl SeedSource for Seed {
    fn copy(&self, part: Part, to: &Path) -> Result<Vec<String>, String> {
        let name = if part == Part::All { "state.db" } else { "registry.db" };
        std::fs::write(to.join(name), vec![7; 600_000]).map_err(|e| e.to_string())?;
        Ok(vec![name.into()])
    }
}

struct Primary {
    shipping: Shipping,
    commit: Arc<Commit>,
    state: Arc<StateStore>,
    journal: Journal,
    dir: TempDir,
}

fn primary(held_bytes_max: u64) -> Primary {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token"), TOKEN).unwrap();
    open(dir, held_bytes_max)
}

fn open(dir: TempDir, held_bytes_max: u64) -> Primary {
    let journal_dir = dir.path().join("journal");
    let small = Options { segment_bytes: 64 << 10, ..Options::default() };
    let (journal, _) = Journal::open(&journal_dir, small).unwrap();
    let file = dir.path().join("state.db");
    let state = Arc::new(StateStore::open(&file, StateOptions::default()).unwrap());
    let options = CommitOptions::default();
    let (commit, _) = Commit::open(journal.clone(), state.clone(), options).unwrap();
    let options = ShipOptions {
        journal_dir,
        folder: dir.path().to_owned(),
        token_file: dir.path().join("token"),
        held_bytes_max,
        clock: Arc::new(ManualClock::at(1_000)),
        seed: Arc::new(Seed),
    };
    let shipping =
        Shipping::open(journal.clone(), commit.clone(), state.store_id(), options).unwrap();
    Primary { shipping, commit, state, journal, dir }
}

impl Primary {
    /// Commits records of about `bytes` each.
    async fn load(&self, records: u64, bytes: usize) {
        for _ in 0..records {
            let at_us = self.journal.persisted_position();
            let body = EventBody::of_coverage(Coverage {
                kind: CoverageKind::Baseline,
                path: String::new(),
                from_us: 1,
                to_us: 2,
                found: None,
                lasting: None,
                detail: "x".repeat(bytes),
            })
            .to_json();
            let record = Record::ServerEvent { id: format!("load-{at_us}"), at_us, body };
            self.commit.submit(record).await.unwrap();
        }
    }

    async fn send_request_to_primary(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
    ) -> (StatusCode, Body) {
        self.send_as("2", method, path, token).await
    }

    /// Sends a request as a follower of a version of the protocol.
    async fn send_as(
        &self,
        version: &str,
        method: &str,
        path: &str,
        token: Option<&str>,
    ) -> (StatusCode, Body) {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("x-holdfast-follow", version);
        request = match token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request.extension(LocalFollower),
        };
        let request = request.body(Body::empty()).unwrap();
        let answer = replication::router(self.shipping.clone()).oneshot(request).await.unwrap();
        (answer.status(), answer.into_body())
    }

    /// Returns the status and the error word of a request.
    async fn refused(&self, path: &str) -> (u16, String) {
        let (status, body) = self.send_request_to_primary("GET", path, None).await;
        let bytes = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        assert!(!body["detail"].as_str().unwrap().is_empty());
        (status.as_u16(), body["error"].as_str().unwrap().to_owned())
    }

    fn follow(&self, from: u64, last: &str) -> String {
        let store = self.state.store_id();
        format!("/journal/follow?follower=f&store={store}&from={from}{last}")
    }
}

/// Returns the frames up to the first status that says the stream has caught up.
async fn frames(body: &mut Body) -> Vec<Frame> {
    let (mut decoder, mut got) = (Decoder::default(), Vec::new());
    let mut last = 0;
    loop {
        let bytes = body.frame().await.unwrap().unwrap().into_data().unwrap();
        decoder.push(&bytes);
        while let Some(frame) = decoder.next_frame().unwrap() {
            match &frame {
                Frame::Record { position, .. } => last = *position,
                Frame::Status { persisted, .. } if *persisted == last => return got,
                _ => {}
            }
            got.push(frame);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follower_gets_all_existing_and_later_records_in_order() {
    let primary = primary(u64::MAX);
    primary.load(300, 2_000).await;
    let (status, mut body) =
        primary.send_request_to_primary("GET", &primary.follow(1, ""), None).await;
    assert_eq!(status, StatusCode::OK);
    let got: Vec<Frame> = frames(&mut body).await;
    let expected: Vec<Frame> = primary
        .journal
        .read_from(1)
        .unwrap()
        .map(|r| r.map(|(position, bytes)| Frame::Record { position, bytes }).unwrap())
        .collect();
    let records = |f: Vec<Frame>| -> Vec<Frame> {
        f.into_iter().filter(|f| matches!(f, Frame::Record { .. })).collect()
    };
    assert!(records(got) == expected);
    primary.load(1, 10).await;
    let later = records(frames(&mut body).await);
    assert!(matches!(&later[..], [Frame::Record { position: 301, .. }]), "{later:?}");
    let status = &primary.shipping.status()[0];
    assert!(status.connected && status.lag_records == 301, "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_store_diverged_history_or_lost_end_is_rejected_by_code() {
    let primary = primary(u64::MAX);
    primary.load(3, 10).await;
    let last = primary.journal.read_from(2).unwrap().next().unwrap().unwrap().1;
    let crc = format!("&last={:08x}", crc32c::crc32c(&last));
    assert_eq!(
        primary.send_request_to_primary("GET", &primary.follow(3, &crc), None).await.0,
        StatusCode::OK
    );
    let other = primary.follow(3, &crc).replace(&primary.state.store_id(), "other");
    assert_eq!(primary.refused(&other).await, (409, "store_differs".into()));
    assert_eq!(
        primary.refused(&primary.follow(3, "&last=00000001")).await,
        (409, "history_diverged".into())
    );
    assert_eq!(primary.refused(&primary.follow(9, "")).await, (409, "server_behind".into()));
    let named = primary.follow(1, "").replace("follower=f", "follower=..%2Fx");
    assert_eq!(primary.refused(&named).await, (400, "invalid".into()));
    for n in 0..8 {
        let known = primary.shipping.status().len();
        let path = primary.follow(1, "").replace("follower=f", &format!("follower=n{n}"));
        let (status, _body) = primary.send_request_to_primary("GET", &path, None).await;
        assert_eq!(status == StatusCode::OK, known < replication::FOLLOWERS_MAX, "{n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_without_a_valid_token_is_rejected() {
    let primary = primary(u64::MAX);
    let routes = [
        ("GET", "/journal/follow?follower=f&store=x&from=1"),
        ("POST", "/journal/follow/acknowledge?follower=f&position=0"),
        ("POST", "/journal/follow/seed?follower=f"),
        ("GET", "/journal/followers"),
        ("DELETE", "/journal/followers/f"),
    ];
    for (method, path) in routes {
        for wrong in ["", "x", &TOKEN[1..], "0123456789abcdef0123456789abcdee"] {
            let (status, _) = primary.send_request_to_primary(method, path, Some(wrong)).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {path} with {wrong:?}");
        }
        let (status, _) = primary.send_request_to_primary(method, path, Some(TOKEN)).await;
        assert_ne!(status, StatusCode::UNAUTHORIZED, "{method} {path}");
    }
    std::fs::remove_file(primary.dir.path().join("token")).unwrap();
    let (status, _) =
        primary.send_request_to_primary("GET", "/journal/followers", Some(TOKEN)).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "no token, nobody");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follower_of_an_older_version_is_refused() {
    let primary = primary(u64::MAX);
    for (method, path) in
        [("GET", primary.follow(1, "")), ("POST", "/journal/follow/seed?follower=f".into())]
    {
        for version in ["1", "", "x"] {
            let (status, _) = primary.send_as(version, method, &path, Some(TOKEN)).await;
            assert_eq!(status, StatusCode::CONFLICT, "{path} as {version:?}");
        }
        let (status, _) = primary.send_as("3", method, &path, Some(TOKEN)).await;
        assert_eq!(status, StatusCode::OK, "a newer one knows what it needs");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journal_retains_unacknowledged_records_across_a_restart() {
    let mut primary = primary(u64::MAX);
    primary.load(10, 10).await;
    let (_, body) = primary.send_request_to_primary("GET", &primary.follow(1, ""), None).await;
    let five = "/journal/follow/acknowledge?follower=f&position=5";
    assert_eq!(primary.send_request_to_primary("POST", five, None).await.0, StatusCode::OK);
    primary.load(400, 2_000).await;
    primary.shipping.tick();
    primary.commit.checkpoint().unwrap();
    assert_eq!(primary.journal.first_position(), 1, "the first segment holds record 5");
    drop(body);
    primary.shipping.stop();
    primary.commit.close().await.unwrap();
    let Primary { shipping, commit, state, journal, dir } = primary;
    drop((shipping, commit, state, journal));
    primary = open(dir, u64::MAX);
    assert_eq!(primary.shipping.status()[0].acknowledged, 5);
    primary.load(100, 2_000).await;
    primary.commit.checkpoint().unwrap();
    assert_eq!(primary.journal.first_position(), 1);
    // With everything acknowledged, only the last record's segment stays.
    let last = primary.journal.persisted_position();
    let path = format!("/journal/follow/acknowledge?follower=f&position={last}");
    assert_eq!(primary.send_request_to_primary("POST", &path, None).await.0, StatusCode::OK);
    let beyond = format!("/journal/follow/acknowledge?follower=f&position={}", last + 1);
    assert_eq!(
        primary.send_request_to_primary("POST", &beyond, None).await.0,
        StatusCode::BAD_REQUEST
    );
    primary.shipping.tick();
    primary.load(1, 10).await;
    primary.commit.checkpoint().unwrap();
    let first = primary.journal.first_position();
    assert!(first > 100 && first <= last, "{first} of {last}");
    assert_eq!(primary.shipping.status()[0].lag_records, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follower_holding_too_many_bytes_is_dropped_and_reported() {
    let primary = primary(256 << 10);
    primary.load(10, 10).await;
    drop(primary.send_request_to_primary("GET", &primary.follow(1, ""), None).await);
    primary.load(400, 2_000).await;
    primary.commit.checkpoint().unwrap();
    assert_eq!(primary.journal.first_position(), 1);
    let own = primary.shipping.clone();
    tokio::task::spawn_blocking(move || own.tick()).await.unwrap();
    assert!(primary.shipping.status().is_empty());
    let told =
        primary.state.changes(&Reader::server(), &state::ChangeQuery::default()).unwrap().items;
    let told = told.iter().filter(|e| e.id.starts_with("follower-dropped-")).count();
    assert_eq!(told, 1);
    assert!(primary.journal.first_position() > 100, "its records are given up");
    assert_eq!(primary.refused(&primary.follow(2, "")).await, (410, "trimmed".into()));
    let ack = "/journal/follow/acknowledge?follower=f&position=3";
    assert_eq!(primary.send_request_to_primary("POST", ack, None).await.0, StatusCode::GONE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seed_is_complete_and_later_records_are_retained() {
    let primary = primary(u64::MAX);
    primary.load(50, 10).await;
    let (status, body) =
        primary.send_request_to_primary("POST", "/journal/follow/seed?follower=f", None).await;
    assert_eq!(status, StatusCode::OK);
    let bytes = body.collect().await.unwrap().to_bytes();
    let mut decoder = Decoder::default();
    decoder.push(&bytes);
    let mut content = Vec::new();
    let mut ends = 0;
    while let Some(frame) = decoder.next_frame().unwrap() {
        match frame {
            Frame::File { size, name } => {
                assert_eq!((size, name.as_str()), (600_000, "state.db"));
            }
            Frame::Piece { offset, bytes } => {
                assert_eq!(offset, content.len() as u64);
                content.extend(bytes);
            }
            Frame::End { files } => ends += files,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((content, ends), (vec![7; 600_000], 1));
    assert_eq!(primary.shipping.status()[0].acknowledged, 50);
    let left = std::fs::read_dir(primary.dir.path()).unwrap().flatten();
    let left = left.filter(|e| e.file_name().to_string_lossy().starts_with("seed-")).count();
    assert_eq!(left, 0, "the copies are gone");
}
