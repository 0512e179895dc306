//! Queries for documents, with bound values only: text of a query never becomes part of the SQL.

use model::{AgentId, Dataset};
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use sha1::{Digest, Sha1};

use super::StateStore;
use crate::error::{Context, StateError};
use crate::limits::{CONDITION_DEPTH_MAX, CONDITION_TESTS_MAX, PAGE_ITEMS_MAX};
use crate::query::{
    Comparison, Condition, DocumentField, DocumentPage, DocumentQuery, QueryValue, SortDirection,
    StoredDocument,
};
use sqlite::Reader;
use sqlite::{Packed, Unpacked, unpacked_sql};

impl StateStore {
    /// Returns one document.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn document(
        &self,
        reader: &Reader,
        agent: AgentId,
        dataset: &Dataset,
        id: &str,
    ) -> Result<Option<StoredDocument>, StateError> {
        self.read(reader, "read a document", |db| document(db, agent, dataset, id))
    }

    /// Returns documents of one agent and dataset.
    ///
    /// # Errors
    /// Returns an error if the query is beyond the limits or the store cannot be read.
    pub fn documents(
        &self,
        reader: &Reader,
        query: &DocumentQuery,
    ) -> Result<DocumentPage, StateError> {
        self.read(reader, "read documents", |db| documents(db, query))
    }

    /// Returns the SHA-1, lower-case hex, of the agent's document checksums in ascending order,
    /// concatenated as lower-case hex (`docs/reference/wire.md`, "Checksums"). An empty dataset
    /// gives the digest of the empty text.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn checksum(
        &self,
        reader: &Reader,
        agent: AgentId,
        dataset: &Dataset,
    ) -> Result<String, StateError> {
        self.read(reader, "read checksums", |db| checksum(db, agent, dataset))
    }
}

const WHAT: &str = "read documents";
/// Longest text that a field is compared with, bytes.
const TEXT_BYTES_MAX: usize = 8_192;
/// Columns that [`read_row`] reads.
pub(super) const COLUMNS: &str = "id, version, checksum, received_us, body,
    (SELECT described_version FROM collection WHERE collection.number = document.collection), changes";

/// The column of a field in the table.
struct Column {
    name: &'static str,
    packed: bool,
    integer: bool,
}

impl Column {
    fn of(field: DocumentField) -> Self {
        use DocumentField as F;
        let text = |name| Self { name, packed: false, integer: false };
        let integer = |name| Self { name, packed: false, integer: true };
        let packed = |name| Self { name, packed: true, integer: false };
        match field {
            F::Path => text("path"),
            F::Directory => text("directory"),
            F::Name => text("name"),
            F::Kind => text("kind"),
            F::Mode => text("mode"),
            F::Owner => text("owner"),
            F::Group => text("grp"),
            F::Size => integer("size"),
            F::Uid => integer("uid"),
            F::Gid => integer("gid"),
            F::Mtime => integer("mtime_us"),
            F::Inode => integer("inode"),
            F::Version => integer("version"),
            F::Changes => integer("changes"),
            F::PackageName => text("CAST(body AS TEXT) ->> '$.package.name'"),
            F::PackageVersion => text("CAST(body AS TEXT) ->> '$.package.version'"),
            F::PackageArchitecture => text("CAST(body AS TEXT) ->> '$.package.architecture'"),
            F::PackageVendor => text("CAST(body AS TEXT) ->> '$.package.vendor'"),
            F::Md5 => packed("md5"),
            F::Sha1 => packed("sha1"),
            F::Sha256 => packed("sha256"),
            F::Blake3 => packed("blake3"),
            F::Checksum => packed("checksum"),
        }
    }

    /// Returns an SQL expression of the column as text or number.
    fn readable_sql(&self) -> String {
        if self.packed { unpacked_sql(self.name) } else { self.name.to_owned() }
    }
}

/// SQL under construction, with its values.
#[derive(Default)]
pub(super) struct Where {
    pub(super) sql: String,
    pub(super) values: Vec<SqlValue>,
    pub(super) tests: usize,
}

impl Where {
    /// Selects the documents of a collection that is set later.
    pub(super) fn of_collection() -> Self {
        Self { sql: "collection = ?1".into(), values: vec![SqlValue::Null], tests: 0 }
    }

