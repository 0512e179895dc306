//! Secrets in command lines, which are masked before a command line leaves this crate.
//!
//! A value is masked if its name contains a word of [`WORDS`] (`--db-password=x`, `token: x`,
//! `--api-key x`) or ends with one of [`SHORT_WORDS`] (`--pass x`, `DB_PASS=x`), if it belongs to a
//! known option or argument of a known program (`mysql -px`, `vault login x`), if it is the password
//! or token of an address (`://user:x@`), if it has the form of a known token ([`crate::tokens`]), or
//! if it follows a configured pattern. A command line inside an argument (`sh -c '...'`) is masked
//! in the same way.

use crate::tokens;

/// Replacement of a secret.
const MASK: &str = "***";

/// Parts of names of secrets.
const WORDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "api-key",
    "api_key",
    "apikey",
    "access-key",
    "access_key",
    "private-key",
    "private_key",
    "credential",
    "authorization",
];

/// Names of secrets that are parts of harmless words: they count alone, or after `-`, `_` or `.`.
const SHORT_WORDS: &[&str] = &["pass", "pw", "bearer", "auth"];

/// Names that end with a word of [`SHORT_WORDS`] and have no secret.
const HARMLESS: &[&str] = &["no-auth", "no-pass"];

/// Ends of names that say where a secret is, and are no secrets.
const PLACES: &[&str] = &["-file", "_file", "-stdin", "-path", "_path", "-fd"];

/// The place of an option's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// In the same argument, as in `-psecret`.
    Attached,
    /// In the next argument, as in `-a secret`.
    Next,
    /// In either.
    Both,
    /// In either, after a name and this character, as in `-u name:secret`.
    After(char),
}

/// Options by the names of programs.
const OPTIONS: &[(&[&str], &str, Form)] = &[
    (&["mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump"], "-p", Form::Attached),
    (&["sshpass", "mongo", "mongosh", "mongodump", "rdesktop"], "-p", Form::Both),
    (&["xfreerdp"], "/p:", Form::Attached),
    (&["useradd", "usermod"], "-p", Form::Both),
    (&["7z", "7za", "7zr"], "-p", Form::Attached),
    (&["redis-cli"], "-a", Form::Both),
    (&["zip", "unzip", "sqlcmd", "ipmitool"], "-P", Form::Both),
    (&["lftp"], "-u", Form::After(',')),
    (&["ldapsearch", "ldapadd", "ldapmodify", "ldapdelete", "ldappasswd"], "-w", Form::Both),
    (&["openssl"], "-passin", Form::After(':')),
    (&["openssl"], "-passout", Form::After(':')),
    (&["openssl"], "-pass", Form::After(':')),
    (&["openssl"], "-k", Form::Next),
    (&["openssl"], "-K", Form::Next),
    (&["curl", "wget"], "--user", Form::After(':')),
    (&["curl"], "-u", Form::After(':')),
    (&["curl"], "--proxy-user", Form::After(':')),
    (&["curl"], "-U", Form::After(':')),
    (&["smbclient", "rpcclient", "net"], "-U", Form::After('%')),
];

/// Programs with a subcommand after which an argument is a secret: the next one that is no option,
/// or the value of the given option.
const SUBCOMMANDS: &[(&str, &str, Option<&str>)] =
    &[("vault", "login", None), ("docker", "login", Some("-p")), ("podman", "login", Some("-p"))];

/// Programs whose settings are a name and a value as two arguments.
const SETTINGS: &[&str] = &["aws", "git", "npm", "pip", "redis-cli"];

/// Returns the arguments joined by blanks, with secrets masked. Each argument ends with a zero
/// byte. After each of `patterns` the rest of the word, or else the next argument, is masked.
pub(crate) fn command_line(arguments: &[u8], patterns: &[String]) -> String {
    let arguments = arguments.strip_suffix(&[0]).unwrap_or(arguments);
    if arguments.is_empty() {
        return String::new();
    }
    let arguments: Vec<_> =
        arguments.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let masked = mask(arguments.iter().map(AsRef::as_ref), patterns);
    let nested = masked.into_iter().map(|argument| {
        if argument.contains(char::is_whitespace) {
            mask(argument.split_whitespace(), patterns).join(" ")
        } else {
            argument
        }
    });
    nested.collect::<Vec<_>>().join(" ")
}

fn mask<'a>(arguments: impl Iterator<Item = &'a str>, patterns: &[String]) -> Vec<String> {
    let arguments: Vec<&str> = arguments.collect();
    let mut masked = Vec::new();
    let mut command = Command::default();
    let mut next = None;
    for argument in &arguments {
        command.follow(argument);
        match next.take() {
            Some(Form::After(mark)) => masked.push(after(argument, mark)),
            Some(_) if !argument.starts_with("--") => masked.push(MASK.to_owned()),
            _ => {
                let (text, secret_follows) = mask_one(argument, &command, patterns);
                masked.push(text);
                next = secret_follows;
            }
        }
    }
    mask_of_password_tools(&arguments, &mut masked);
    masked
}

