//! The files of one agent.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest as _};
use model::{AgentId, Dataset};
use registry::Reader;
use serde_json::Map;
use state::{
    Comparison, Condition, DocumentField, DocumentQuery, SortDirection, StateStore, StoredDocument,
};

use super::common::only_failed;
use super::document_condition::condition;
use super::file_item::file_item;
use rest::access::quota::Share;
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, ItemWriter, List, Stream, to_value};
use rest::http::operation::{
    AGENT_ID, COMMON, Handler, Kind, Operation, PAGE_ITEMS_MAX, PAGING, Parameter, Q, SEARCH,
    Shape, Verb, action, query,
};
use rest::http::q;
use rest::http::{listing, shape, stream};

const TYPES: &[&str] = &[
    "file",
    "dir",
    "symlink",
    "fifo",
    "socket",
    "block_device",
    "char_device",
    "registry_key",
    "registry_value",
];

const FILTERS: &[Parameter] = &[
    query(
        "sort",
        Kind::Sort,
        "Fields to sort by, comma-separated, each with an optional + or - before it.",
    ),
    SEARCH,
    query("select", Kind::Names, "Fields to return, comma-separated."),
    query("file", Kind::Text, "The whole path."),
    query("path", Kind::Text, "Beginning of the path; an extension of this server."),
    query("arch", Kind::Words(&["[x32]", "[x64]"]), "Of registry keys; there are none."),
    query("value.name", Kind::Alphanumeric, "Of registry values; there are none."),
    query("value.type", Kind::Alphanumeric, "Of registry values; there are none."),
    query("type", Kind::Word(TYPES), "Kind of entry."),
    query("summary", Kind::Flag, "Only file, mtime and date."),
    query("md5", Kind::Digest, "MD5 of the content."),
    query("sha1", Kind::Digest, "SHA-1 of the content."),
    query("sha256", Kind::Digest, "SHA-256 of the content."),
    query("hash", Kind::Digest, "Any digest of the content."),
    query("distinct", Kind::Flag, "Each different item once."),
    Q,
];

pub(crate) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/syscheck/{agent_id}",
    id: "syscheck.files",
    about: "Current files of an agent, by path unless sorted.",
    access: action("syscheck:read", "agent:id"),
    parameters: &[COMMON, &[AGENT_ID], PAGING, FILTERS],
    body: None,
    shape: Shape::List("FileItem"),
    handler: Handler::Blocking(files),
}];

/// Fields that `sort` may name.
const COLUMNS: &[(&str, DocumentField)] = &[
    ("file", DocumentField::Path),
    ("type", DocumentField::Kind),
    ("size", DocumentField::Size),
    ("perm", DocumentField::Mode),
    ("mode", DocumentField::Mode),
    ("uid", DocumentField::Uid),
    ("gid", DocumentField::Gid),
    ("uname", DocumentField::Owner),
    ("gname", DocumentField::Group),
    ("inode", DocumentField::Inode),
    ("mtime", DocumentField::Mtime),
    // A document's version is the time at which the agent saw the file in this state.
    ("date", DocumentField::Version),
    ("changes", DocumentField::Changes),
    ("md5", DocumentField::Md5),
    ("sha1", DocumentField::Sha1),
    ("sha256", DocumentField::Sha256),
    ("blake3", DocumentField::Blake3),
];

/// Fields that `select` may name.
const FIELDS: &[&str] = &[
    "file",
    "type",
    "size",
    "perm",
    "uid",
    "gid",
    "uname",
    "gname",
    "inode",
    "mtime",
    "date",
    "changes",
    "md5",
    "sha1",
    "sha256",
    "blake3",
    "mode",
    "device",
    "ctime",
    "links",
    "target_path",
    "path_hex",
    "xattrs",
    "flags",
    "error",
];

/// Fields that `search` looks into.
const SEARCHED: &[DocumentField] = &[
    DocumentField::Path,
    DocumentField::Kind,
    DocumentField::Mode,
    DocumentField::Owner,
    DocumentField::Group,
    DocumentField::Md5,
    DocumentField::Sha1,
    DocumentField::Sha256,
    DocumentField::Blake3,
];

const DIGESTS: &[(&str, DocumentField)] = &[
    ("md5", DocumentField::Md5),
    ("sha1", DocumentField::Sha1),
    ("sha256", DocumentField::Sha256),
];

