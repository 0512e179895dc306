//! The values of `PromQL`: labels of series, arithmetic as in Prometheus, and dates.

mod date;
mod labels;
pub mod math;

pub use date::Date;
pub use labels::{DESCRIBING, Labels, NAME};
