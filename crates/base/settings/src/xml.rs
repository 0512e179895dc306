//! The `agent_config` documents of the 4.x line. Options that this agent supports are converted;
//! all others are refused by name. Options that ask for nothing (`<disabled>no</disabled>`, or the
//! value that always applies here) are accepted too.

use std::time::Duration;

use roxmltree::{Attribute as XmlAttribute, Document, Node, ParsingOptions};

use crate::{Settings, SettingsError, Span, WatchSettings, limits, watch};

mod syscheck;

type Read<T> = Result<T, SettingsError>;

/// The document in which an error is located.
pub(super) struct ErrorContext<'d>(&'d Document<'d>);

impl ErrorContext<'_> {
    pub(super) fn of(&self, node: Node<'_, '_>, problem: impl Into<String>) -> SettingsError {
        let line = self.0.text_pos_at(node.range().start).row;
        SettingsError::at(line as usize, problem)
    }

    /// Returns the error of an element that this agent does not support.
    pub(super) fn unknown(&self, node: Node<'_, '_>) -> SettingsError {
        let parent = node.parent_element().map_or("", |parent| parent.tag_name().name());
        let name = node.tag_name().name();
        self.of(node, format!("<{name}> in <{parent}> is not supported: leave it out"))
    }

    /// Returns the error of an attribute, or of its value, that this agent does not support.
    pub(super) fn refused(
        &self,
        node: Node<'_, '_>,
        attribute: &XmlAttribute<'_, '_>,
        why: &str,
    ) -> SettingsError {
        let (tag, name, value) = (node.tag_name().name(), attribute.name(), attribute.value());
        self.of(node, format!("<{tag} {name}=\"{value}\"> is not supported: {why}"))
    }

    pub(super) fn yes(&self, node: Node<'_, '_>, text: &str) -> Read<bool> {
        match text.trim() {
            "yes" => Ok(true),
            "no" => Ok(false),
            other => Err(self.of(node, format!("{other:?} is neither yes nor no"))),
        }
    }

    /// Returns the text of an element that contains only text.
    pub(super) fn text<'a>(&self, node: Node<'a, '_>) -> Read<&'a str> {
        if let Some(child) = node.children().find(|child| !child.is_text()) {
            if child.is_element() {
                return Err(self.unknown(child));
            }
            let name = node.tag_name().name();
            return Err(self.of(child, format!("put the comment outside of <{name}>")));
        }
        let text = node.text().unwrap_or_default().trim();
        if text.is_empty() {
            return Err(self.of(node, format!("<{}> is empty", node.tag_name().name())));
        }
        Ok(text)
    }

    pub(super) fn number(&self, node: Node<'_, '_>, text: &str) -> Read<u64> {
        text.trim().parse().map_err(|_| self.of(node, format!("{text:?} is not a whole number")))
    }

    /// Checks an option that can only have the value that always applies here.
    fn require_fixed_value(&self, node: Node<'_, '_>, wanted: bool) -> Read<()> {
        if self.yes(node, self.text(node)?)? == wanted {
            return Ok(());
        }
        let (name, word) = (node.tag_name().name(), if wanted { "yes" } else { "no" });
        Err(self.of(node, format!("<{name}> can only be {word} here: leave it out")))
    }

    /// Checks a time between two scans.
    pub(super) fn interval(&self, node: Node<'_, '_>, seconds: u64) -> Read<Span> {
        let span = Duration::from_secs(seconds);
        if (limits::INTERVAL_MIN..=limits::INTERVAL_MAX).contains(&span) {
            return Ok(Span(span));
        }
        let most = limits::INTERVAL_MAX.as_secs();
        Err(self.of(node, format!("{seconds} s: must be from 1 to {most}")))
    }
}