/// The program that the arguments belong to.
#[derive(Default)]
struct Command<'a> {
    program: &'a str,
    /// The subcommand of [`SUBCOMMANDS`], once it was given.
    subcommand: Option<(&'a str, Option<&'a str>)>,
    /// True if it is one of [`SETTINGS`] and changes a setting.
    configures: bool,
}

impl<'a> Command<'a> {
    /// Takes note of an argument that is the name of a program or of its subcommand.
    fn follow(&mut self, argument: &'a str) {
        let name = argument.rsplit('/').next().unwrap_or_default();
        let is_program = OPTIONS.iter().any(|(programs, ..)| programs.contains(&name))
            || SUBCOMMANDS.iter().any(|(program, ..)| *program == name)
            || SETTINGS.contains(&name);
        if is_program {
            *self = Self { program: name, ..Self::default() };
            return;
        }
        let configures =
            ["config", "configure"].iter().any(|word| argument.eq_ignore_ascii_case(word));
        self.configures |= configures && SETTINGS.contains(&self.program);
        let known = SUBCOMMANDS
            .iter()
            .find(|(program, subcommand, _)| *program == self.program && *subcommand == argument);
        if let Some((_, subcommand, option)) = known {
            self.subcommand = Some((subcommand, *option));
        }
    }

    /// Masks an argument that is a secret by its place; also returns the form of a secret in the
    /// next one.
    fn mask(&self, argument: &str) -> Option<(String, Option<Form>)> {
        let kept = |next| Some((argument.to_owned(), next));
        match self.subcommand {
            Some((subcommand, _)) if subcommand == argument => return kept(None),
            Some((_, None)) if !argument.starts_with('-') && !argument.contains('=') => {
                return Some((MASK.to_owned(), None));
            }
            Some((_, Some(option))) if argument == option => return kept(Some(Form::Next)),
            _ => {}
        }
        let is_name = !argument.starts_with('-') && !argument.contains(['=', ' ', '@']);
        let is_secret = contains_word(argument) || argument == "requirepass";
        if self.configures && is_name && is_secret { kept(Some(Form::Next)) } else { None }
    }
}

/// Masks what `htpasswd -b` and `chpasswd` take: a password as last argument, and `user:password`
/// that is sent to the program.
fn mask_of_password_tools(arguments: &[&str], masked: &mut [String]) {
    let runs = |program: &str| {
        arguments.iter().any(|argument| argument.rsplit('/').next() == Some(program))
    };
    let has_b = |argument: &&str| {
        argument.starts_with('-') && !argument.starts_with("--") && argument.contains('b')
    };
    if runs("htpasswd")
        && arguments.iter().any(has_b)
        && let Some(last) = masked.last_mut()
    {
        MASK.clone_into(last);
    }
    if runs("chpasswd") {
        for text in masked.iter_mut().filter(|text| text.contains(':') && !text.contains('/')) {
            *text = after(text, ':');
        }
    }
}

/// Masks one argument; also returns the form of a secret in the next one.
fn mask_one(argument: &str, command: &Command<'_>, patterns: &[String]) -> (String, Option<Form>) {
    if let Some(masked) = command.mask(argument) {
        return masked;
    }
    let options = OPTIONS.iter().filter(|(programs, ..)| programs.contains(&command.program));
    for (_, option, form) in options {
        let Some(value) = argument.strip_prefix(option) else { continue };
        let value = value.strip_prefix('=').unwrap_or(value);
        match form {
            Form::After(_) | Form::Next | Form::Both if value.is_empty() => {
                return (argument.to_owned(), Some(*form));
            }
            Form::Attached | Form::Both if !value.is_empty() => {
                return (format!("{option}{MASK}"), None);
            }
            Form::After(mark) if value.contains(*mark) => return (after(argument, *mark), None),
            _ => {}
        }
    }
    if patterns.iter().any(|pattern| pattern == argument) || names_secret(argument) {
        return (argument.to_owned(), Some(Form::Next));
    }
    let text = mask_addresses(argument);
    let text = mask_named(&text, WORDS.iter().copied(), true);
    let text = mask_short_names(&text);
    let text = tokens::mask(&text, MASK);
    (mask_named(&text, patterns.iter().map(String::as_str), false), None)
}

/// Returns true for an option without a value that names a secret, and for the word before a token.
fn names_secret(argument: &str) -> bool {
    let name = argument.to_ascii_lowercase();
    if name == "bearer" || name.ends_with(": bearer") {
        return true;
    }
    argument.starts_with('-')
        && !argument.contains(['=', ':', ' '])
        && (contains_word(&name) || is_short_name(&name))
        && !PLACES.iter().any(|place| name.ends_with(place))
}

