//! Rows as bytes.

use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};

use crate::{RowsError, RowsResult};

/// A value of SQLite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Value {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    /// A text that is not UTF-8.
    Bytes(Vec<u8>),
    Blob(Vec<u8>),
}

impl Value {
    /// Returns about the bytes that it needs.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len() + 4,
            Self::Bytes(bytes) | Self::Blob(bytes) => bytes.len() + 4,
            Self::Null | Self::Integer(_) | Self::Real(_) => 8,
        }
    }
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(n) => Self::Integer(n),
            ValueRef::Real(n) => Self::Real(n),
            ValueRef::Text(text) => match std::str::from_utf8(text) {
                Ok(text) => Self::Text(text.to_owned()),
                Err(_) => Self::Bytes(text.to_vec()),
            },
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_vec()),
        }
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(n) => ValueRef::Integer(*n),
            Self::Real(n) => ValueRef::Real(*n),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Text(bytes),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// The net changes of one table.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TableRows {
    pub table: String,
    /// Keys of rows that are gone.
    pub gone: Vec<Vec<Value>>,
    /// Whole rows: new ones, and those of which the key or a unique column may differ.
    pub put: Vec<Vec<Value>>,
    /// Rows of which some columns may differ: key, set of columns (bit n is column n), their values
    /// in the order of the columns.
    pub set: Vec<(Vec<Value>, u64, Vec<Value>)>,
}

/// The net changes of one or several transactions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Rows {
    /// `PRAGMA user_version` of the database that made them.
    pub schema: u32,
    pub tables: Vec<TableRows>,
    /// Rows of `sqlite_sequence` that changed: table, last rowid.
    pub sequences: Vec<(String, i64)>,
}

impl Rows {
    /// Returns the bytes: postcard, see `docs/format/registry-rows.md`.
    pub fn encode(&self) -> Vec<u8> {
        // Serialising plain owned data into a growing buffer cannot fail.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Decodes rows.
    ///
    /// # Errors
    /// [`RowsError::Unfit`] if the bytes are not rows.
    pub fn decode(bytes: &[u8]) -> RowsResult<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((rows, [])) => Ok(rows),
            Ok(_) => Err(RowsError::Unfit("bytes follow the rows".into())),
            Err(error) => Err(RowsError::Unfit(format!("not rows: {error}"))),
        }
    }

    /// Returns the number of rows.
    pub fn count(&self) -> usize {
        self.tables.iter().map(|t| t.gone.len() + t.put.len() + t.set.len()).sum()
    }

    /// Returns true if nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.sequences.is_empty()
    }
}

/// Returns the numbers of the columns of a set.
pub(crate) fn columns_of(set: u64) -> impl Iterator<Item = usize> {
    (0..crate::schema::COLUMNS_MAX).filter(move |at| set & (1 << at) != 0)
}
