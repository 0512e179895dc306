//! Roll-ups: summaries of the samples of each 5 minutes, and later of each hour.
//!
//! A roll-up is a part of its own. It is created when retention removes the samples of a partition.
//! With [`crate::StoreOptions::rollups_beside`] it is created once the partition is finished, next
//! to the samples, and recreated whenever it no longer matches them. While the samples exist, it is
//! used only where it gives exactly the same results. Afterwards it is *alone*: a later delete in
//! the partition removes whole buckets, and samples that are written later are stored next to it.
//! When its age limit is reached, the 5-minute buckets are merged to hours.
//!
//! A row of its tables is a bucket that begins at the row's time. Each metric has [`FIELDS`]
//! columns. Times in the columns are in seconds from the bucket's beginning.

use std::collections::BTreeMap;

use crate::model::Summary;
use crate::part::stats::summary_of;
use crate::table::{Column, Table};

/// Widths of buckets, in seconds, finest first.
pub(crate) const STEPS_S: [u32; 2] = [300, 3600];
/// Columns of one metric: count, sum, min, max, first, last, then the times of the last four.
pub(crate) const FIELDS: usize = 10;

const SECOND: f64 = 1e9;

/// Buckets of one metric by start time.
pub(crate) type Buckets = BTreeMap<i64, Summary>;

/// Returns the width of a bucket in nanoseconds.
pub(crate) fn width_ns(step_s: u32) -> i64 {
    i64::from(step_s.max(1)) * 1_000_000_000
}

/// Returns the start of the bucket of a time.
fn bucket_start(time_ns: i64, step_s: u32) -> i64 {
    time_ns.saturating_sub(time_ns.rem_euclid(width_ns(step_s)))
}

/// Returns the start of the finest bucket of a time.
pub(crate) fn begin_of(time_ns: i64) -> i64 {
    bucket_start(time_ns, STEPS_S[0])
}

/// Adds the samples of one column of a sorted table.
pub(crate) fn roll(times: &[i64], column: &Column, step_s: u32, into: &mut Buckets) {
    let floats = column.floats();
    let mut at = 0;
    while let Some(first) = times.get(at) {
        let bucket = bucket_start(*first, step_s);
        let end = bucket.saturating_add(width_ns(step_s));
        let rest = times.get(at..).unwrap_or_default();
        let next = at + rest.partition_point(|t| *t < end).max(1);
        let (some, bits) = (times.get(at..next), floats.get(at..next));
        if let Some(all) = summary_of(some.unwrap_or_default(), bits.unwrap_or_default()) {
            join(into, bucket, &all);
        }
        at = next;
    }
}

/// Merges a summary into a bucket.
pub(crate) fn join(into: &mut Buckets, bucket: i64, some: &Summary) {
    into.entry(bucket).and_modify(|all| *all = all.with(some)).or_insert(*some);
}

/// Returns the same data in wider buckets.
pub(crate) fn widen(buckets: &Buckets, step_s: u32) -> Buckets {
    let mut wide = Buckets::new();
    for (bucket, some) in buckets {
        join(&mut wide, bucket_start(*bucket, step_s), some);
    }
    wide
}

/// Returns the table of the metrics of a row series.
pub(crate) fn table(metrics: &[Buckets]) -> Table {
    let mut table = Table::with_columns(metrics.len() * FIELDS);
    table.times = metrics.iter().flat_map(BTreeMap::keys).copied().collect();
    table.times.sort_unstable();
    table.times.dedup();
    for (metric, columns) in metrics.iter().zip(table.columns.chunks_mut(FIELDS)) {
        for bucket in &table.times {
            let fields = metric.get(bucket).map_or([0.0; FIELDS], |some| fields(some, *bucket));
            for (column, field) in columns.iter_mut().zip(fields) {
                column.bits.push(field.to_bits());
            }
        }
    }
    table
}

