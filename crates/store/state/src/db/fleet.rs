//! Documents of one dataset over many agents.
//!
//! The agents that have the dataset, and the number of documents of each, are stored counters:
//! without a condition a page costs its own documents and one row per agent. By agent and path,
//! each agent's part is the page that [`super::documents`] reads by its index. Another order reads
//! all documents of the agents and keeps no more of them than the page needs.

use model::AgentId;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, params_from_iter};

use super::StateStore;
use super::documents::{COLUMNS, Where, order_sql, page_keys, read_row, too_much};
use crate::error::{Context, StateError};
use crate::limits::PAGE_ITEMS_MAX;
use crate::query::{Condition, DocumentPage, DocumentQuery, FleetQuery};
use sqlite::Reader;

impl StateStore {
    /// Returns documents of one dataset over many agents, from one snapshot. Without a condition
    /// the totals are stored counters; with one, every document of those agents is examined.
    ///
    /// # Errors
    /// Returns an error if the query is beyond the limits, takes too long or the store cannot be
    /// read.
    pub fn fleet_documents(
        &self,
        reader: &Reader,
        query: &FleetQuery,
    ) -> Result<DocumentPage, StateError> {
        self.read(reader, "read documents of the fleet", |db| documents(db, query))
    }
}

const WHAT: &str = "read documents of the fleet";
/// The collections of a dataset by agent: one row for each agent that has any.
pub(super) const COLLECTIONS: &str = "SELECT c.agent, c.number, c.documents FROM collection c
     WHERE c.dataset = (SELECT number FROM dataset WHERE name = ?1) ORDER BY c.agent";

/// One agent's part of the dataset.
struct Part {
    agent: AgentId,
    number: i64,
    documents: u64,
}

pub(super) fn documents(db: &Connection, q: &FleetQuery) -> Result<DocumentPage, StateError> {
    if q.limit > PAGE_ITEMS_MAX {
        return Err(too_much("the page is too large"));
    }
    let mut parts = parts(db, q)?;
    if q.condition != Condition::default() {
        count(db, q, &mut parts)?;
    }
    let total = parts.iter().map(|part| part.documents).sum();
    let keys = if q.sort.is_empty() { by_agent(db, q, &parts)? } else { sorted(db, q, &parts)? };
    let mut read = db
        .prepare_cached(&format!("SELECT {COLUMNS} FROM document WHERE number = ?1"))
        .context(WHAT)?;
    let items = keys
        .iter()
        .map(|(agent, number)| read.query_row([number], |r| read_row(*agent, &q.dataset, r)))
        .collect::<Result<_, _>>()
        .context(WHAT)?;
    Ok(DocumentPage { items, total, next: None })
}

/// Returns the parts of the requested agents, by agent.
fn parts(db: &Connection, q: &FleetQuery) -> Result<Vec<Part>, StateError> {
    let mut select = db.prepare_cached(COLLECTIONS).context(WHAT)?;
    let rows = select
        .query_map([q.dataset.name()], |r| {
            Ok(Part {
                agent: AgentId(r.get(0)?),
                number: r.get(1)?,
                documents: r.get::<_, i64>(2)? as u64,
            })
        })
        .context(WHAT)?;
    let mut parts = Vec::new();
    for part in rows {
        let part = part.context(WHAT)?;
        if q.agents.holds(part.agent) {
            parts.push(part);
        }
    }
    Ok(parts)
}

/// Counts the matching documents of each part.
fn count(db: &Connection, q: &FleetQuery, parts: &mut Vec<Part>) -> Result<(), StateError> {
    let mut filter = Where::of_collection();
    filter.and(&q.condition)?;
    let sql = format!("SELECT count(*) FROM document WHERE {}", filter.sql);
    let mut select = db.prepare_cached(&sql).context(WHAT)?;
    for part in parts.iter_mut() {
        filter.set_collection(part.number);
        let matching: i64 =
            select.query_row(params_from_iter(&filter.values), |r| r.get(0)).context(WHAT)?;
        part.documents = matching as u64;
    }
    parts.retain(|part| part.documents > 0);
    Ok(())
}

