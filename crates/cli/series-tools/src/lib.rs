//! Commands on a series store that no other process has open: `holdfast series delete`, `verify`,
//! `export`, `import`, and `stat`, which asks the process that has it open.

mod arguments;
mod stat;
mod tools;

pub use arguments::{
    SeriesDeleteArgs, SeriesExportArgs, SeriesFormat, SeriesImportArgs, SeriesLookArgs,
    SeriesStatArgs,
};
pub use stat::stat;
pub use tools::{delete, export, import, verify, when_unlocked};
