//! Secrets in command lines, which are masked before a command line leaves this crate.
//!
//! A value is masked if its name contains a word of [`WORDS`] (`--db-password=x`, `token: x`,
//! `--api-key x`), if it belongs to a known option of a known program (`mysql -px`), if it is the
//! password of an address (`://user:x@`), or if it follows a configured pattern. A command line
//! inside an argument (`sh -c '...'`) is masked in the same way.

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
    (&["sshpass", "mongo", "mongosh", "mongodump", "docker", "podman"], "-p", Form::Both),
    (&["useradd", "usermod"], "-p", Form::Both),
    (&["7z", "7za", "7zr"], "-p", Form::Attached),
    (&["redis-cli"], "-a", Form::Both),
    (&["zip", "unzip", "sqlcmd"], "-P", Form::Both),
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
    let mut masked = Vec::new();
    let mut program = String::new();
    let mut next = None;
    for argument in arguments {
        let name = argument.rsplit('/').next().unwrap_or_default();
        if OPTIONS.iter().any(|(programs, ..)| programs.contains(&name)) {
            name.clone_into(&mut program);
        }
        match next.take() {
            Some(Form::After(mark)) => masked.push(after(argument, mark)),
            Some(_) if !argument.starts_with("--") => masked.push(MASK.to_owned()),
            _ => {
                let (text, secret_follows) = mask_one(argument, &program, patterns);
                masked.push(text);
                next = secret_follows;
            }
        }
    }
    masked
}

/// Masks one argument; also returns the form of a secret in the next one.
fn mask_one(argument: &str, program: &str, patterns: &[String]) -> (String, Option<Form>) {
    let options = OPTIONS.iter().filter(|(programs, ..)| programs.contains(&program));
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
    (mask_named(&text, patterns.iter().map(String::as_str), false), None)
}

/// Returns true for an option without a value whose name contains a word of [`WORDS`].
fn names_secret(argument: &str) -> bool {
    let name = argument.to_ascii_lowercase();
    argument.starts_with('-')
        && !argument.contains(['=', ':', ' '])
        && WORDS.iter().any(|word| name.contains(word))
        && !PLACES.iter().any(|place| name.ends_with(place))
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

/// Masks the password in `://user:password@host`.
fn mask_addresses(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some((before, address)) = rest.split_once("://") {
        masked.push_str(before);
        masked.push_str("://");
        let end = address.find(|c: char| c.is_whitespace() || "/?#\"'".contains(c));
        let (authority, after) = address.split_at(end.unwrap_or(address.len()));
        // The password itself may contain the character.
        match authority
            .rsplit_once('@')
            .and_then(|(login, host)| Some((login.split_once(':')?.0, host)))
        {
            Some((user, host)) => masked.extend([user, ":", MASK, "@", host]),
            None => masked.push_str(authority),
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
mod tests {
    use super::*;

    /// Arguments, separated by `|`, and the masked command line.
    const CASES: &[(&str, &str)] = &[
        ("touch|/etc/passwd", "touch /etc/passwd"),
        ("cmd|--password=abc|x", "cmd --password=*** x"),
        ("cmd|--password|abc|x", "cmd --password *** x"),
        ("cmd|--db-Password|two words", "cmd --db-Password ***"),
        ("cmd|--token|abc", "cmd --token ***"),
        ("cmd|-token=abc", "cmd -token=***"),
        ("cmd|--api-key|abc|--verbose", "cmd --api-key *** --verbose"),
        ("cmd|--password-stdin|x", "cmd --password-stdin x"),
        ("cmd|--password-file|/run/p", "cmd --password-file /run/p"),
        ("cmd|--password-file=/run/p", "cmd --password-file=/run/p"),
        ("cmd|--password|--verbose", "cmd --password --verbose"),
        ("env|PGPASSWORD=abc|psql", "env PGPASSWORD=*** psql"),
        ("cmd|AWS_SECRET_ACCESS_KEY=abc", "cmd AWS_SECRET_ACCESS_KEY=***"),
        ("cmd|db.secret[0]=abc", "cmd db.secret[0]=***"),
        ("curl|https://x/?token=abc&page=2", "curl https://x/?token=***&page=2"),
        ("curl|-H|Authorization: Bearer abc", "curl -H Authorization: ***"),
        ("curl|-d|{\"password\": \"a b\", \"x\": 1}", "curl -d {\"password\": \"***\", \"x\": 1}"),
        ("curl|-u|me:abc|x", "curl -u me:*** x"),
        ("curl|-ume:abc|x", "curl -ume:*** x"),
        ("curl|--user=me:abc", "curl --user=me:***"),
        ("curl|-u|me|x", "curl -u me x"),
        ("git|clone|https://me:a@b@host/r", "git clone https://me:***@host/r"),
        ("git|clone|https://me@host:80/r", "git clone https://me@host:80/r"),
        ("git|clone|ssh://host/a:b@c", "git clone ssh://host/a:b@c"),
        ("/usr/bin/mysql|-uroot|-pabc|db", "/usr/bin/mysql -uroot -p*** db"),
        ("mysql|-p|db", "mysql -p db"),
        ("sshpass|-p|abc|ssh|host", "sshpass -p *** ssh host"),
        ("sshpass|-pabc|ssh|host", "sshpass -p*** ssh host"),
        ("mkdir|-p|/srv/a", "mkdir -p /srv/a"),
        ("redis-cli|-a|abc", "redis-cli -a ***"),
        ("ldapsearch|-w|abc|-x", "ldapsearch -w *** -x"),
        ("openssl|rsa|-passin|pass:abc", "openssl rsa -passin pass:***"),
        ("smbclient|-U|me%abc", "smbclient -U me%***"),
        ("sh|-c|mysql -pabc db; echo x", "sh -c mysql -p*** db; echo x"),
        ("sh|-c|PASSWORD='a b' run --token abc", "sh -c PASSWORD='***' run --token ***"),
        ("cmd|--licence=abc|x", "cmd --licence=*** x"),
        ("cmd|--licence|abc|x", "cmd --licence *** x"),
        ("cmd|X-Key:abc|x", "cmd X-Key:*** x"),
        ("cmd|ключ=пароль|password=пароль", "cmd ключ=пароль password=***"),
        ("", ""),
    ];

    #[test]
    fn secrets_are_masked_and_other_arguments_are_not() {
        let patterns = ["--licence=", "--licence", "X-Key:"].map(String::from);
        for (arguments, expected) in CASES {
            let bytes = arguments.replace('|', "\0") + "\0";
            assert_eq!(command_line(bytes.as_bytes(), &patterns), *expected, "{arguments}");
        }
    }

    #[test]
    fn arguments_of_any_bytes_are_accepted() {
        assert_eq!(command_line(b"a\xff\0b", &[]), "a\u{fffd} b");
        assert_eq!(command_line(b"\0\0", &[]), " ");
        assert_eq!(command_line(b"password=", &[]), "password=");
        assert_eq!(command_line("token=\u{20ac}".as_bytes(), &[]), "token=***");
    }
}