fn files(call: &Call) -> Result<Answer, Failure> {
    let parameters = &call.parameters;
    let agent = parameters.agent()?;
    if call.api.registry.agent(agent).is_none() {
        return Ok(only_failed(Code::AgentMissing, agent, MESSAGES));
    }
    let summary = ["file", "mtime", "date"].map(str::to_owned);
    let selected =
        if parameters.flag("summary") { &summary[..] } else { parameters.list("select") };
    shape::check_select(selected, FIELDS)?;
    let (offset, limit) = (parameters.database_offset()?, parameters.whole("limit"));
    let distinct = parameters.flag("distinct");
    let mut query = file_query(call, agent)?;
    (query.offset, query.limit) = (offset, limit as usize);
    if distinct {
        return distinct_files(call, &query, selected, (offset, limit));
    }
    // A page in key order can be streamed; any other order is sorted as a whole anyway.
    let large = limit > STREAMED_FROM && query.sort.is_empty();
    query.limit = if large { PIECE_ITEMS } else { limit as usize };
    let page = call.state().documents(call.reader(), &query)?;
    let first = written(&page.items, selected)?;
    let Some(next) = page.next.filter(|_| large) else {
        return Ok(Answer::List(List::written(first, page.total, MESSAGES)));
    };
    let frame = List::new(Vec::new(), page.total, MESSAGES);
    let rest = limit as usize - page.items.len();
    let pieces = RemainingFiles {
        state: Arc::clone(&call.api.state),
        reader: call.reader().clone(),
        query: DocumentQuery { offset: 0, after: Some(next), ..query },
        rest,
        selected: selected.to_vec(),
    };
    let full = || Failure::busy("too many large lists are being sent", 5);
    let share = call.api.lists.reserve(call.caller.owner(), 1).ok_or_else(full)?;
    Ok(Answer::Stream(pieces.stream(&frame, first, share)))
}

/// Number of files above which a list is streamed.
const STREAMED_FROM: u64 = 2_000;
/// Number of files read at once to find the distinct ones.
const DISTINCT_PIECE_ITEMS: usize = 10_000;
/// Number of files read at once for a streamed list.
const PIECE_ITEMS: usize = 1_000;

const MESSAGES: [&str; 3] = [
    "FIM findings of the agent were returned",
    "Some FIM findings were not returned",
    "No FIM information was returned",
];

/// The remaining files of a streamed list.
struct RemainingFiles {
    state: Arc<StateStore>,
    reader: Reader,
    query: DocumentQuery,
    rest: usize,
    selected: Vec<String>,
}

impl RemainingFiles {
    fn stream(mut self, frame: &List, first: ItemWriter, share: Share) -> Stream {
        stream::list(frame, first.into_bytes(), move || self.next(), share)
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        if self.rest == 0 || self.query.after.is_none() {
            return Ok(None);
        }
        self.query.limit = self.rest.min(PIECE_ITEMS);
        let page = self.state.documents(&self.reader, &self.query)?;
        self.rest -= page.items.len().min(self.rest);
        self.query.after = page.next;
        Ok(Some(written(&page.items, &self.selected)?.into_bytes()))
    }
}

fn written(documents: &[StoredDocument], selected: &[String]) -> Result<ItemWriter, Failure> {
    let mut items = ItemWriter::default();
    for document in documents {
        let item = file_item(document);
        if selected.is_empty() {
            items.push(&item)?;
        } else {
            items.push(&shape::select(to_value(&item)?, selected, &[]))?;
        }
    }
    Ok(items)
}

