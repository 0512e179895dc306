//! `holdfast users`: users of the API and their roles.

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{Args, Subcommand};
use env::random::{Random as _, SystemRandom};
use reqwest::Method;
use serde_json::{Value, json};
use service::Console;

use crate::answer::{GivenNames, at, expect_all, expect_all_of, fail_with, failures, items, text};
use crate::arguments::{ActArgs, ListArgs};
use crate::client::Client;
use crate::names::Named;
use crate::table;

/// Random bytes of a generated password.
const PASSWORD_BYTES: usize = 18;

/// Arguments of `holdfast users`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct UsersArgs {
    #[command(subcommand)]
    pub command: Option<UsersCommand>,
    #[command(flatten)]
    list: ListArgs,
}

/// Actions on users.
#[derive(Debug, Subcommand)]
pub enum UsersCommand {
    /// Create a user. The password is read from `HOLDFAST_NEW_PASSWORD`, or drawn at random and shown
    /// once.
    #[command(after_help = "Example:\n  holdfast users create alice --role readonly")]
    Create(CreateArgs),
    /// Delete users; their tokens are refused from then on.
    Delete(UserNamesArgs),
    /// Set a password, read from `HOLDFAST_NEW_PASSWORD` or drawn at random and shown once. Without
    /// --url this needs no running server.
    #[command(after_help = "Example:\n  holdfast users password admin --data ./data")]
    Password(PasswordArgs),
    /// Give a user roles.
    #[command(after_help = "Example:\n  holdfast users grant alice agents_readonly")]
    Grant(RolesOfArgs),
    /// Take roles from a user.
    #[command(after_help = "Example:\n  holdfast users revoke alice agents_readonly")]
    Revoke(RolesOfArgs),
    /// List the roles.
    Roles(ListArgs),
}

/// Arguments of `holdfast users create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name of the user, 4 to 64 characters.
    #[arg(value_name = "USER")]
    user: String,
    /// Name or number of a role; may be given more than once.
    #[arg(long, value_name = "ROLE")]
    role: Vec<String>,
    #[command(flatten)]
    act: ActArgs,
}

/// Arguments of `holdfast users delete`.
#[derive(Debug, Args)]
pub struct UserNamesArgs {
    /// Names or numbers of users.
    #[arg(value_name = "USER", required = true)]
    user: Vec<String>,
    #[command(flatten)]
    act: ActArgs,
}

/// Arguments of `holdfast users password`.
#[derive(Debug, Args)]
pub struct PasswordArgs {
    /// Name of the user.
    #[arg(value_name = "USER")]
    pub user: String,
    #[command(flatten)]
    pub connect: crate::connect::ConnectArgs,
}

/// Arguments of `holdfast users grant` and `revoke`.
#[derive(Debug, Args)]
pub struct RolesOfArgs {
    /// Name or number of the user.
    #[arg(value_name = "USER")]
    user: String,
    /// Names or numbers of roles.
    #[arg(value_name = "ROLE", required = true)]
    role: Vec<String>,
    #[command(flatten)]
    act: ActArgs,
}

pub(crate) async fn run(args: UsersArgs) -> anyhow::Result<()> {
    match &args.command {
        None => list(&args.list).await,
        Some(UsersCommand::Create(args)) => create(args).await,
        Some(UsersCommand::Delete(args)) => delete(args).await,
        Some(UsersCommand::Password(args)) => password(args).await,
        Some(UsersCommand::Grant(args)) => grant_or_revoke(args, Method::POST, "granted").await,
        Some(UsersCommand::Revoke(args)) => grant_or_revoke(args, Method::DELETE, "revoked").await,
        Some(UsersCommand::Roles(list)) => {
            let columns: &[table::Column] = &[
                ("id", |item| text(at(item, "/id"))),
                ("role", |item| text(at(item, "/name"))),
                ("users", |item| text(at(item, "/users"))),
                ("policies", |item| text(at(item, "/policies"))),
            ];
            list.print(&list.connect.client()?, &["security", "roles"], &[], columns).await
        }
    }
}

async fn list(list: &ListArgs) -> anyhow::Result<()> {
    let client = list.connect.client()?;
    let roles = Named::Role.all(&client).await?;
    let mut listed = client.list(&["security", "users"], &[], list.limit()).await?;
    for user in &mut listed.items {
        let names = at(user, "/roles").as_array().into_iter().flatten().map(|number| {
            let role = roles.iter().find(|role| at(role, "/id") == number);
            role.map_or(number, |role| at(role, "/name")).clone()
        });
        let names = Value::Array(names.collect());
        if let Some(fields) = user.as_object_mut() {
            fields.insert("role_names".into(), names);
        }
    }
    let columns: &[table::Column] = &[
        ("id", |item| text(at(item, "/id"))),
        ("user", |item| text(at(item, "/username"))),
        ("roles", |item| text(at(item, "/role_names"))),
        ("run_as", |item| text(at(item, "/allow_run_as"))),
    ];
    list.print_listed(listed, columns)
}

