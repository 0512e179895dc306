//! Names in place of numbers. A text of digits is taken as a number.

use anyhow::bail;
use serde_json::Value;

use crate::answer::{GivenNames, at, items};
use crate::client::Client;

/// Number of the agent that is the server itself; it has the name of the server's host.
pub(crate) const SERVER: &str = "000";

/// Returns true if the text is a number.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the number of an agent, with at least three digits.
///
/// # Errors
/// If no agent has this name, or several have. A number is not looked up.
pub(crate) async fn agent(client: &Client, given: &str) -> anyhow::Result<String> {
    if is_number(given) {
        return match given.parse::<u32>() {
            Ok(number) => Ok(format!("{number:03}")),
            Err(_) => bail!(unknown_agent(given)),
        };
    }
    // No agent can have another name, and the API refuses it.
    let found = if given.chars().all(is_of_name) {
        let query = [("name", given.to_owned()), ("select", "id".to_owned())];
        items(&client.get(&["agents"], &query).await?)
    } else {
        Vec::new()
    };
    let found: Vec<_> = found.iter().filter_map(|item| at(item, "/id").as_str()).collect();
    let found: Vec<_> = found.into_iter().filter(|id| *id != SERVER).collect();
    match found[..] {
        [id] => Ok(id.to_owned()),
        [] if given.contains(['*', '?']) => bail!(
            "{given}: the server has no agent of this name; name one agent, wildcards are not expanded"
        ),
        [] => bail!("{given}: the server has no agent of this name; `holdfast agents` lists them"),
        _ => {
            bail!("{given}: several agents have this name; give one number of {}", found.join(", "))
        }
    }
}

/// Returns true for a character that the name of an agent may have.
fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(c)
}

/// Formats the error for a number that no agent has.
fn unknown_agent(given: &str) -> String {
    format!("{given}: agent does not exist: `holdfast agents` lists the agents")
}

/// Returns the numbers of agents.
///
/// # Errors
/// If no agent has one of the names. A number that no agent can have is among the unknown.
pub(crate) async fn agents(client: &Client, given: &[String]) -> anyhow::Result<GivenNames> {
    let mut names = GivenNames::default();
    for name in given {
        if is_number(name) && name.parse::<u32>().is_err() {
            names.unknown.push(unknown_agent(name));
        } else {
            names.given.push((agent(client, name).await?, name.clone()));
        }
    }
    Ok(names)
}

/// Objects of `/security` with a name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Named {
    User,
    Role,
}

impl Named {
    /// Returns the path of the list, the field with the name, and the word for one of them.
    fn place(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::User => ("users", "/username", "user"),
            Self::Role => ("roles", "/name", "role"),
        }
    }

    /// Returns all of them.
    pub(crate) async fn all(self, client: &Client) -> anyhow::Result<Vec<Value>> {
        let limit = [("limit", "100000".to_owned())];
        Ok(items(&client.get(&["security", self.place().0], &limit).await?))
    }

    /// Returns the number of one of `all`.
    pub(crate) fn number(self, all: &[Value], given: &str) -> anyhow::Result<String> {
        if is_number(given) {
            return Ok(given.to_owned());
        }
        let (_, name, word) = self.place();
        let found = all.iter().find(|item| at(item, name).as_str() == Some(given));
        match found.map(|item| at(item, "/id").to_string()) {
            Some(number) => Ok(number),
            None => bail!("{given}: no such {word}; see {}", self.command()),
        }
    }

    /// Returns the numbers of some of `all`.
    pub(crate) fn numbers(self, all: &[Value], given: &[String]) -> anyhow::Result<GivenNames> {
        let numbers: anyhow::Result<Vec<_>> =
            given.iter().map(|name| Ok((self.number(all, name)?, name.clone()))).collect();
        Ok(GivenNames { given: numbers?, unknown: Vec::new() })
    }

    fn command(self) -> &'static str {
        match self {
            Self::User => "`holdfast users`",
            Self::Role => "`holdfast users roles`",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn number_wins_over_a_name_of_digits() {
        let users = [json!({"id": 1, "username": "admin"}), json!({"id": 2, "username": "0001"})];
        let number = |given| Named::User.number(&users, given);
        assert_eq!(number("admin").unwrap(), "1");
        assert_eq!(number("0001").unwrap(), "0001");
        let error = number("alice").unwrap_err().to_string();
        assert_eq!(error, "alice: no such user; see `holdfast users`");
    }
}
