//! Generated values: random walks with two decimals, counters, and floats with full precision.

use series::{Batch, Row, Store};

/// Metrics of a row.
pub const COLUMNS: usize = 10;
/// Seconds between two rows of a series.
pub const STEP_S: i64 = 10;
/// Time of the first row, nanoseconds.
pub const BEGIN_NS: i64 = 1_700_000_000_000_000_000;

/// Kinds of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Gauges,
    Counters,
    Floats,
}

impl Kind {
    pub fn named(name: &str) -> Self {
        match name {
            "counters" => Self::Counters,
            "floats" => Self::Floats,
            _ => Self::Gauges,
        }
    }
}

pub struct Generator {
    kind: Kind,
    state: u64,
    digits: Vec<i64>,
    floats: Vec<f64>,
    pub rows: Vec<Row>,
}

impl Generator {
    /// Returns a generator of `rows` row series with six tags each.
    pub fn new(store: &Store, kind: Kind, rows: usize) -> anyhow::Result<Self> {
        let metrics: Vec<String> = (0..COLUMNS).map(|c| format!("cpu.m{c}")).collect();
        let metrics = metrics.join("|");
        let mut known = Vec::with_capacity(rows);
        for i in 0..rows {
            let name = format!(
                "{metrics} arch=x64 dc={} host=host_{i} os=linux rack={} team=t{}",
                i % 7,
                i % 50,
                i % 20
            );
            known.push(store.row(name.as_bytes())?);
        }
        let n = rows * COLUMNS;
        Ok(Self { kind, state: 42, digits: vec![10_000; n], floats: vec![1000.0; n], rows: known })
    }

    fn draw(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// Returns a step of a random walk: the sum of four uniform numbers, with a deviation of about
    /// `sigma`.
    fn step(&mut self, sigma: i64) -> i64 {
        let bits = self.draw();
        let sum: i64 = (0..4).map(|i| ((bits >> (16 * i)) & 0xffff) as i64).sum();
        (sum - 2 * 0xffff) * sigma / 37_837
    }

    fn values(&mut self, row: usize, values: &mut [f64; COLUMNS]) {
        for (c, value) in values.iter_mut().enumerate() {
            let at = row * COLUMNS + c;
            let step = self.step(50);
            match self.kind {
                Kind::Gauges => {
                    self.digits[at] += step;
                    *value = self.digits[at] as f64 / 100.0;
                }
                Kind::Counters => {
                    self.digits[at] += 1000 + step * 4;
                    *value = self.digits[at] as f64;
                }
                Kind::Floats => {
                    self.floats[at] +=
                        step as f64 / 50.0 + (self.draw() >> 11) as f64 / (1u64 << 53) as f64;
                    *value = self.floats[at];
                }
            }
        }
    }

    /// Appends rows `from..to` of the row series at one time.
    pub fn fill_batch(
        &mut self,
        batch: &mut Batch,
        time: i64,
        from: usize,
        to: usize,
    ) -> anyhow::Result<()> {
        let time_ns = BEGIN_NS + time * STEP_S * 1_000_000_000;
        let mut values = [0.0; COLUMNS];
        for i in from..to {
            self.values(i, &mut values);
            batch.push(self.rows[i], time_ns, &values)?;
        }
        Ok(())
    }
}

/// The same walks without a store.
pub struct Walks(Generator);

impl Walks {
    pub fn new(kind: Kind, rows: usize) -> Self {
        let n = rows * COLUMNS;
        let (digits, floats) = (vec![10_000; n], vec![1000.0; n]);
        Self(Generator { kind, state: 42, digits, floats, rows: Vec::new() })
    }

    /// Returns the next values of a row.
    pub fn next(&mut self, row: usize) -> [f64; COLUMNS] {
        let mut values = [0.0; COLUMNS];
        self.0.values(row, &mut values);
        values
    }
}

/// Returns one series of `n` values.
pub fn walk(kind: Kind, n: usize) -> Vec<f64> {
    let mut it =
        Generator { kind, state: 42, digits: vec![10_000], floats: vec![1000.0], rows: Vec::new() };
    let next = |_| {
        let step = it.step(50);
        match kind {
            Kind::Gauges => it.digits[0] += step,
            Kind::Counters => it.digits[0] += 1000 + step * 4,
            Kind::Floats => {
                let noise = (it.draw() >> 11) as f64 / (1u64 << 53) as f64;
                it.floats[0] += step as f64 / 50.0 + noise;
                return it.floats[0];
            }
        }
        if kind == Kind::Gauges { it.digits[0] as f64 / 100.0 } else { it.digits[0] as f64 }
    };
    (0..n).map(next).collect()
}
