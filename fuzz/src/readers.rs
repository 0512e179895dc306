//! The decoders of the series store and the readers of its protocols; see `targets.rs`.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "a fuzzer that finds something panics; each program uses one target"
)]

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use env::files::SimDisk;
use series::{Store, StoreOptions, Wal, probe};

use ::readers::influx::{Precision, read as influx_read};
use ::readers::remote::read as remote_read;
use ::readers::{CollectedRows, RespReader, RowCollector, TelnetReader};

/// Most inputs that are given to one store.
const INPUTS_MAX: u32 = 500;

/// Decodes any bytes as a column, chunk, index, manifest and log record, and encodes values of any
/// bits.
pub fn codec(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    probe::column(bytes, usize::from(*choice) * 16);
    probe::column(bytes, usize::from(*choice) % 8);
    probe::file(bytes);
    let bits: Vec<u64> = bytes
        .chunks(1 + usize::from(choice % 8))
        .map(|some| some.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte)))
        .collect();
    probe::values(&bits);
    // Encode short decimals, one of them with a flipped bit.
    let decimals = |bits: &u64| ((*bits as i64 % 100_000) as f64 / 100.0).to_bits();
    let mut bits: Vec<u64> = bits.iter().map(decimals).collect();
    if let Some(odd) = bits.get_mut(usize::from(*choice)) {
        *odd ^= 1 << (choice % 64);
    }
    probe::values(&bits);
}

fn store() -> Store {
    let disk = SimDisk::new(1);
    let options = StoreOptions {
        wal: Wal::Off,
        background: false,
        files: Arc::new(disk),
        ..StoreOptions::default()
    };
    Store::open(Path::new("/series"), options).unwrap().0
}

static STORE: Mutex<Option<(u32, Store)>> = Mutex::new(None);

/// Returns the store for the next input; it is replaced after `INPUTS_MAX` inputs.
fn next_store() -> Store {
    let mut kept = STORE.lock().unwrap_or_else(PoisonError::into_inner);
    let (inputs, store) = kept.take().unwrap_or_else(|| (0, store()));
    *kept = (inputs < INPUTS_MAX).then(|| (inputs + 1, store.clone()));
    store
}

fn collect_rows(store: &Store, read: impl FnOnce(&mut RowCollector<'_>)) -> CollectedRows {
    let mut collector = RowCollector::new(store);
    read(&mut collector);
    collector.finish()
}

fn same(one: &CollectedRows, other: &CollectedRows) {
    assert_eq!((one.samples, one.refused), (other.samples, other.refused));
    // A text in parentheses may contain the current time.
    let reason = |reason: &str| reason.split('(').next().unwrap_or_default().to_owned();
    let said = |taken: &CollectedRows| {
        taken.refusals.iter().map(|r| (reason(&r.reason), r.text.clone())).collect::<Vec<_>>()
    };
    assert_eq!(said(one), said(other));
    assert!(one.batches == other.batches, "other rows are taken");
}

/// Reads any bytes as streams and bodies: the accepted rows do not depend on where a stream is cut,
/// and the count of refusals is at least their number.
pub fn readers(data: &[u8]) {
    let Some(([which, cut], bytes)) = data.split_first_chunk::<2>() else { return };
    let (store, cut) = (next_store(), usize::from(*cut).min(bytes.len()));
    match which % 4 {
        0 => {
            let whole = collect_rows(&store, |collector| {
                let mut reader = RespReader::default();
                let done = reader.read(bytes, collector);
                reader.end(&bytes[done..], collector);
            });
            let pieces = collect_rows(&store, |collector| {
                let mut reader = RespReader::default();
                let mut done = reader.read(&bytes[..cut], collector);
                done += reader.read(&bytes[done..], collector);
                reader.end(&bytes[done..], collector);
            });
            same(&whole, &pieces);
        }
        1 => {
            let whole = collect_rows(&store, |collector| {
                let mut reader = TelnetReader::default();
                let (done, _) = reader.read(bytes, collector);
                reader.end(&bytes[done..], collector);
            });
            assert!(whole.refused >= whole.refusals.len() as u64);
        }
        2 => {
            let precision = Precision::parse(None).unwrap();
            let read =
                || collect_rows(&store, |collector| influx_read(bytes, precision, 1, collector));
            same(&read(), &read());
        }
        _ => {
            // The second read finds its labels cached, and must give the same rows.
            let Ok(body) = snap::raw::Encoder::new().compress_vec(bytes) else { return };
            let read = || {
                let mut collector = RowCollector::new(&store);
                remote_read(&body, &mut collector).map(|()| collector.finish())
            };
            match (read(), read()) {
                (Ok(first), Ok(second)) => same(&first, &second),
                (first, second) => assert_eq!(first.err(), second.err()),
            }
        }
    }
}