    pub(super) fn set_collection(&mut self, number: i64) {
        if let Some(first) = self.values.first_mut() {
            *first = SqlValue::Integer(number);
        }
    }

    /// Adds a condition.
    pub(super) fn and(&mut self, condition: &Condition) -> Result<(), StateError> {
        if *condition == Condition::default() {
            return Ok(());
        }
        self.sql.push_str(" AND ");
        self.condition(condition, 0)
    }

    fn bind(&mut self, value: SqlValue) {
        self.values.push(value);
        self.sql.push('?');
        self.sql.push_str(&self.values.len().to_string());
    }

    fn condition(&mut self, condition: &Condition, depth: usize) -> Result<(), StateError> {
        if depth > CONDITION_DEPTH_MAX {
            return Err(too_much("the condition is nested too deeply"));
        }
        match condition {
            Condition::All(parts) => self.parts(parts, " AND ", "1", depth),
            Condition::Any(parts) => self.parts(parts, " OR ", "0", depth),
            Condition::Not(part) => {
                self.sql.push_str("NOT ");
                self.condition(part, depth + 1)
            }
            Condition::Field(field, test, value) => self.test(*field, *test, value),
        }
    }

    fn parts(
        &mut self,
        parts: &[Condition],
        between: &str,
        none: &str,
        depth: usize,
    ) -> Result<(), StateError> {
        self.sql.push('(');
        if parts.is_empty() {
            self.sql.push_str(none);
        }
        for (place, part) in parts.iter().enumerate() {
            if place > 0 {
                self.sql.push_str(between);
            }
            self.condition(part, depth + 1)?;
        }
        self.sql.push(')');
        Ok(())
    }

    fn test(
        &mut self,
        field: DocumentField,
        test: Comparison,
        value: &QueryValue,
    ) -> Result<(), StateError> {
        self.tests += 1;
        if self.tests > CONDITION_TESTS_MAX {
            return Err(too_much("the condition has too many tests"));
        }
        let column = Column::of(field);
        let value = match (value, column.integer) {
            (QueryValue::Integer(number), true) => SqlValue::Integer(*number),
            (QueryValue::Text(text), false) if text.len() <= TEXT_BYTES_MAX => {
                SqlValue::Text(text.clone())
            }
            (QueryValue::Text(_), false) => {
                return Err(too_much("the text to compare with is too long"));
            }
            _ => return Err(too_much("a number is compared with text")),
        };
        match test {
            Comparison::Equal => self.compare(&column, " IS ", value),
            Comparison::NotEqual => {
                self.sql.push_str("coalesce(");
                self.compare(&column, " <> ", value);
                self.sql.push_str(", 0)");
            }
            Comparison::Less => self.ordered(&column, " < ", value),
            Comparison::Greater => self.ordered(&column, " > ", value),
            Comparison::Contains | Comparison::Prefix => {
                let SqlValue::Text(text) = value else {
                    return Err(too_much("only text has parts"));
                };
                match test {
                    // The LIKE pattern would end at the NUL.
                    Comparison::Contains if text.contains('\0') => {
                        return Err(too_much("no field holds a NUL"));
                    }
                    Comparison::Contains => self.contains(&column, &text),
                    _ => self.prefix(&column, &text),
                }
            }
        }
        Ok(())
    }

    /// Compares a column through its index if there is one: packed columns compare with packed
    /// values.
    fn compare(&mut self, column: &Column, operator: &str, value: SqlValue) {
        let value = match value {
            SqlValue::Text(text) if column.packed => match Packed::new(&text) {
                Packed::Bytes(bytes, len) => {
                    SqlValue::Blob(bytes.get(..len).unwrap_or_default().to_vec())
                }
                Packed::Text(_) => SqlValue::Text(text),
            },
            other => other,
        };
        self.sql.push_str(column.name);
        self.sql.push_str(operator);
        self.bind(value);
    }

    fn ordered(&mut self, column: &Column, operator: &str, value: SqlValue) {
        self.sql.push_str("coalesce(");
        self.sql.push_str(&column.readable_sql());
        self.sql.push_str(operator);
        self.bind(value);
        self.sql.push_str(", 0)");
    }

