//! Stanzas of dpkg's status database: the versions of packages, and the digests of their
//! configuration files as delivered.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use crate::limits;

/// MD5 of a file's content.
pub(crate) type Md5 = [u8; 16];

/// One package in the database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Stanza {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) conffiles: Vec<(Vec<u8>, Md5)>,
}

/// Reads the stanzas of a file and passes those of packages with a wanted name on. What cannot be
/// read is left out: nothing is explained by it then.
pub(crate) fn read(path: &Path, is_wanted: &dyn Fn(&str) -> bool, each: &mut dyn FnMut(Stanza)) {
    let Ok(file) = File::open(path) else { return };
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return;
    }
    if let Err(e) = parse(BufReader::new(file.take(limits::STATUS_BYTES_MAX)), is_wanted, each) {
        tracing::debug!("{}: {e}", path.display());
    }
}

fn parse(
    mut input: impl BufRead,
    is_wanted: &dyn Fn(&str) -> bool,
    each: &mut dyn FnMut(Stanza),
) -> io::Result<()> {
    let mut line = Vec::new();
    let mut stanza = Stanza::default();
    let mut in_conffiles = false;
    loop {
        line.clear();
        let end = input.read_until(b'\n', &mut line)? == 0;
        let text = line.trim_ascii_end();
        if text.is_empty() {
            let done = std::mem::take(&mut stanza);
            if is_wanted(&done.name) {
                each(done);
            }
            if end {
                return Ok(());
            }
        } else if text.first() == Some(&b' ') {
            if in_conffiles && is_wanted(&stanza.name) {
                stanza.conffiles.extend(conffile(text));
            }
        } else if let Some((field, value)) = split(text, b':') {
            in_conffiles = field == b"Conffiles";
            let value = || String::from_utf8_lossy(value.trim_ascii()).into_owned();
            match field {
                b"Package" => stanza.name = value(),
                b"Version" => stanza.version = value(),
                _ => {}
            }
        }
    }
}

/// Parses ` PATH MD5` and ` PATH MD5 obsolete`.
fn conffile(line: &[u8]) -> Option<(Vec<u8>, Md5)> {
    let text = line.strip_suffix(b" obsolete").unwrap_or(line);
    let at = text.iter().rposition(|b| *b == b' ')?;
    let (path, digest) = text.split_at_checked(at)?;
    Some((path.trim_ascii().to_vec(), md5_of_hex(digest.trim_ascii())?))
}

/// Parses a line `MD5  PATH` of a list of digests. The path begins with a slash in the result.
pub(crate) fn md5sum(line: &[u8]) -> Option<(Vec<u8>, Md5)> {
    let (digest, path) = split(line, b' ')?;
    let path = path.trim_ascii_start();
    let path = path.strip_prefix(b"./").unwrap_or(path);
    (!path.is_empty()).then_some(())?;
    Some(([b"/", path].concat(), md5_of_hex(digest)?))
}

pub(crate) fn md5_of_hex(hex: &[u8]) -> Option<Md5> {
    let text = std::str::from_utf8(hex).ok().filter(|text| text.len() == 32)?;
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let position = text.iter().position(|b| *b == at)?;
    Some((text.get(..position)?, text.get(position + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Package: a\nStatus: install ok installed\nVersion: 1.0\n\
        Conffiles:\n /etc/a b b026324c6904b2a9cb4b88d6d61c81d1\n \
        /etc/old 26ab0db90d72e28ad0ba1e22ee510510 obsolete\n /etc/new newconffile\n\
        Architecture: amd64\nDescription: text\n /etc/x b026324c6904b2a9cb4b88d6d61c81d1\n\n\
        Package: b\nVersion: 2\nConffiles:\n /etc/b b026324c6904b2a9cb4b88d6d61c81d1\n\n";

    #[test]
    fn conffiles_of_wanted_packages_are_read() {
        let mut found = Vec::new();
        parse(STATUS.as_bytes(), &|name| name == "a", &mut |stanza| found.push(stanza)).unwrap();
        assert_eq!(found.len(), 1);
        let paths: Vec<_> = found[0].conffiles.iter().map(|(path, _)| path.as_slice()).collect();
        assert_eq!(paths, [&b"/etc/a b"[..], b"/etc/old"]);
        assert_eq!(found[0].version, "1.0");
    }

    #[test]
    fn digest_lines_name_absolute_paths() {
        let (path, md5) = md5sum(b"b026324c6904b2a9cb4b88d6d61c81d1  usr/bin/a b").unwrap();
        assert_eq!((path.as_slice(), md5[0], md5[15]), (&b"/usr/bin/a b"[..], 0xb0, 0xd1));
        assert_eq!(md5sum(b"b026  usr/bin/a"), None);
        assert_eq!(md5sum(b""), None);
    }
}
