//! `<syscheck>`: directories, ignore and frequency.

use roxmltree::{Attribute as XmlAttribute, Node};

use super::{ErrorContext, Read, add};
use crate::{HashAlgorithm, Settings, WatchSettings, WatchedAttribute, limits, watch};

/// The paths that `<ignore>` excludes.
enum Ignored {
    /// A path and everything below it.
    Path(String),
    /// A pattern for every watched path.
    Pattern(String),
}

/// Reads `<syscheck>`: watched directories with their options, ignored paths, and the scan
/// interval.
pub(super) fn read(
    context: &ErrorContext<'_>,
    node: Node<'_, '_>,
    settings: &mut Settings,
) -> Read<()> {
    let mut found: Vec<WatchSettings> = Vec::new();
    let mut ignored = Vec::new();
    for child in node.children() {
        if child.is_text() && !child.text().unwrap_or_default().trim().is_empty() {
            return Err(context.of(child, "text in <syscheck>"));
        }
        if !child.is_element() {
            continue;
        }
        match child.tag_name().name() {
            "directories" => directories(context, child, &mut found)?,
            "ignore" => ignore(context, child, &mut ignored)?,
            "frequency" => {
                let seconds = context.number(child, plain(context, child)?)?;
                settings.scan.interval = Some(context.interval(child, seconds)?);
            }
            "disabled" => {
                plain(context, child)?;
                context.require_fixed_value(child, false)?;
            }
            "scan_on_start" | "alert_new_files" | "skip_proc" | "skip_sys" => {
                plain(context, child)?;
                context.require_fixed_value(child, true)?;
            }
            // The agent never reports differences of content, so there is nothing to exclude.
            "nodiff" => drop(context.text(child)?),
            _ => return Err(context.unknown(child)),
        }
    }
    apply_ignored(context, ignored, &mut found)?;
    found.into_iter().try_for_each(|watch| add(context, node, &mut settings.watch, watch))
}

/// Returns the text of an element that has no attributes.
fn plain<'a>(context: &ErrorContext<'_>, node: Node<'a, '_>) -> Read<&'a str> {
    match node.attributes().next() {
        Some(attribute) => Err(context.refused(node, &attribute, "leave it out")),
        None => context.text(node),
    }
}

/// Reads `<directories>`: one watched path for each name, all with the same options.
fn directories(
    context: &ErrorContext<'_>,
    node: Node<'_, '_>,
    found: &mut Vec<WatchSettings>,
) -> Read<()> {
    let mut options = WatchSettings::default();
    // Checks start from all of them, or with check_all="no" from none.
    let mut checks = Checks { all: true, set: Vec::new() };
    for attribute in node.attributes() {
        option(context, node, &attribute, &mut options, &mut checks)?;
    }
    checks.apply(&mut options);
    for text in context.text(node)?.split(',') {
        let path = watch::normal(text.trim()).map_err(|problem| context.of(node, problem))?;
        if path.contains(['*', '?', '$', '%']) {
            let text = format!("{path}: wildcards and variables are not supported in a path");
            return Err(context.of(node, text));
        }
        add(context, node, found, WatchSettings { path, ..options.clone() })?;
    }
    Ok(())
}

