//! Operations. Each resource file lists its operations as data; the router, the validation of
//! parameters, access control, the OpenAPI document and the test that each operation has an access rule
//! are all derived from that list.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::http::Method;

use crate::error::Failure;
use crate::http::call::Call;
use crate::http::envelope::Answer;

/// An HTTP method that operations use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

impl Verb {
    /// Returns the verb that answers an HTTP method; HEAD is answered as GET without a body.
    pub fn of(method: &Method) -> Option<Self> {
        match *method {
            Method::GET | Method::HEAD => Some(Self::Get),
            Method::POST => Some(Self::Post),
            Method::PUT => Some(Self::Put),
            Method::DELETE => Some(Self::Delete),
            _ => None,
        }
    }

    /// Returns the name in the request line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// The callers that may use an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Open,
    /// Any caller with a name and a password, sent with HTTP Basic.
    Login,
    /// Callers on loopback without a token; others need the token of any user.
    Loopback,
    /// Any logged-in user, for their own data.
    User,
    /// A logged-in user with this action on resources of this type.
    Action {
        /// The action, such as `agent:read`.
        action: &'static str,
        /// The type, such as `agent:id`, or `*:*` if there is none.
        resource: &'static str,
    },
}

/// Returns the access rule for an action on a type of resource.
pub const fn action(action: &'static str, resource: &'static str) -> Access {
    Access::Action { action, resource }
}

/// The part of a request that holds a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterLocation {
    Query,
    Path,
}

/// The format of a parameter's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// The number of items before a page, 0 by default, without an upper bound.
    Offset,
    /// A whole number within bounds.
    Whole { min: u64, max: u64, default: u64 },
    /// `true` or `false`; absent is `false`.
    Flag,
    /// Any text, limited to [`crate::limits::PARAMETER_BYTES_MAX`].
    Text,
    /// Letters, digits, spaces and the punctuation of versions, addresses and system names.
    Alphanumeric,
    /// One name: letters, digits, `_`, `-`, `.` and `%`.
    Name,
    /// The name of a new agent: as [`Kind::Name`], at most 128 characters.
    AgentName,
    /// The name of a group: ASCII letters, digits, `_`, `-` and `.`; 1 to 128 characters.
    GroupName,
    /// Text to search for, without the operators of other query languages.
    Search,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Some of these words, separated by commas, in any case.
    Words(&'static [&'static str]),
    /// Decimal numbers, separated by commas.
    Numbers,
    /// Decimal numbers, separated by commas, or the word `all`.
    NumbersOrAll,
    /// One decimal number.
    Id,
    /// A whole number without a default.
    Position,
    /// One decimal number of at least three digits.
    Number,
    /// Names, separated by commas.
    Names,
    /// Names of groups, separated by commas.
    GroupNames,
    /// `7d`, `10h`, `5m`, `30s` or a number of seconds, with the operation's default.
    Timeframe(Option<&'static str>),
    /// Field names, separated by commas, each with an optional sign for the direction.
    Sort,
    /// A digest in hex.
    Digest,
    /// An instant in RFC 3339.
    Instant,
}

/// One parameter of an operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    pub name: &'static str,
    pub place: ParameterLocation,
    pub required: bool,
    pub kind: Kind,
    pub about: &'static str,
}

/// Returns an optional query parameter.
pub const fn query(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, place: ParameterLocation::Query, required: false, kind, about }
}

/// Returns a required query parameter.
pub const fn required(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, place: ParameterLocation::Query, required: true, kind, about }
}

pub const fn path(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, place: ParameterLocation::Path, required: true, kind, about }
}