fn fields(some: &Summary, bucket: i64) -> [f64; FIELDS] {
    let seconds = |time: i64| time.saturating_sub(bucket) as f64 / SECOND;
    [
        some.count as f64,
        some.sum,
        some.min,
        some.max,
        some.first,
        some.last,
        seconds(some.min_ns),
        seconds(some.max_ns),
        seconds(some.first_ns),
        seconds(some.last_ns),
    ]
}

/// Adds the buckets of the metric whose columns are the first of the table.
pub(crate) fn buckets(table: &Table, into: &mut Buckets) {
    for (i, bucket) in table.times.iter().enumerate() {
        let field = |column: usize| {
            let bits = table.columns.get(column).and_then(|c| c.bits.get(i));
            f64::from_bits(bits.copied().unwrap_or_default())
        };
        let time = |column: usize| bucket.saturating_add((field(column) * SECOND).round() as i64);
        let count = field(0) as u64;
        if count == 0 {
            continue;
        }
        let some = Summary {
            count,
            sum: field(1),
            min: field(2),
            max: field(3),
            first: field(4),
            last: field(5),
            min_ns: time(6),
            max_ns: time(7),
            first_ns: time(8),
            last_ns: time(9),
        };
        join(into, *bucket, &some);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(values: &[f64]) -> Column {
        Column { bits: values.iter().map(|v| v.to_bits()).collect(), ..Column::default() }
    }

    #[test]
    fn buckets_round_trip_through_their_table() {
        let times: Vec<i64> = (0..50).map(|i| 7_200_000_000_000 + i * 17_000_000_123).collect();
        let values: Vec<f64> = (0..50).map(|i| f64::from(i * i % 17) / 10.0).collect();
        let (mut one, mut two) = (Buckets::new(), Buckets::new());
        roll(&times, &column(&values), 300, &mut one);
        roll(&times[..9], &column(&values[..9]), 300, &mut two);
        assert_eq!(one.values().map(|s| s.count).sum::<u64>(), 50);
        let table = table(&[one.clone(), two.clone()]);
        let mut back = Buckets::new();
        buckets(&table, &mut back);
        assert_eq!(back, one);
        let second = Table { columns: table.columns[FIELDS..].to_vec(), ..table };
        let mut back = Buckets::new();
        buckets(&second, &mut back);
        assert_eq!(back, two);
    }

    #[test]
    fn summary_of_samples_equals_adding_them_one_by_one() {
        let nan = f64::NAN;
        let cases: [&[f64]; 8] = [
            &[1.5],
            &[nan],
            &[nan, nan, nan],
            &[nan, 3.0, 1.0, nan, 1.0],
            &[2.0, 2.0, nan, 2.0],
            &[-0.0, 0.0, -0.0],
            &[1e300, 1e300, -1e300, f64::INFINITY],
            &[0.1, 0.2, 0.3, -0.4, 0.5, 0.3],
        ];
        for values in cases {
            let times: Vec<i64> = (0..).step_by(7).take(values.len()).collect();
            let mut each = times.iter().zip(values).map(|(t, v)| Summary::of(*t, *v));
            let first = each.next().unwrap();
            let one_by_one = each.fold(first, |mut all, some| {
                all.add(&some);
                all
            });
            let bits: Vec<u64> = values.iter().map(|v| v.to_bits()).collect();
            let together = summary_of(&times, &bits).unwrap();
            assert_eq!(format!("{together:?}"), format!("{one_by_one:?}"), "{values:?}");
        }
        assert_eq!(summary_of(&[], &[]), None);
    }

    #[test]
    fn widened_buckets_equal_hourly_buckets_of_the_samples() {
        let times: Vec<i64> = (0..900).map(|i| i * 10_000_000_000).collect();
        let values: Vec<f64> = (0..900).map(|i| f64::from(i * 7 % 101)).collect();
        let (mut fine, mut coarse) = (Buckets::new(), Buckets::new());
        roll(&times, &column(&values), 300, &mut fine);
        roll(&times, &column(&values), 3600, &mut coarse);
        assert_eq!(widen(&fine, 3600), coarse);
    }
}
