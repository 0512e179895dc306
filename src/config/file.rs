//! Reads and replaces `server.toml` for the API.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};

use super::{CONFIG_BYTES_MAX, DEFAULT_SERVER, ServerConfig, parse};

/// The section for keys outside of any section.
const GLOBAL: &str = "global";

/// The file that a server was started with, and its values at that time.
pub(crate) struct ServerFile {
    path: PathBuf,
    running: Value,
    /// Held while the file is replaced.
    replacing: Mutex<()>,
}

impl ServerFile {
    /// Reads the file. Call this when the server starts.
    pub(crate) fn new(path: &Path) -> anyhow::Result<Self> {
        let path = fs::canonicalize(path).with_context(|| path.display().to_string())?;
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let running = values(&text)?;
        Ok(Self { path, running, replacing: Mutex::new(()) })
    }

    /// Writes a temporary file first, so that readers find either the old or the new file,
    /// complete.
    fn replace(&self, text: &str) -> anyhow::Result<()> {
        let _one = self.replacing.lock();
        let folder = self.path.parent().context("a file without a folder")?;
        let mut name = self.path.file_name().context("a file without a name")?.to_owned();
        name.push(".new");
        let beside = folder.join(name);
        let mode = fs::metadata(&self.path).map_or(0o640, |old| old.permissions().mode());
        let put = || -> anyhow::Result<()> {
            let mut file = File::create(&beside).context(beside.display().to_string())?;
            file.set_permissions(fs::Permissions::from_mode(mode & 0o7777))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, &self.path).context(self.path.display().to_string())?;
            Ok(File::open(folder)?.sync_all()?)
        };
        put().inspect_err(|_| _ = fs::remove_file(&beside))
    }
}

impl api::ConfigFile for ServerFile {
    fn read(&self) -> Result<String, String> {
        fs::read_to_string(&self.path).map_err(|e| format!("{}: {e}", self.path.display()))
    }

    fn values(&self, text: &str) -> Result<Value, String> {
        values(text).map_err(|e| error_text(&e))
    }

    fn waiting(&self, text: &str) -> Result<Vec<String>, String> {
        let (mut keys, wanted) = (Vec::new(), values(text).map_err(|e| error_text(&e))?);
        collect_differences(&self.running, &wanted, "", &mut keys);
        Ok(keys)
    }

    fn store(&self, text: &str) -> Result<(), String> {
        self.replace(text).map_err(|e| error_text(&e))
    }
}

fn error_text(error: &anyhow::Error) -> String {
    format!("{error:#}")
}

/// Returns the configuration in a text by section, with the defaults of missing keys.
fn values(text: &str) -> anyhow::Result<Value> {
    if text.len() as u64 > CONFIG_BYTES_MAX {
        bail!("larger than {CONFIG_BYTES_MAX} bytes");
    }
    parse::<ServerConfig>(text)?.validate()?;
    let mut whole: Value = serde_json::to_value(parse::<toml::Table>(DEFAULT_SERVER)?)?;
    put_over(&mut whole, serde_json::to_value(parse::<toml::Table>(text)?)?);
    let Value::Object(keys) = whole else { bail!("not a table") };
    let (mut sections, mut global) = (Map::new(), Map::new());
    for (key, value) in keys {
        let into = if value.is_object() { &mut sections } else { &mut global };
        into.insert(key, value);
    }
    sections.insert(GLOBAL.into(), Value::Object(global));
    Ok(Value::Object(sections))
}

/// Overwrites the keys of `under` with those of `over`, recursively.
fn put_over(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                put_over(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}

/// Appends the keys whose values differ between two tables. Keys of `global` have no prefix.
fn collect_differences(a: &Value, b: &Value, at: &str, keys: &mut Vec<String>) {
    let (Value::Object(left), Value::Object(right)) = (a, b) else {
        if a != b {
            keys.push(at.to_owned());
        }
        return;
    };
    let mut names: Vec<&String> = left.keys().chain(right.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let inner = match at {
            "" if name == GLOBAL => String::new(),
            "" => name.clone(),
            at => format!("{at}.{name}"),
        };
        let of = |table: &Map<String, Value>| table.get(name).cloned().unwrap_or(Value::Null);
        collect_differences(&of(left), &of(right), &inner, keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::ConfigFile as _;

    #[test]
    fn config_file_is_validated_compared_and_replaced() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("server.toml");
        fs::write(&path, "node_name = \"one\"\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let file = ServerFile::new(&path).unwrap();
        let now = file.values(&file.read().unwrap()).unwrap();
        assert_eq!(now["global"]["node_name"], "one");
        assert_eq!(now["api"]["request_timeout"], "10s", "a default");
        // Both changed keys take effect at the next start.
        let changed = "node_name = \"two\"\n[api]\nrequest_timeout = \"20s\"\n";
        for (text, keys) in [
            ("node_name = \"one\"", vec![]),
            ("# nothing", vec!["node_name"]),
            (changed, vec!["api.request_timeout", "node_name"]),
        ] {
            assert_eq!(file.waiting(text).unwrap(), keys, "{text}");
        }
        for bad in ["node_nam = 1", "[api]\nlisten = 5", "[auth]\nworkers = 0", "= ="] {
            assert!(file.waiting(bad).is_err(), "{bad}");
        }
        file.store(changed).unwrap();
        assert_eq!(file.read().unwrap(), changed);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
        drop(folder);
        assert!(file.store(changed).is_err());
    }

    #[test]
    fn symlinked_config_file_is_replaced_at_its_target() {
        let folder = tempfile::TempDir::new().unwrap();
        let (path, link) = (folder.path().join("server.toml"), folder.path().join("link"));
        fs::write(&path, "").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        ServerFile::new(&link).unwrap().store("# new").unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), path);
        assert_eq!(fs::read_to_string(&path).unwrap(), "# new");
    }

    #[test]
    fn concurrent_config_replacements_leave_one_complete_file() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("server.toml");
        fs::write(&path, "").unwrap();
        let file = ServerFile::new(&path).unwrap();
        let texts = ["# short".to_owned(), format!("# {}", "long ".repeat(20_000))];
        let put = |text: &str| {
            for _ in 0..100 {
                file.store(text).unwrap();
                let found = file.read().unwrap();
                assert!(texts.contains(&found), "{} bytes", found.len());
            }
        };
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(|| put(text));
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