/// The shape of an operation's answer, for the description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The list envelope with items of this schema.
    List(&'static str),
    /// The plain envelope with data of this schema.
    Plain(&'static str),
    /// The plain envelope with a message.
    Message,
    /// Content of this type, without an envelope.
    Raw(&'static str),
}

/// The boxed future of an operation.
pub type OperationFuture = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

/// The code behind an operation.
#[derive(Clone, Copy)]
pub enum Handler {
    /// Reads or writes a store; runs on a blocking thread, a bounded number at once.
    Blocking(fn(&Call) -> Result<Answer, Failure>),
    /// Waits for other work; must not block.
    Waiting(fn(Arc<Call>) -> OperationFuture),
}

/// The prefix of `about` that marks an operation as provided for older clients only.
const DEPRECATED: &str = "Deprecated:";

pub struct Operation {
    pub verb: Verb,
    /// The path, with `{name}` for parameters.
    pub path: &'static str,
    /// The OpenAPI `operationId`; unique.
    pub id: &'static str,
    pub about: &'static str,
    pub access: Access,
    /// Groups of parameters; the operation takes those of all groups.
    pub parameters: &'static [&'static [Parameter]],
    /// Schema of the JSON body, or the content types of a body that is not JSON (recognized by their
    /// slash, separated by `, `), if any.
    pub body: Option<&'static str>,
    pub shape: Shape,
    pub handler: Handler,
}

/// Operations without a row in the audit log: renewing a token, and writing metrics, which are not
/// audited on the other listeners either.
pub const UNSEEN: &[&str] = &["security.renew", "series.write"];

/// Beginnings of the paths of the operations that the 4.x API does not have.
const OWN: &[&str] =
    &["/agents/reload", "/changes", "/commands", "/coverage", "/events/", "/states/", "/v1/"];

/// Types of resources of which operations select those that the caller may access.
const LISTED_BY_ROLE: &[&str] =
    &["agent:id", "group:id", "user:id", "role:id", "policy:id", "rule:id"];

/// Types of resources that some operations select in the same way, and the parameter of those
/// operations.
const LISTED_BY_PARAMETER: &[(&str, &str)] =
    &[("node:id", "nodes_list"), ("rule:file", "filename")];

impl Operation {
    pub fn parameters(&self) -> impl Iterator<Item = &'static Parameter> + use<> {
        self.parameters.iter().flat_map(|group| group.iter())
    }

    /// Returns true if the operation is provided for older clients only.
    pub fn is_deprecated(&self) -> bool {
        self.about.starts_with(DEPRECATED)
    }

    /// Returns true if the operation works on the permitted ones of the resources that it selects,
    /// even if there are none. The 4.x API answers so. Our own operations refuse callers who may
    /// access none, because an empty list of changes would read as "nothing has changed".
    pub fn narrows(&self) -> bool {
        let own = OWN.iter().any(|path| self.path.starts_with(path));
        let Access::Action { resource, .. } = self.access else { return false };
        let lists = |parameter: &Parameter| {
            parameter.place == ParameterLocation::Query
                && LISTED_BY_PARAMETER.contains(&(resource, parameter.name))
        };
        !own && (LISTED_BY_ROLE.contains(&resource) || self.parameters().any(lists))
    }

    /// Returns true if the operation changes something that others see.
    pub fn writes(&self) -> bool {
        match self.access {
            // Queries that are too long for a path are sent with POST.
            Access::Action { action, .. } if action.ends_with(":read") => false,
            _ if UNSEEN.contains(&self.id) => false,
            Access::Action { .. } | Access::User => self.verb != Verb::Get,
            Access::Open | Access::Login | Access::Loopback => false,
        }
    }
}

/// `pretty` and `wait_for_complete`, parameters of nearly every operation.
pub const COMMON: &[Parameter] = &[
    query("pretty", Kind::Flag, "Indent the answer for people."),
    query("wait_for_complete", Kind::Flag, "Wait for the answer without the request's deadline."),
];

/// `pretty` alone, for operations that do not wait.
pub const COMMON_PRETTY: &[Parameter] =
    &[query("pretty", Kind::Flag, "Indent the answer for people.")];

/// Default page of a list, items.
pub const PAGE_ITEMS_DEFAULT: u64 = 500;
/// Largest page of a list, items.
pub const PAGE_ITEMS_MAX: u64 = 100_000;

/// `offset` and `limit` of a list.
pub const PAGING: &[Parameter] = &[
    query("offset", Kind::Offset, "First item to return, from 0."),
    query(
        "limit",
        Kind::Whole { min: 1, max: PAGE_ITEMS_MAX, default: PAGE_ITEMS_DEFAULT },
        "Most items to return.",
    ),
];

/// `agents_list`.
pub const AGENTS_LIST: Parameter =
    query("agents_list", Kind::Numbers, "Agent numbers, comma-separated; default all.");

/// `{agent_id}` in a path.
pub const AGENT_ID: Parameter =
    path("agent_id", Kind::Number, "Agent number, at least three digits.");

/// `q`, a condition over the fields of an item.
pub const Q: Parameter = query(
    "q",
    Kind::Text,
    "Conditions such as status=active;(name~web,name~db): ; is and, , is or.",
);

/// `search`.
pub const SEARCH: Parameter = query(
    "search",
    Kind::Search,
    "Text that any field contains; with a leading -, text that no field contains.",
);

/// `select`, `sort`, `search`, `q` and `distinct`, parameters of every list.
pub const LISTED: &[Parameter] = &[
    query("select", Kind::Names, "Fields to return, comma-separated."),
    query(
        "sort",
        Kind::Sort,
        "Fields to sort by, comma-separated, each with an optional + or - before it.",
    ),
    SEARCH,
    Q,
    query("distinct", Kind::Flag, "Each different item once."),
];

/// Returns true if the description of a body is a content type other than JSON.
pub fn is_content_type(body: &str) -> bool {
    body.contains('/')
}