/// Parses one or more `agent_config` elements.
pub(crate) fn parse(text: &str) -> Read<Settings> {
    // A 4.x document may have any number of roots, so they are wrapped in one, on the same line.
    let (head, body) = split_declaration(text);
    let whole = format!("<all>{}{body}</all>", "\n".repeat(head));
    let options = ParsingOptions {
        allow_dtd: false,
        nodes_limit: limits::XML_NODES_MAX,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(&whole, options).map_err(|error| {
        let line = error.pos().row as usize;
        SettingsError::at(line.min(text.lines().count().max(1)), format!("not XML: {error}"))
    })?;
    let context = ErrorContext(&document);
    let mut settings = Settings::default();
    for node in document.root_element().children() {
        if node.is_element() {
            if node.tag_name().name() != "agent_config" {
                return Err(context.of(node, "the document's root must be <agent_config>"));
            }
            block(&context, node, &mut settings)?;
        } else if node.is_text() && !node.text().unwrap_or_default().trim().is_empty() {
            return Err(context.of(node, "text outside of <agent_config>"));
        }
    }
    let root = document.root_element();
    watch::check(&settings.watch).map_err(|problem| context.of(root, problem))?;
    crate::merged([&settings]).map_err(|error| context.of(root, error.to_string()))?;
    // Agents receive the TOML form, so whatever that form refuses is refused here.
    let read = Settings::from_toml(&settings.to_toml());
    read.map_err(|error| context.of(root, format!("as agents would be handed it: {error}")))
}

/// Returns the number of line ends in the XML declaration, and the text after it.
fn split_declaration(text: &str) -> (usize, &str) {
    let text = text.trim_start_matches('\u{feff}');
    let start = text.trim_start();
    if !start.starts_with("<?xml ") {
        return (0, text);
    }
    let Some((_, body)) = start.split_once("?>") else { return (0, text) };
    let head = text.len() - body.len();
    (text.bytes().take(head).filter(|b| *b == b'\n').count(), body)
}

/// Reads one `agent_config` element.
fn block(context: &ErrorContext<'_>, node: Node<'_, '_>, settings: &mut Settings) -> Read<()> {
    for attribute in node.attributes() {
        // Every agent runs on Linux, so this attribute selects all of them.
        if attribute.name() == "os" && attribute.value().eq_ignore_ascii_case("linux") {
            continue;
        }
        let why = "a group's configuration is for all its agents; make a group for each kind";
        return Err(context.refused(node, &attribute, why));
    }
    for child in node.children() {
        if child.is_text() && !child.text().unwrap_or_default().trim().is_empty() {
            return Err(context.of(child, "text in <agent_config>"));
        }
        if !child.is_element() {
            continue;
        }
        match child.tag_name().name() {
            "syscheck" => syscheck::read(context, child, settings)?,
            "wodle" => read_inventory(context, child, settings)?,
            _ => return Err(context.unknown(child)),
        }
    }
    Ok(())
}

/// Reads `<wodle name="syscollector">`: packages and their interval. Packages are off if
/// `<disabled>` or `<packages>` turns them off, in any order.
fn read_inventory(
    context: &ErrorContext<'_>,
    node: Node<'_, '_>,
    settings: &mut Settings,
) -> Read<()> {
    if node.attribute("name") != Some("syscollector") || node.attributes().len() != 1 {
        return Err(context.of(node, "only <wodle name=\"syscollector\"> is supported"));
    }
    let inventory = &mut settings.inventory;
    if let Some(text) =
        node.children().find(|c| c.is_text() && c.text().is_some_and(|t| !t.trim().is_empty()))
    {
        return Err(context.of(text, "text in <wodle>"));
    }
    let mut switches = Vec::new();
    for child in node.children().filter(Node::is_element) {
        if let Some(attribute) = child.attributes().next() {
            return Err(context.refused(child, &attribute, "leave it out"));
        }
        let text = context.text(child)?;
        match child.tag_name().name() {
            "disabled" => switches.push(!context.yes(child, text)?),
            "packages" => switches.push(context.yes(child, text)?),
            "interval" => {
                inventory.interval = Some(context.interval(child, seconds(context, child, text)?)?);
            }
            "scan_on_start" => context.require_fixed_value(child, true)?,
            "hardware" | "os" | "network" | "ports" | "processes" | "hotfixes" => {
                context.require_fixed_value(child, false)?;
            }
            _ => return Err(context.unknown(child)),
        }
    }
    if !switches.is_empty() {
        inventory.packages = Some(switches.iter().all(|on| *on));
    }
    Ok(())
}

/// Parses `90`, `90s`, `5m`, `1h`, `2d` or `1w` into seconds.
pub(super) fn seconds(context: &ErrorContext<'_>, node: Node<'_, '_>, text: &str) -> Read<u64> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 's')) => (text.get(..at), 1),
        Some((at, 'm')) => (text.get(..at), 60),
        Some((at, 'h')) => (text.get(..at), 3600),
        Some((at, 'd')) => (text.get(..at), 86_400),
        Some((at, 'w')) => (text.get(..at), 7 * 86_400),
        _ => (Some(text), 1),
    };
    let number = context.number(node, digits.unwrap_or_default())?;
    Ok(number.saturating_mul(unit))
}

/// Adds a watched path, or refuses one that is already watched.
pub(super) fn add(
    context: &ErrorContext<'_>,
    node: Node<'_, '_>,
    watches: &mut Vec<WatchSettings>,
    new: WatchSettings,
) -> Read<()> {
    if watches.iter().any(|known| known.path == new.path) {
        let text = format!("{} is watched twice: join the two", new.path);
        return Err(context.of(node, text));
    }
    watches.push(new);
    Ok(())
}