/// The `check_*` attributes of one element.
struct Checks {
    all: bool,
    set: Vec<(&'static [WatchedAttribute], Option<HashAlgorithm>, bool)>,
}

impl Checks {
    /// Applies the checks to a watched path; without any, the agent's defaults apply.
    fn apply(self, options: &mut WatchSettings) {
        if self.all && self.set.is_empty() {
            return;
        }
        let mut attributes = if self.all { WatchedAttribute::ALL.to_vec() } else { Vec::new() };
        let mut hashes = if self.all { vec![HashAlgorithm::Sha256] } else { Vec::new() };
        for (names, hash, wanted) in self.set {
            attributes.retain(|known| !names.contains(known));
            hashes.retain(|known| Some(*known) != hash);
            if wanted {
                attributes.extend(names);
                hashes.extend(hash);
            }
        }
        if hashes.is_empty() {
            attributes.retain(|known| *known != WatchedAttribute::Hash);
        } else if !attributes.contains(&WatchedAttribute::Hash) {
            attributes.push(WatchedAttribute::Hash);
        }
        // The order is fixed, whatever order they were written in.
        options.attributes = Some(
            WatchedAttribute::ALL.into_iter().filter(|name| attributes.contains(name)).collect(),
        );
        options.hashes = Some(hashes);
    }
}

/// Reads one attribute of `<directories>`. The order matters: `check_all` resets the checks before
/// it.
fn option(
    context: &ErrorContext<'_>,
    node: Node<'_, '_>,
    attribute: &XmlAttribute<'_, '_>,
    options: &mut WatchSettings,
    checks: &mut Checks,
) -> Read<()> {
    use WatchedAttribute::{Gid, Hash, Inode, Mode, Mtime, Size, Uid};
    let value = attribute.value();
    if let Some(name) = attribute.name().strip_prefix("check_") {
        let wanted = context.yes(node, value)?;
        let check: (&'static [WatchedAttribute], Option<HashAlgorithm>) = match name {
            "all" => {
                (checks.all, checks.set) = (wanted, Vec::new());
                return Ok(());
            }
            "sum" => {
                checks.set.push((&[Hash], Some(HashAlgorithm::Md5), wanted));
                checks.set.push((&[Hash], Some(HashAlgorithm::Sha1), wanted));
                (&[Hash], Some(HashAlgorithm::Sha256))
            }
            "md5sum" => (&[], Some(HashAlgorithm::Md5)),
            "sha1sum" => (&[], Some(HashAlgorithm::Sha1)),
            "sha256sum" => (&[], Some(HashAlgorithm::Sha256)),
            "size" => (&[Size], None),
            "owner" => (&[Uid], None),
            "group" => (&[Gid], None),
            "perm" => (&[Mode], None),
            "mtime" => (&[Mtime], None),
            "inode" => (&[Inode], None),
            _ => return Err(context.refused(node, attribute, "leave it out")),
        };
        checks.set.push((check.0, check.1, wanted));
        return Ok(());
    }
    match attribute.name() {
        "recursion_level" => {
            // 4.x counts folders below the path; this agent counts levels of entries.
            let levels = context.number(node, value)?.saturating_add(1);
            let most = limits::DEPTH_MAX;
            let depth = u32::try_from(levels).ok().filter(|levels| *levels <= most);
            options.max_depth = Some(depth.ok_or_else(|| {
                context.of(node, format!("recursion_level {value}: at most {}", most - 1))
            })?);
        }
        "follow_symbolic_link" => options.follow_symlinks = Some(context.yes(node, value)?),
        "tags" => {
            let tags = value.split(',').map(|tag| tag.trim().to_owned());
            options.tags = Some(tags.filter(|tag| !tag.is_empty()).collect());
        }
        // "whodata" is realtime detection with attribution, which belong together here.
        "realtime" | "whodata" => {
            let wanted = context.yes(node, value)?;
            if wanted || (attribute.name() == "realtime" && options.realtime.is_none()) {
                options.realtime = Some(wanted);
            }
        }
        "report_changes" if !context.yes(node, value)? => {}
        _ => return Err(context.refused(node, attribute, "leave it out")),
    }
    Ok(())
}

/// Reads `<ignore>`: a list of paths or, with `type="sregex"`, patterns in a subset of that
/// language.
fn ignore(
    context: &ErrorContext<'_>,
    node: Node<'_, '_>,
    ignored: &mut Vec<(usize, Ignored)>,
) -> Read<()> {
    let at = node.range().start;
    let mut sregex = false;
    for attribute in node.attributes() {
        if (attribute.name(), attribute.value()) != ("type", "sregex") {
            return Err(context.refused(node, &attribute, "only type=\"sregex\" is"));
        }
        sregex = true;
    }
    let text = context.text(node)?;
    if !sregex {
        for path in text.split(',') {
            let path = watch::normal(path.trim()).map_err(|problem| context.of(node, problem))?;
            ignored.push((at, Ignored::Path(path)));
        }
        return Ok(());
    }
    for term in text.split('|') {
        let pattern = pattern(term).ok_or_else(|| {
            let text = format!(
                "{term:?} cannot be written as a gitignore pattern: use a part of a name, NAME$ for \
                 its end, or the path without type"
            );
            context.of(node, text)
        })?;
        watch::pattern(&pattern).map_err(|problem| context.of(node, problem))?;
        ignored.push((at, Ignored::Pattern(pattern)));
    }
    Ok(())
}

/// Converts a term of a 4.x simple expression to a gitignore pattern: `x$` is the end of a name,
/// `x` a part of one. All other characters are literal.
fn pattern(term: &str) -> Option<String> {
    let (text, end) = match term.strip_suffix('$') {
        Some(text) => (text, ""),
        None => (term, "*"),
    };
    if text.is_empty() || text.starts_with('^') || text.contains(['/', '\n']) {
        return None;
    }
    Some(format!("*{}{end}", escaped(text)))
}

/// Returns the text with the special characters of a gitignore pattern escaped.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!' | '#' | ' ') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Adds each ignored path or pattern to the watched paths that it concerns. One that concerns none
/// is an error.
fn apply_ignored(
    context: &ErrorContext<'_>,
    ignored: Vec<(usize, Ignored)>,
    found: &mut [WatchSettings],
) -> Read<()> {
    if ignored.len().saturating_mul(found.len().max(1)) > limits::PATTERNS_MAX {
        let line = ignored.first().map_or(0, |(at, _)| context.0.text_pos_at(*at).row as usize);
        let (n, paths) = (ignored.len(), found.len());
        let text =
            format!("{n} patterns for {paths} paths: at most {} together", limits::PATTERNS_MAX);
        return Err(crate::SettingsError::at(line, text));
    }
    for (at, one) in ignored {
        let mut used = false;
        for watch in found.iter_mut() {
            let pattern = match &one {
                Ignored::Pattern(pattern) => pattern.clone(),
                Ignored::Path(path) => match below(path, &watch.path) {
                    Some(rest) => format!("/{}", escaped(rest)),
                    None => continue,
                },
            };
            watch.ignore.get_or_insert_default().push(pattern);
            used = true;
        }
        if !used {
            let line = context.0.text_pos_at(at).row as usize;
            let text = match one {
                Ignored::Path(path) => format!("{path} lies below no <directories> of this block"),
                Ignored::Pattern(_) => "<ignore> without <directories> in this block".into(),
            };
            return Err(crate::SettingsError::at(line, text));
        }
    }
    Ok(())
}

/// Returns the rest of `path` after `top`, if `path` lies below `top`.
fn below<'a>(path: &'a str, top: &str) -> Option<&'a str> {
    if top == "/" {
        return path.strip_prefix('/').filter(|rest| !rest.is_empty());
    }
    path.strip_prefix(top)?.strip_prefix('/')
}
