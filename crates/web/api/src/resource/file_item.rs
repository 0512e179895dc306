//! A file of an agent in the format of lists.

use std::collections::BTreeMap;

use model::{FileBody, FileDocument};
use serde::Serialize;
use serde_json::Value;
use state::StoredDocument;
use utoipa::ToSchema;

use super::common::seconds_z;

/// A file of an agent.
#[derive(Serialize, ToSchema)]
pub(crate) struct FileItem {
    /// Whole path, with control characters escaped.
    file: String,
    /// `file`, `dir`, `symlink`, `fifo`, `socket`, `block_device` or `char_device`.
    #[serde(rename = "type")]
    kind: String,
    /// Bytes; absent for directories.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// As `ls` writes it, without the kind.
    perm: String,
    uid: String,
    gid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    uname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gname: Option<String>,
    inode: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<String>,
    /// Time at which the agent observed this state.
    date: String,
    /// Number of times that the file changed since the server has had it, or since its database got version 11.
    changes: u64,
    md5: String,
    sha1: String,
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    blake3: Option<String>,
    /// Four octal digits.
    mode: String,
    device: String,
    /// With nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ctime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    links: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_path: Option<String>,
    /// The exact path in hex, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    xattrs: BTreeMap<String, String>,
    /// Flags that are set, such as `immutable` and `append`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flags: Vec<String>,
    /// Why the content could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<FileDocument> for FileItem {
    fn from(document: FileDocument) -> Self {
        let file = document.file;
        let hash = file.hash.unwrap_or_default();
        Self {
            file: file.path,
            kind: file.kind,
            size: file.size,
            perm: permissions(&file.mode),
            uid: file.uid,
            gid: file.gid,
            uname: file.owner,
            gname: file.group,
            inode: file.inode.parse().unwrap_or(0),
            mtime: file.mtime.as_deref().map(seconds_z),
            date: seconds_z(&document.state.modified_at),
            changes: 0,
            md5: hash.md5.unwrap_or_default(),
            sha1: hash.sha1.unwrap_or_default(),
            sha256: hash.sha256.unwrap_or_default(),
            blake3: hash.blake3,
            mode: file.mode,
            device: file.device,
            ctime: file.ctime,
            links: file.links,
            target_path: file.target_path,
            path_hex: file.path_hex,
            xattrs: file.xattrs,
            flags: file.flags,
            error: file.error,
        }
    }
}

/// Formats a mode as `ls` does: `rwsr-xr-x` for `4755`. Empty if the mode is unknown.
fn permissions(mode: &str) -> String {
    let Ok(bits) = u32::from_str_radix(mode, 8) else { return String::new() };
    let mut text = String::with_capacity(9);
    // The special bit of each triple, with its letter.
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let triple = bits >> shift;
        text.push(if triple & 4 != 0 { 'r' } else { '-' });
        text.push(if triple & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & special != 0, triple & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Returns a stored document as a list item. A sender other than our agent may store any JSON
/// object: fields of another type or shape are left out, and the id replaces a missing path.
pub(super) fn file_item(document: &StoredDocument) -> FileItem {
    let body = serde_json::from_slice(&document.body);
    let mut item = FileItem::from(body.unwrap_or_else(|_| readable_fields(&document.body)));
    item.changes = document.changes;
    if item.file.is_empty() {
        item.file.clone_from(&document.id);
    }
    item
}

/// Returns the fields of a document that have the expected types. Numbers are accepted as text.
fn readable_fields(body: &[u8]) -> FileDocument {
    let mut document = FileDocument::default();
    let found: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(Value::Object(fields)) = found.get("file") {
        for (name, value) in fields {
            let text = value.is_number().then(|| Value::String(value.to_string()));
            for value in [Some(value.clone()), text].into_iter().flatten() {
                replace_field(&mut document.file, name, value);
            }
        }
    }
    if let Some(Value::String(at)) = found.pointer("/state/modified_at") {
        document.state.modified_at.clone_from(at);
    }
    document
}

/// Replaces a field if the value has its type.
fn replace_field(file: &mut FileBody, name: &str, value: Value) {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(&*file) else { return };
    fields.insert(name.to_owned(), value);
    if let Ok(replaced) = serde_json::from_value(Value::Object(fields)) {
        *file = replaced;
    }
}

#[cfg(test)]
mod tests {
    use super::permissions;

    #[test]
    fn permissions_are_formatted_like_ls() {
        let known = "0644 rw-r--r-- 4755 rwsr-xr-x 2745 rwxr-Sr-x 1777 rwxrwxrwt 1776 rwxrwxrwT \
            0000 ---------";
        for pair in known.split_whitespace().collect::<Vec<_>>().chunks(2) {
            assert_eq!(permissions(pair[0]), pair[1], "{pair:?}");
        }
        assert_eq!(permissions(""), "");
    }
}