async fn create(args: &CreateArgs) -> anyhow::Result<()> {
    let client = args.act.connect.client()?;
    // An unknown role must not leave a user without roles.
    let roles = Named::Role.numbers(&Named::Role.all(&client).await?, &args.role)?;
    let (password, is_random) = new_password()?;
    let body = json!({"username": args.user, "password": password});
    let request = client.request(Method::POST, &["security", "users"], &[])?;
    let answer = client.send(request.json(&body)).await?;
    expect_all(&answer)?;
    let Some(mut made) = items(&answer).pop() else { bail!("{}: not created", args.user) };
    let mut granted = Ok(());
    if !roles.given.is_empty() {
        let number = at(&made, "/id").to_string();
        let answer = change_roles(&client, Method::POST, &number, &roles).await;
        granted = answer.and_then(|answer| {
            made = items(&answer).pop().unwrap_or_else(|| made.clone());
            expect_all_of(&answer, &roles)
        });
    }
    // A failure to grant roles must not lose the password.
    if args.act.json {
        if let Some(fields) = made.as_object_mut().filter(|_| is_random) {
            fields.insert("password".into(), json!(password));
        }
        Console::new().line(&made.to_string());
    } else {
        let random = Some(format!(", password {password} (shown once)")).filter(|_| is_random);
        let shown = random.unwrap_or_default();
        Console::new().line(&format!("created: user {}{shown}", args.user));
    }
    granted.with_context(|| format!("user {} does not have all of these roles", args.user))
}

async fn delete(args: &UserNamesArgs) -> anyhow::Result<()> {
    let client = args.act.connect.client()?;
    let users = Named::User.all(&client).await?;
    let names = Named::User.numbers(&users, &args.user)?;
    let query = [("user_ids", names.numbers())];
    let request = client.request(Method::DELETE, &["security", "users"], &query)?;
    let answer = client.send(request).await?;
    if args.act.json {
        return args.act.report_of(&answer, "deleted", &names);
    }
    for user in items(&answer) {
        Console::new().line(&format!("deleted: user {}", text(at(&user, "/username"))));
    }
    expect_all_of(&answer, &names)
}

async fn password(args: &PasswordArgs) -> anyhow::Result<()> {
    let client = args.connect.client()?;
    let number = user_number(&client, &args.user).await?;
    let (password, is_random) = new_password()?;
    let request = client.request(Method::PUT, &["security", "users", &number], &[])?;
    expect_all(&client.send(request.json(&json!({"password": password}))).await?)?;
    Console::new().line(&if is_random {
        format!("new password of {}: {password} (shown once)", args.user)
    } else {
        format!("password of {} set", args.user)
    });
    Ok(())
}

/// Gives a user roles, or takes them. The answer says which roles failed.
async fn change_roles(
    client: &Client,
    method: Method,
    user: &str,
    roles: &GivenNames,
) -> anyhow::Result<Value> {
    let path = ["security", "users", user, "roles"];
    client.send(client.request(method, &path, &[("role_ids", roles.numbers())])?).await
}

async fn grant_or_revoke(args: &RolesOfArgs, method: Method, done: &str) -> anyhow::Result<()> {
    let client = args.act.connect.client()?;
    let number = user_number(&client, &args.user).await?;
    let roles = Named::Role.numbers(&Named::Role.all(&client).await?, &args.role)?;
    let answer = change_roles(&client, method, &number, &roles).await?;
    let failed = at(&answer, "/data/failed_items").as_array().into_iter().flatten();
    let failed: Vec<&Value> =
        failed.filter_map(|item| at(item, "/id").as_array()).flatten().collect();
    let is_done = |number: &str| failed.iter().all(|id| text(id) != number);
    let changed = roles.given.iter().filter(|(number, _)| is_done(number));
    let changed: Vec<&str> = changed.map(|(_, given)| given.as_str()).collect();
    if args.act.json {
        Console::new().line(&at(&answer, "/data").to_string());
    } else if !changed.is_empty() {
        Console::new().line(&format!("{done}: {} for user {}", changed.join(", "), args.user));
    }
    fail_with(failures(&answer, &roles))
}

async fn user_number(client: &Client, given: &str) -> anyhow::Result<String> {
    Named::User.number(&Named::User.all(client).await?, given)
}

/// Returns the password from `HOLDFAST_NEW_PASSWORD`, or a random one, and whether it is random.
///
/// # Errors
/// If the system has no random bytes.
pub fn new_password() -> anyhow::Result<(String, bool)> {
    match std::env::var("HOLDFAST_NEW_PASSWORD").ok().filter(|given| !given.is_empty()) {
        Some(given) => Ok((given, false)),
        None => Ok((random_password()?, true)),
    }
}

/// Returns a random password that contains a lower-case and an upper-case letter, a digit and a
/// symbol, as the password rule requires.
fn random_password() -> anyhow::Result<String> {
    let mut bytes = [0; PASSWORD_BYTES];
    SystemRandom.fill_bytes(&mut bytes)?;
    Ok(format!("{}-aA1", URL_SAFE_NO_PAD.encode(bytes)))
}