fn contains_word(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}

/// Returns true if the last part of a name is one of [`SHORT_WORDS`].
fn is_short_name(name: &str) -> bool {
    let name = name.trim_start_matches('-');
    let last = name.rsplit(['-', '_', '.']).next().unwrap_or_default();
    SHORT_WORDS.iter().any(|word| last.eq_ignore_ascii_case(word))
        && !HARMLESS.iter().any(|harmless| name.eq_ignore_ascii_case(harmless))
}

/// Masks the value of an assignment such as `DB_PASS=x`.
fn mask_short_names(text: &str) -> String {
    let Some((name, value)) = text.split_once('=') else { return text.to_owned() };
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !is_name || value.is_empty() || !is_short_name(name) {
        return text.to_owned();
    }
    let (start, end) = value_within(text, text.len() - value.len(), false);
    let mut text = text.to_owned();
    text.replace_range(start..end, MASK);
    text
}

fn after(argument: &str, mark: char) -> String {
    argument.split_once(mark).map_or_else(
        || argument.to_owned(),
        |(name, secret)| {
            let shown = if secret.is_empty() { "" } else { MASK };
            format!("{name}{mark}{shown}")
        },
    )
}

/// Masks the password in `://user:password@host`, and a token in `://token@host`.
fn mask_addresses(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some((before, address)) = rest.split_once("://") {
        masked.push_str(before);
        masked.push_str("://");
        let end = address.find(|c: char| c.is_whitespace() || "/?#\"'".contains(c));
        let (authority, after) = address.split_at(end.unwrap_or(address.len()));
        // The password itself may contain the character.
        match authority.rsplit_once('@').map(|(login, host)| (login.split_once(':'), login, host)) {
            Some((Some((user, _)), _, host)) => masked.extend([user, ":", MASK, "@", host]),
            Some((None, login, host)) if tokens::looks_random(login) => {
                masked.extend([MASK, "@", host]);
            }
            _ => masked.push_str(authority),
        }
        rest = after;
    }
    masked + rest
}

/// Masks the value after each name. With `assigned`, only `=` or `:` makes what follows a value.
fn mask_named<'a>(text: &str, names: impl Iterator<Item = &'a str>, assigned: bool) -> String {
    let mut text = text.to_owned();
    for name in names.filter(|name| !name.is_empty()) {
        let mut from = 0;
        while let Some(found) = find_name(&text, name, from, assigned) {
            let Some(start) = value_start(&text, found, assigned) else {
                from = found;
                continue;
            };
            let (start, end) = value_within(&text, start, name == "authorization");
            if end > start {
                text.replace_range(start..end, MASK);
            }
            from = (start + MASK.len()).min(text.len());
        }
    }
    text
}

/// Returns the end of the next occurrence of a name. Words are found in either case.
fn find_name(text: &str, name: &str, from: usize, assigned: bool) -> Option<usize> {
    let rest = text.get(from..)?;
    // ASCII case changes no byte positions.
    let at = if assigned { rest.to_ascii_lowercase().find(name) } else { rest.find(name) };
    at.map(|at| from + at + name.len())
}

/// Returns the start of the value after a name. With `assigned`, the rest of the name is skipped,
/// and it must be followed by `=` or `:`.
fn value_start(text: &str, from: usize, assigned: bool) -> Option<usize> {
    let rest = text.get(from..)?;
    if !assigned {
        return Some(from + usize::from(rest.starts_with(['=', ':'])));
    }
    let name_end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-_[]".contains(c)))?;
    let (name, value) = rest.split_at(name_end);
    if PLACES.iter().any(|place| name.to_ascii_lowercase().ends_with(place)) {
        return None;
    }
    let value = value.trim_start_matches(['"', '\'', ' ']);
    let value = value.strip_prefix(['=', ':'])?.trim_start_matches(' ');
    Some(text.len() - value.len())
}

/// Returns the span of a value: between quotes, or up to a delimiter.
fn value_within(text: &str, start: usize, whole: bool) -> (usize, usize) {
    let value = text.get(start..).unwrap_or_default();
    let quote = value.chars().next().filter(|c| ['"', '\''].contains(c));
    let start = start + quote.map_or(0, char::len_utf8);
    let value = text.get(start..).unwrap_or_default();
    let end = match quote {
        Some(quote) => value.find(quote),
        None if whole => value.find(['"', '\'']),
        None => value.find(|c: char| c.is_whitespace() || "&;\"'".contains(c)),
    };
    (start, start + end.unwrap_or(value.len()))
}

#[cfg(test)]
#[path = "mask_tests.rs"]
mod tests;
