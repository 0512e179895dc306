//! Names in place of numbers. A text of digits is taken as a number.

use anyhow::bail;
use serde_json::Value;

use crate::answer::{at, items};
use crate::client::Client;

/// Number of the agent that is the server itself; it has the name of the server's host.
const SERVER: &str = "000";

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
        return Ok(format!("{:0>3}", given.trim_start_matches('0')));
    }
    let query = [("name", given.to_owned()), ("select", "id".to_owned())];
    let answer = client.get(&["agents"], &query).await?;
    let found = items(&answer);
    let found: Vec<_> = found.iter().filter_map(|item| at(item, "/id").as_str()).collect();
    let found: Vec<_> = found.into_iter().filter(|id| *id != SERVER).collect();
    match found[..] {
        [id] => Ok(id.to_owned()),
        [] => bail!("{given}: the server has no agent of this name; `holdfast agents` lists them"),
        _ => {
            bail!("{given}: several agents have this name; give one number of {}", found.join(", "))
        }
    }
}

/// Returns the numbers of agents, separated by commas.
pub(crate) async fn agents(client: &Client, given: &[String]) -> anyhow::Result<String> {
    let mut numbers = Vec::with_capacity(given.len());
    for name in given {
        numbers.push(agent(client, name).await?);
    }
    Ok(numbers.join(","))
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

    /// Returns the numbers of some of `all`, separated by commas.
    pub(crate) fn numbers(self, all: &[Value], given: &[String]) -> anyhow::Result<String> {
        let numbers: anyhow::Result<Vec<_>> =
            given.iter().map(|name| self.number(all, name)).collect();
        Ok(numbers?.join(","))
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
