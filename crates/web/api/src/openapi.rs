//! The OpenAPI document, generated from the list of operations. `openapi/openapi.json` is its golden
//! copy; `HOLDFAST_BLESS=1 cargo test -p holdfast-api` rewrites it.

use serde_json::json;
use utoipa::openapi::path::{
    HttpMethod, Operation as ApiOperation, OperationBuilder, Parameter as ApiParameter,
    ParameterBuilder, ParameterIn, Paths,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{
    ArrayBuilder, KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type,
};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, Content, Deprecated, InfoBuilder, OpenApiBuilder, Ref, RefOr, Required,
    Response, ResponseBuilder,
};

use crate::routes;
use rest::http::envelope::{JSON, PROBLEM};
use rest::http::operation::{
    Access, Kind, Operation, Parameter, ParameterLocation, Shape, Verb, is_content_type,
};
use rest::http::parameters::NAME_CHARS_MAX;

/// Returns the document as indented JSON with a final newline.
pub fn json() -> String {
    let mut paths = Paths::new();
    for operation in routes::all() {
        paths.add_path_operation(operation.path, vec![method(operation.verb)], describe(operation));
    }
    // Paths keep the order of the list of operations, that is, of the resource files.
    let document = OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Holdfast")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some("Changes on all machines, their agents, and the server."))
                .build(),
        )
        .paths(paths)
        .components(Some(components()))
        .build();
    // The builder's types hold only texts and numbers, so serialization cannot fail.
    let mut text = document.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

fn components() -> utoipa::openapi::Components {
    let mut builder = ComponentsBuilder::new()
        .security_scheme("bearer", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)))
        .security_scheme("basic", SecurityScheme::Http(Http::new(HttpAuthScheme::Basic)));
    for (name, schema) in routes::schemas() {
        builder = builder.schema(name, schema);
    }
    builder.build()
}

fn method(verb: Verb) -> HttpMethod {
    match verb {
        Verb::Get => HttpMethod::Get,
        Verb::Post => HttpMethod::Post,
        Verb::Put => HttpMethod::Put,
        Verb::Delete => HttpMethod::Delete,
    }
}

fn describe(operation: &Operation) -> ApiOperation {
    let mut builder = OperationBuilder::new()
        .tag(tag(operation.path))
        .summary(Some(operation.about))
        .operation_id(Some(operation.id))
        .deprecated(operation.is_deprecated().then_some(Deprecated::True))
        .response("200", success(operation.shape));
    for parameter in operation.parameters() {
        builder = builder.parameter(describe_parameter(parameter));
    }
    if let Some(schema) = operation.body {
        let mut body = RequestBodyBuilder::new().required(Some(Required::True));
        if is_content_type(schema) {
            for content_type in schema.split(", ") {
                body = body.content(content_type, Content::new(Some(text())));
            }
        } else {
            body = body.content(JSON, Content::new(Some(Ref::from_schema_name(schema))));
        }
        builder = builder.request_body(Some(body.build()));
    }
    for (status, about) in failures(operation) {
        builder = builder.response(status, problem(about));
    }
    let scheme = match operation.access {
        Access::Open => None,
        Access::Login => Some("basic"),
        Access::Loopback | Access::User | Access::Action { .. } => Some("bearer"),
    };
    if let Some(scheme) = scheme {
        builder = builder.security(SecurityRequirement::new::<_, _, String>(scheme, []));
    }
    builder.build()
}

fn tag(path: &str) -> &str {
    match path.split('/').nth(1) {
        None | Some("") => "server",
        Some(first) => first,
    }
}

/// Statuses that the 4.x API documents and this server never sends: operation, status, reason.
const OF_OLD: &[(&str, &str, &str)] = &[
    ("manager.configure", "415", "Not supported: another content type is answered with 406."),
    ("security.user_run_as", "406", "Not supported: the operation takes no body."),
    ("security.users_delete", "406", "Not supported: the operation takes no body."),
];

fn failures(operation: &Operation) -> Vec<(&'static str, &'static str)> {
    // All operations reject parameters that are not described.
    let mut list = vec![("400", "The request does not fit the description.")];
    if operation.access != Access::Open {
        list.push(("401", "No valid token, or wrong credentials."));
        list.push(("403", "The role does not allow it, or the address is blocked."));
    }
    if names_one(operation) {
        list.push(("404", "The object does not exist."));
    }
    list.push(("405", "The path has other methods."));
    if operation.body.is_some() {
        list.push(("406", "The body has another content type."));
        list.push(("413", "The body is too large."));
    }
    list.push(("429", "Too many requests."));
    list.extend(
        OF_OLD
            .iter()
            .filter(|(id, ..)| *id == operation.id)
            .map(|(_, code, about)| (*code, *about)),
    );
    list
}

/// Returns true if the operation fails when the object it names does not exist. The other operations
/// report missing objects in the answer's list of failures.
fn names_one(operation: &Operation) -> bool {
    let ours = [
        "/changes/{",
        "/commands/{",
        "/events/stream",
        "/states/{",
        "/v1/agents/{",
        "/v1/agents/ids/groups/{",
    ];
    operation.parameters().any(|parameter| parameter.name == "group_id")
        || ours.iter().any(|path| operation.path.starts_with(path))
}