/// Returns agent and number of the page's documents, by agent and path.
fn by_agent(
    db: &Connection,
    q: &FleetQuery,
    parts: &[Part],
) -> Result<Vec<(AgentId, i64)>, StateError> {
    let mut offset = q.offset;
    let mut keys = Vec::new();
    for part in parts {
        if keys.len() == q.limit {
            break;
        }
        if offset >= part.documents {
            offset -= part.documents;
            continue;
        }
        let own = DocumentQuery {
            condition: q.condition.clone(),
            offset: std::mem::take(&mut offset),
            limit: q.limit - keys.len(),
            ..DocumentQuery::new(part.agent, q.dataset.clone())
        };
        let mut filter = Where::of_collection();
        filter.set_collection(part.number);
        filter.and(&own.condition)?;
        let page = page_keys(db, &own, filter)?;
        keys.extend(page.into_iter().map(|(number, _)| (part.agent, number)));
    }
    Ok(keys)
}

/// Returns agent and number of the page's documents in the requested order.
fn sorted(
    db: &Connection,
    q: &FleetQuery,
    parts: &[Part],
) -> Result<Vec<(AgentId, i64)>, StateError> {
    let (sql, mut values) = sorted_sql(q)?;
    let numbers: Vec<String> = parts.iter().map(|part| part.number.to_string()).collect();
    if let Some(first) = values.first_mut() {
        *first = SqlValue::Text(format!("[{}]", numbers.join(",")));
    }
    let mut select = db.prepare_cached(&sql).context(WHAT)?;
    select
        .query_map(params_from_iter(&values), |r| Ok((AgentId(r.get(0)?), r.get(1)?)))
        .and_then(Iterator::collect)
        .context(WHAT)
}

/// Returns the statement of a sorted page and its values; the first value is the list of
/// collections.
fn sorted_sql(q: &FleetQuery) -> Result<(String, Vec<SqlValue>), StateError> {
    const AGENT: &str = "(SELECT agent FROM collection WHERE number = document.collection)";
    let mut filter = Where {
        sql: "collection IN (SELECT value FROM json_each(?1))".into(),
        values: vec![SqlValue::Null],
        ..Where::default()
    };
    filter.and(&q.condition)?;
    let order = order_sql(&q.sort)?;
    let limit = filter.values.len() + 1;
    let sql = format!(
        "SELECT {AGENT}, number FROM document WHERE {} ORDER BY {order}1, path, number
         LIMIT ?{limit} OFFSET ?{}",
        filter.sql,
        limit + 1
    );
    filter.values.push(SqlValue::Integer(q.limit as i64));
    filter.values.push(SqlValue::Integer(i64::try_from(q.offset).unwrap_or(i64::MAX)));
    Ok((sql, filter.values))
}

#[cfg(test)]
mod tests {
    use model::Dataset;

    use super::*;
    use crate::db::StateStore;
    use crate::query::{Comparison, DocumentField, SortDirection};
    use crate::{Reader, StateOptions};
    use model::Permitted;

    #[test]
    fn fleet_search_reads_documents_through_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let store =
            StateStore::open(&dir.path().join("state.db"), StateOptions::default()).unwrap();
        let q = FleetQuery {
            agents: Permitted::All,
            dataset: Dataset::fim_files(),
            condition: Condition::field(DocumentField::Path, Comparison::Contains, "a"),
            sort: vec![(DocumentField::Size, SortDirection::Descending)],
            offset: 0,
            limit: 5,
        };
        assert_eq!(store.fleet_documents(&Reader::server(), &q).unwrap(), DocumentPage::default());
        let plan = |sql: &str| -> String {
            let db = store.writer.lock();
            let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let none = vec![SqlValue::Null; explain.parameter_count()];
            let rows = explain.query_map(params_from_iter(none), |r| r.get::<_, String>(3));
            rows.unwrap().map(Result::unwrap).collect::<Vec<_>>().join("; ")
        };
        let sorted = plan(&sorted_sql(&q).unwrap().0);
        assert!(sorted.contains("SEARCH document USING INDEX document_"), "{sorted}");
        assert!(!sorted.contains("SCAN document"), "{sorted}");
        let mut filter = Where::of_collection();
        filter.and(&q.condition).unwrap();
        let counted = plan(&format!("SELECT count(*) FROM document WHERE {}", filter.sql));
        assert!(counted.contains("SEARCH document USING"), "{counted}");
        assert!(!plan(COLLECTIONS).contains("TEMP B-TREE"), "{}", plan(COLLECTIONS));
    }
}