/// Returns the distinct items over all files. The files are read in pieces in key order; for items
/// outside the page only a digest is kept. For sorting, all distinct items are kept, up to a limit.
fn distinct_files(
    call: &Call,
    query: &DocumentQuery,
    selected: &[String],
    (offset, limit): (u64, u64),
) -> Result<Answer, Failure> {
    let names: Vec<(&'static str, &'static str)> =
        COLUMNS.iter().map(|(name, _)| (*name, *name)).collect();
    let sort = shape::sort_fields(call.parameters.text("sort"), &names)?;
    let by: Vec<String> = sort.iter().map(|field| field.column.to_owned()).collect();
    let mut query =
        DocumentQuery { offset: 0, limit: DISTINCT_PIECE_ITEMS, sort: Vec::new(), ..query.clone() };
    let (mut items, mut seen) = (Vec::new(), HashSet::new());
    loop {
        call.in_time()?;
        let page = call.state().documents(call.reader(), &query)?;
        let last = page.items.len() < query.limit;
        for document in &page.items {
            let file = to_value(&file_item(document))?;
            // Among equal items, the first one determines the sort position.
            let key = (!by.is_empty()).then(|| shape::select(file.clone(), &by, &[]));
            let item = shape::select(file, selected, &[]);
            let digest = Blake2b::<U16>::digest(item.to_string().as_bytes());
            let empty = item.as_object().is_some_and(Map::is_empty);
            if empty || !seen.insert(digest) {
                continue;
            }
            let share = seen.len() as u64 - 1;
            if !sort.is_empty() || (offset..offset.saturating_add(limit)).contains(&share) {
                items.push((key, item));
            }
            if items.len() > PAGE_ITEMS_MAX as usize {
                let detail = "too many different items to sort: leave sort out, or ask for less";
                return Err(Failure::detailed(Code::SortFieldInvalid, detail));
            }
        }
        match page.next {
            _ if last => break,
            Some(next) => query.after = Some(next),
            None => query.offset += query.limit as u64,
        }
    }
    items.sort_by(|(a, _), (b, _)| match (a, b) {
        (Some(a), Some(b)) => listing::order(a, b, &sort),
        _ => Ordering::Equal,
    });
    let mut items: Vec<_> = items.into_iter().map(|(_, item)| item).collect();
    if !sort.is_empty() {
        items = shape::page(items, offset, limit);
    }
    Ok(Answer::List(List::new(items, seen.len() as u64, MESSAGES)))
}

/// Converts the filters and the order of a file list to a query; the caller sets the page. A filter
/// on values of the Windows registry matches no file.
fn file_query(call: &Call, agent: AgentId) -> Result<DocumentQuery, Failure> {
    let parameters = &call.parameters;
    let mut all = Vec::new();
    if let Some(file) = parameters.text("file") {
        all.push(Condition::field(DocumentField::Path, Comparison::Equal, file));
    }
    if let Some(path) = parameters.text("path") {
        all.push(Condition::field(DocumentField::Path, Comparison::Prefix, path));
    }
    if let Some(kind) = parameters.text("type") {
        all.push(Condition::field(DocumentField::Kind, Comparison::Equal, kind));
    }
    let registry = ["value.name", "value.type"].iter().any(|name| parameters.text(name).is_some());
    if registry || !parameters.list("arch").is_empty() {
        all.push(Condition::Any(Vec::new()));
    }
    for (name, field) in DIGESTS {
        if let Some(digest) = parameters.text(name) {
            all.push(Condition::field(*field, Comparison::Equal, digest));
        }
    }
    if let Some(digest) = parameters.text("hash") {
        let any = DIGESTS.iter().map(|(_, field)| *field).chain([DocumentField::Blake3]);
        all.push(Condition::Any(
            any.map(|field| Condition::field(field, Comparison::Equal, digest)).collect(),
        ));
    }
    if let Some(text) = parameters.text("search") {
        all.push(search(text));
    }
    if let Some(text) = parameters.text("q") {
        all.push(condition(q::parse(text, COLUMNS)?, call.api.options.clock.now_us())?);
    }
    let sort = shape::sort_fields(parameters.text("sort"), COLUMNS)?;
    let mut query = DocumentQuery::new(agent, Dataset::fim_files());
    query.condition = Condition::All(all);
    query.sort = sort
        .into_iter()
        .map(|field| {
            let down = field.descending;
            (field.column, if down { SortDirection::Descending } else { SortDirection::Ascending })
        })
        .collect();
    Ok(query)
}

fn search(text: &str) -> Condition {
    let any = |text: &str| {
        let fields =
            SEARCHED.iter().map(|field| Condition::field(*field, Comparison::Contains, text));
        Condition::Any(fields.collect())
    };
    match text.strip_prefix('-') {
        Some(text) => Condition::Not(Box::new(any(text))),
        None => any(text),
    }
}