fn problem(about: &str) -> Response {
    ResponseBuilder::new()
        .description(about)
        .content(PROBLEM, Content::new(Some(Ref::from_schema_name("Problem"))))
        .build()
}

fn success(shape: Shape) -> Response {
    let builder = ResponseBuilder::new();
    match shape {
        Shape::Raw(content_type) => builder
            .description("The content.")
            .content(content_type, Content::new(Some(text())))
            .build(),
        Shape::Message => builder
            .description("Done.")
            .content(JSON, Content::new(Some(Ref::from_schema_name("MessageAnswer"))))
            .build(),
        Shape::Plain(schema) => builder
            .description("The data.")
            .content(JSON, Content::new(Some(enveloped(reference(schema)))))
            .build(),
        Shape::List(schema) => builder
            .description("A page of items.")
            .content(JSON, Content::new(Some(listed(reference(schema)))))
            .build(),
    }
}

fn reference(schema: &str) -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name(schema))
}

fn text() -> Schema {
    ObjectBuilder::new().schema_type(Type::String).build().into()
}

fn whole() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer)
}

fn enveloped(data: impl Into<RefOr<Schema>>) -> Schema {
    ObjectBuilder::new()
        .property("data", data)
        .required("data")
        .property("error", whole())
        .required("error")
        .build()
        .into()
}

fn listed(item: RefOr<Schema>) -> Schema {
    let data = ObjectBuilder::new()
        .property("affected_items", ArrayBuilder::new().items(item))
        .required("affected_items")
        .property("total_affected_items", whole())
        .required("total_affected_items")
        .property("total_failed_items", whole())
        .required("total_failed_items")
        .property("failed_items", ArrayBuilder::new().items(reference("FailedItem")))
        .required("failed_items")
        .property(
            "next_cursor",
            ObjectBuilder::new().schema_type(Type::String).description(Some(
                "Where the next page begins; only in lists that page by cursor.",
            )),
        );
    ObjectBuilder::new()
        .property("data", data)
        .required("data")
        .property("message", text())
        .required("message")
        .property("error", whole())
        .required("error")
        .build()
        .into()
}

fn describe_parameter(parameter: &Parameter) -> ApiParameter {
    let place = match parameter.place {
        ParameterLocation::Query => ParameterIn::Query,
        ParameterLocation::Path => ParameterIn::Path,
    };
    let list = matches!(
        parameter.kind,
        Kind::Words(_) | Kind::Numbers | Kind::NumbersOrAll | Kind::Names | Kind::GroupNames
    );
    ParameterBuilder::new()
        .name(parameter.name)
        .parameter_in(place)
        .required(if parameter.required { Required::True } else { Required::False })
        .description(Some(parameter.about))
        .schema(Some(kind_schema(parameter.kind)))
        // Lists are sent as one value, separated by commas.
        .explode(list.then_some(false))
        .build()
}

/// The pattern of names.
const NAMES: &str = "^[\\w\\-.%]+$";

fn kind_schema(kind: Kind) -> Schema {
    let pattern = |pattern: &str| {
        ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).build()
    };
    let words = |words: &[&str]| {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(words.iter().map(|w| json!(w))))
            .build()
    };
    match kind {
        Kind::Whole { min, max, default } => whole()
            .minimum(Some(min as i64))
            .maximum(Some(max as i64))
            .default(Some(json!(default)))
            .build()
            .into(),
        Kind::Offset => whole().minimum(Some(0)).default(Some(json!(0))).build().into(),
        Kind::Flag => ObjectBuilder::new()
            .schema_type(Type::Boolean)
            .default(Some(json!(false)))
            .build()
            .into(),
        Kind::Text => text(),
        Kind::Alphanumeric => pattern("^[\\w,\\-.+:/() ]+$").into(),
        Kind::Name => pattern(NAMES).into(),
        Kind::AgentName => ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some(NAMES))
            .max_length(Some(NAME_CHARS_MAX))
            .build()
            .into(),
        Kind::GroupName => pattern("^[A-Za-z0-9._\\-]{1,128}$").into(),
        Kind::Search => pattern("^[^;|&^*>]+$").into(),
        Kind::Sort => pattern("^[\\w\\-,+. ]+$").into(),
        Kind::Word(list) => words(list).into(),
        Kind::Words(list) => ArrayBuilder::new().items(words(list)).build().into(),
        Kind::Numbers => ArrayBuilder::new().items(pattern("^[0-9]+$")).build().into(),
        Kind::NumbersOrAll => ArrayBuilder::new().items(pattern("^([0-9]+|all)$")).build().into(),
        Kind::Id => pattern("^[0-9]+$").into(),
        Kind::Position => whole().minimum(Some(0)).build().into(),
        Kind::Number => pattern("^[0-9]{3,}$").into(),
        Kind::Names => ArrayBuilder::new().items(pattern(NAMES)).build().into(),
        Kind::GroupNames => {
            ArrayBuilder::new().items(pattern("^[A-Za-z0-9._\\-]{1,128}$")).build().into()
        }
        Kind::Timeframe(default) => ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^[0-9]+[dhms]?$"))
            .default(default.map(|text| json!(text)))
            .build()
            .into(),
        Kind::Digest => pattern("^[0-9A-Fa-f]{32,128}$").into(),
        Kind::Instant => ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .build()
            .into(),
    }
}