    fn contains(&mut self, column: &Column, text: &str) {
        let mut pattern = String::with_capacity(text.len() + 2);
        pattern.push('%');
        for c in text.chars() {
            if matches!(c, '%' | '_' | '\\') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern.push('%');
        self.sql.push_str("coalesce(");
        self.sql.push_str(&column.readable_sql());
        self.sql.push_str(" LIKE ");
        self.bind(SqlValue::Text(pattern));
        self.sql.push_str(" ESCAPE '\\', 0)");
    }

    /// Compares by a range, which the index on paths can serve. `path` is never null, other columns
    /// may be.
    fn prefix(&mut self, column: &Column, text: &str) {
        let indexed = column.name == "path";
        self.sql.push_str(if indexed { "(" } else { "coalesce(" });
        self.sql.push_str(&column.readable_sql());
        self.sql.push_str(" >= ");
        self.bind(SqlValue::Text(text.to_owned()));
        if let Some(end) = prefix_end(text) {
            self.sql.push_str(" AND ");
            self.sql.push_str(&column.readable_sql());
            self.sql.push_str(" < ");
            self.bind(SqlValue::Text(end));
        }
        self.sql.push_str(if indexed { ")" } else { ", 0)" });
    }
}

pub(super) fn too_much(why: &str) -> StateError {
    StateError::Query(why.to_owned())
}

/// Returns the smallest text above all that begin with `prefix`; `None` when there is none.
pub(super) fn prefix_end(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // The code points from D800 to DFFF are not characters; UTF-8 sorts by code point.
        let next =
            if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(last as u32 + 1) };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// Returns the number of the agent's collection and its number of documents.
pub(super) fn collection(
    db: &Connection,
    agent: AgentId,
    dataset: &Dataset,
) -> Result<Option<(i64, u64)>, StateError> {
    db.prepare_cached(
        "SELECT c.number, c.documents FROM collection c JOIN dataset d ON d.number = c.dataset
         WHERE c.agent = ?1 AND d.name = ?2",
    )
    .and_then(|mut s| {
        s.query_row(params![agent.0, dataset.name()], |r| {
            Ok((r.get(0)?, r.get::<_, i64>(1)? as u64))
        })
        .optional()
    })
    .context(WHAT)
}

pub(super) fn read_row(
    agent: AgentId,
    dataset: &Dataset,
    r: &Row<'_>,
) -> rusqlite::Result<StoredDocument> {
    Ok(StoredDocument {
        agent,
        dataset: dataset.clone(),
        id: r.get::<_, Unpacked>(0)?.0,
        version: r.get::<_, i64>(1)? as u64,
        checksum: r.get::<_, Unpacked>(2)?.0,
        received_at_us: r.get::<_, i64>(3)? as u64,
        body: r.get(4)?,
        described_version: r.get::<_, i64>(5)? as u64,
        changes: r.get::<_, i64>(6)? as u64,
    })
}

fn document(
    db: &Connection,
    agent: AgentId,
    dataset: &Dataset,
    id: &str,
) -> Result<Option<StoredDocument>, StateError> {
    let Some((number, _)) = collection(db, agent, dataset)? else { return Ok(None) };
    db.prepare_cached(&format!("SELECT {COLUMNS} FROM document WHERE collection = ?1 AND id = ?2"))
        .and_then(|mut s| {
            s.query_row(params![number, Packed::new(id)], |r| read_row(agent, dataset, r))
                .optional()
        })
        .context(WHAT)
}

fn documents(db: &Connection, q: &DocumentQuery) -> Result<DocumentPage, StateError> {
    if q.limit > PAGE_ITEMS_MAX {
        return Err(too_much("the page is too large"));
    }
    let Some((number, all)) = collection(db, q.agent, &q.dataset)? else {
        return Ok(DocumentPage::default());
    };
    let mut filter = Where::of_collection();
    filter.set_collection(number);
    filter.and(&q.condition)?;
    let total = if q.condition == Condition::default() {
        all
    } else {
        let sql = format!("SELECT count(*) FROM document WHERE {}", filter.sql);
        let mut count = db.prepare_cached(&sql).context(WHAT)?;
        let total: i64 =
            count.query_row(params_from_iter(&filter.values), |r| r.get(0)).context(WHAT)?;
        total as u64
    };
    let keys = page_keys(db, q, filter)?;
    let next = match keys.last() {
        Some((number, path)) if q.sort.is_empty() && keys.len() == q.limit => {
            Some(format!("{number}:{path}"))
        }
        _ => None,
    };
    let mut read = db
        .prepare_cached(&format!("SELECT {COLUMNS} FROM document WHERE number = ?1"))
        .context(WHAT)?;
    let items = keys
        .iter()
        .map(|(number, _)| read.query_row([number], |r| read_row(q.agent, &q.dataset, r)))
        .collect::<Result<_, _>>()
        .context(WHAT)?;
    Ok(DocumentPage { items, total, next })
}

/// Returns numbers and paths of a page, in order. Bodies are read afterwards, so that a sort never
/// carries them.
pub(super) fn page_keys(
    db: &Connection,
    q: &DocumentQuery,
    mut filter: Where,
) -> Result<Vec<(i64, String)>, StateError> {
    if let Some(after) = &q.after {
        let (number, path) = after.split_once(':').ok_or(StateError::Cursor)?;
        let number = number.parse().map_err(|_| StateError::Cursor)?;
        if !q.sort.is_empty() {
            return Err(too_much("a page after another one cannot have a sort of its own"));
        }
        filter.sql.push_str(" AND (path, number) > (");
        filter.bind(SqlValue::Text(path.to_owned()));
        filter.sql.push_str(", ");
        filter.bind(SqlValue::Integer(number));
        filter.sql.push(')');
    }
    let order = order_sql(&q.sort)?;
    let limit = filter.values.len() + 1;
    let sql = format!(
        "SELECT number, path FROM document WHERE {} ORDER BY {order}path, number
         LIMIT ?{limit} OFFSET ?{}",
        filter.sql,
        limit + 1
    );
    filter.values.push(SqlValue::Integer(q.limit as i64));
    filter.values.push(SqlValue::Integer(i64::try_from(q.offset).unwrap_or(i64::MAX)));
    let mut select = db.prepare_cached(&sql).context(WHAT)?;
    select
        .query_map(params_from_iter(&filter.values), |r| Ok((r.get(0)?, r.get(1)?)))
        .and_then(Iterator::collect)
        .context(WHAT)
}

/// Returns the fields of a sort, each followed by a comma.
pub(super) fn order_sql(sort: &[(DocumentField, SortDirection)]) -> Result<String, StateError> {
    if sort.len() > CONDITION_DEPTH_MAX {
        return Err(too_much("too many fields to sort by"));
    }
    let mut order = String::new();
    for (field, direction) in sort {
        order.push_str(&Column::of(*field).readable_sql());
        order.push_str(if *direction == SortDirection::Descending { " DESC, " } else { ", " });
    }
    Ok(order)
}

/// Returns the digest of an agent's dataset.
fn checksum(db: &Connection, agent: AgentId, dataset: &Dataset) -> Result<String, StateError> {
    let mut checksums: Vec<String> = Vec::new();
    if let Some((number, _)) = collection(db, agent, dataset)? {
        // In order of the row number; see [`super::ranges`].
        let mut select = db
            .prepare_cached(
                "SELECT checksum FROM document
                 WHERE number IN (SELECT number FROM document WHERE collection = ?1)",
            )
            .context(WHAT)?;
        let rows = select.query_map([number], |r| r.get::<_, Unpacked>(0)).context(WHAT)?;
        for row in rows {
            checksums.push(row.context(WHAT)?.0);
        }
    }
    checksums.sort_unstable();
    let mut digest = Sha1::new();
    for checksum in &checksums {
        digest.update(checksum.as_bytes());
    }
    Ok(hex::encode(digest.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_smallest_text_above_the_prefix() {
        assert_eq!(prefix_end("/etc/").as_deref(), Some("/etc0"));
        assert_eq!(prefix_end("").as_deref(), None);
        assert_eq!(prefix_end("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(prefix_end("\u{10ffff}"), None);
        assert_eq!(prefix_end("\u{d7ff}").as_deref(), Some("\u{e000}"));
    }
}
