//! Names of items: raw bytes, kept exactly, with safe forms for display.

use std::borrow::Cow;
use std::fmt::Write as _;

use sha1::{Digest, Sha1};

/// An item's key inside its dataset. For files: the directory's path and the entry's name, both as
/// the kernel gave them; for other datasets the directory is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ItemKey {
    /// Absolute path of the directory, without a trailing slash except for `/` itself.
    pub directory: Vec<u8>,
    /// The entry's name, or the whole key of an item that is not a file. Never contains `/` for
    /// files.
    pub name: Vec<u8>,
}

impl ItemKey {
    /// Returns the key of `name` in `directory`.
    pub fn new(directory: impl Into<Vec<u8>>, name: impl Into<Vec<u8>>) -> Self {
        Self { directory: directory.into(), name: name.into() }
    }

    /// Splits an absolute path at its last slash. `/` itself is the empty name in `/`.
    pub fn of_path(path: &[u8]) -> Self {
        match path.iter().rposition(|b| *b == b'/') {
            Some(0) => Self::new(&b"/"[..], path.get(1..).unwrap_or_default()),
            Some(at) => Self::new(
                path.get(..at).unwrap_or_default(),
                path.get(at + 1..).unwrap_or_default(),
            ),
            None => Self::new(Vec::new(), path),
        }
    }

    /// Borrows the key.
    pub fn borrowed(&self) -> KeyRef<'_> {
        KeyRef { directory: &self.directory, name: &self.name }
    }

    /// Returns the whole path; for an item that is not a file, its name alone.
    pub fn path(&self) -> Vec<u8> {
        join(&self.directory, &self.name)
    }

    /// Returns the document's id: SHA-1 of the raw path as lower-case hex
    /// (`docs/reference/wire.md`, "Checksums").
    pub fn document_id(&self) -> String {
        hex::encode(Sha1::digest(self.path()))
    }
}

/// A borrowed [`ItemKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyRef<'a> {
    /// [`ItemKey::directory`].
    pub directory: &'a [u8],
    /// [`ItemKey::name`].
    pub name: &'a [u8],
}

impl KeyRef<'_> {
    /// Copies the key.
    pub fn to_owned(self) -> ItemKey {
        ItemKey::new(self.directory, self.name)
    }

    /// As [`ItemKey::path`].
    pub fn path(self) -> Vec<u8> {
        join(self.directory, self.name)
    }

    /// Appends the whole path.
    pub fn join(self, path: &mut Vec<u8>) {
        let Self { directory, name } = self;
        path.extend_from_slice(directory);
        if !directory.is_empty() && !directory.ends_with(b"/") && !name.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
    }
}

/// Returns `directory`/`name` as bytes.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + 1 + name.len());
    KeyRef { directory, name }.join(&mut path);
    path
}

/// Returns bytes as text: valid UTF-8 unchanged, otherwise with each invalid byte as `\xNN`. The
/// second form is for people: a document with it also carries the exact bytes in hex.
pub fn show(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    Cow::Owned(text)
}

/// Returns true for a character that a terminal obeys, or that hides or reorders text: control
/// characters (C0, DEL, C1), bidirectional marks, overrides and isolates, line and paragraph
/// separators, and tag characters. Source: Unicode 16, chapters 9.2 and 23.
pub fn is_unsafe_on_terminal(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// As [`show`], with control characters escaped too: for terminals and logs, where a hostile file
/// name could otherwise move the cursor or forge a line.
pub fn show_terminal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for c in show(bytes).chars() {
        if is_unsafe_on_terminal(c) {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
    text
}

/// Returns true if `path` is `top` or below it.
pub fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
    let rest = path.strip_prefix(top);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || top.ends_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_splits_and_joins_unchanged() {
        for path in [&b"/etc/passwd"[..], b"/a", b"/", b"key"] {
            assert_eq!(ItemKey::of_path(path).path(), path);
        }
        assert_eq!(ItemKey::of_path(b"/etc/passwd"), ItemKey::new(&b"/etc"[..], &b"passwd"[..]));
        assert_eq!(ItemKey::of_path(b"/a"), ItemKey::new(&b"/"[..], &b"a"[..]));
    }

    #[test]
    fn document_id_is_sha1_of_path() {
        let id = ItemKey::of_path(b"/etc/passwd").document_id();
        assert_eq!(id, "b5cc3f676d00dd320d85ef41a5209fa0a99891ea");
    }

    #[test]
    fn invalid_and_control_bytes_are_escaped_for_display() {
        assert_eq!(show("grün".as_bytes()), "grün");
        assert_eq!(show(b"a\xffb\xc3"), "a\\xffb\\xc3");
        assert_eq!(show_terminal(b"a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        let hidden = "\u{7f}\u{9b}\u{200f}\u{202e}\u{2028}\u{2029}\u{e0041}";
        assert_eq!(
            show_terminal(hidden.as_bytes()),
            r"\u{7f}\u{9b}\u{200f}\u{202e}\u{2028}\u{2029}\u{e0041}"
        );
    }
}
