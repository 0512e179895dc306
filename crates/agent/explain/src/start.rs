//! The start of a program: options and an environment that let it do other work, or run other code,
//! than its path says. Pure, except for the owners of files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::limits;
use crate::program::{self, DPKG};

/// Environment variables that make a program, an interpreter or a shell load code. Those of
/// libraries are named by [`LOADER`].
const LOADS_CODE: &[&str] = &[
    "BASH_ENV",
    "GCONV_PATH",
    "GEM_HOME",
    "GEM_PATH",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONPLATLIBDIR",
    "PYTHONPYCACHEPREFIX",
    "PYTHONUSERBASE",
    "RUBYLIB",
    "RUBYOPT",
];
/// Beginnings of the variables of the dynamic loader, and of functions that a shell exports.
const LOADER: [&str; 2] = ["LD_", "BASH_FUNC_"];
/// Options of dpkg that choose its database and the system that it changes, with the path of the
/// database below them.
const CHOICES: &[(&str, &str)] =
    &[("admindir", ""), ("instdir", "var/lib/dpkg"), ("root", "var/lib/dpkg")];
/// Options of dpkg that run commands.
const HOOKS: [&str; 2] = ["pre-invoke", "post-invoke"];
/// The same choices as environment variables, with the values that change nothing.
const CHOICES_BY_VARIABLE: &[(&str, &str)] =
    &[("DPKG_ADMINDIR", "/var/lib/dpkg"), ("DPKG_ROOT", "/")];
/// Configuration of dpkg in the home folder, which may choose a database and has hooks.
const DPKG_CONFIGURATION: &str = ".dpkg.cfg";
/// Folder of Python's modules in the home folder, which it loads at its start.
const PYTHON_LIBRARIES: &str = ".local/lib";

/// Returns true if a run of dpkg with these arguments works on this database and on the system
/// around it. Paths are compared as text: a link to the database is another database.
pub(crate) fn is_of_database(arguments: &[String], database: &Path) -> bool {
    let mut words = arguments.iter().skip(1).map(String::as_str);
    while let Some(word) = words.next() {
        let Some((name, value)) = option(word) else { continue };
        let Some((_, below)) = CHOICES.iter().find(|(known, _)| *known == name) else { continue };
        let value = value.or_else(|| words.next());
        if value.is_none_or(|value| Path::new(value).join(below) != database) {
            return false;
        }
    }
    true
}

/// Returns true if dpkg was given commands that it runs before or after its work.
pub(crate) fn has_hooks(arguments: &[String]) -> bool {
    let names = arguments.iter().filter_map(|word| option(word));
    names.map(|(name, _)| name).any(|name| HOOKS.contains(&name))
}

/// Returns name and attached value of a long option.
fn option(word: &str) -> Option<(&str, Option<&str>)> {
    let option = word.strip_prefix("--")?;
    Some(option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value))))
}

/// Returns true if a program may run other code than that of the judged paths, see
/// `attribution::Identity`: its environment makes it load code, dpkg works on another database, or
/// a module of ansible belongs to a user who did not log in.
pub fn is_altered(
    judged: &[PathBuf],
    arguments: &[u8],
    environment: &[u8],
    login_user: Option<u32>,
) -> bool {
    // It is cut off if it is larger.
    if environment.last().is_some_and(|end| *end != 0) {
        return true;
    }
    let is_dpkg = judged.iter().any(|path| path == Path::new(DPKG));
    let variables = environment.split(|byte| *byte == 0).filter_map(split);
    let mut variables = variables.filter(|(_, value)| !value.is_empty());
    variables.any(|(name, value)| match name {
        "HOME" => has_code(Path::new(OsStr::from_bytes(value)), judged, is_dpkg),
        // The category of a warning is imported.
        "PYTHONWARNINGS" => value.contains(&b'.'),
        _ => {
            let mut choices = CHOICES_BY_VARIABLE.iter().filter(|_| is_dpkg);
            LOADS_CODE.contains(&name)
                || LOADER.iter().any(|start| name.starts_with(start))
                || choices.any(|(known, usual)| *known == name && usual.as_bytes() != value)
        }
    }) || (is_dpkg && !has_known_options(arguments))
        || judged.iter().any(|path| {
            program::is_ansible_module(path) && !is_module_of(path, login_user.unwrap_or_default())
        })
}

/// Splits `NAME=VALUE`. A name that is no text is none of those that are looked for.
fn split(variable: &[u8]) -> Option<(&str, &[u8])> {
    let at = variable.iter().position(|byte| *byte == b'=')?;
    let (name, value) = variable.split_at_checked(at)?;
    Some((std::str::from_utf8(name).ok()?, value.get(1..)?))
}

/// Returns true if the program loads what lies in a home folder, and that is not root's alone.
fn has_code(home: &Path, judged: &[PathBuf], is_dpkg: bool) -> bool {
    let is_python = judged.iter().any(|path| program::is_python(path));
    is_dpkg && home.join(DPKG_CONFIGURATION).symlink_metadata().is_ok()
        || is_python && !program::is_of_root(&home.join(PYTHON_LIBRARIES))
}

/// Returns true if the options of dpkg end within the arguments that explain a change, so that none
/// hides behind them. Two words that are no options follow each other only after the last option.
fn has_known_options(arguments: &[u8]) -> bool {
    let is_complete = arguments.last() == Some(&0);
    let words: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
    if is_complete && words.len() <= limits::DPKG_WORDS_MAX {
        return true;
    }
    let known = words.get(1..limits::DPKG_WORDS_MAX).or(words.get(1..)).unwrap_or_default();
    known.windows(2).any(|pair| pair.iter().all(|word| !word.starts_with(b"-")))
}

/// Returns true if a module that ansible copied belongs to root or to this user, as its folder does,
/// and others cannot write to either.
fn is_module_of(module: &Path, login_user: u32) -> bool {
    let is_safe = |path: &Path| {
        let meta = fs::metadata(path);
        meta.is_ok_and(|m| [0, login_user].contains(&m.uid()) && m.mode() & 0o022 == 0)
    };
    is_safe(module) && module.parent().is_some_and(is_safe)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn other_databases_are_found_in_each_form() {
        let is_own = |line: &str| is_of_database(&words(line), Path::new("/s/var/lib/dpkg"));
        for line in [
            "dpkg -i a.deb",
            "dpkg --root=/s -i a.deb",
            "dpkg --root /s/ --admindir /s/var/lib/dpkg/ -i a.deb",
            "dpkg --instdir=/s --log=/x --status-fd 3 -i a.deb",
        ] {
            assert!(is_own(line), "{line}");
        }
        for line in [
            "dpkg --admindir=/o -i a.deb",
            "dpkg -i --admindir /o a.deb",
            "dpkg --root=/s --admindir=/o -i a.deb",
            "dpkg --instdir=/s/var/lib -i a.deb",
            "dpkg --root=/s/../o -i a.deb",
            "dpkg --root=s -i a.deb",
            "dpkg -i --root",
        ] {
            assert!(!is_own(line), "{line}");
        }
        assert!(has_hooks(&words("dpkg --pre-invoke=x -i a")));
        assert!(has_hooks(&words("dpkg --post-invoke x -i a")));
        assert!(!has_hooks(&words("dpkg --pre-invoked -i a")));
    }

    #[test]
    fn environment_that_loads_code_alters_a_program() {
        let altered = |path: &str, environment: &str| {
            let environment = environment.replace(' ', "\0") + "\0";
            is_altered(&[path.into()], b"x\0", environment.as_bytes(), None)
        };
        let usual = "PATH=/usr/bin HOME=/none LD_PRELOAD= PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore";
        for path in [DPKG, "/usr/bin/python3.11", "/usr/bin/dash"] {
            assert!(!altered(path, usual), "{path}");
            for variable in ["LD_AUDIT=x", "BASH_ENV=x", "BASH_FUNC_a%%=()", "PYTHONPATH=x"] {
                assert!(altered(path, &format!("{usual} {variable}")), "{path} {variable}");
            }
        }
        assert!(altered(DPKG, "DPKG_ADMINDIR=/o") && altered(DPKG, "DPKG_ROOT=/o"));
        assert!(!altered(DPKG, "DPKG_ADMINDIR=/var/lib/dpkg DPKG_ROOT="));
        assert!(!altered("/usr/bin/dash", "DPKG_ADMINDIR=/o DPKG_ROOT=/o"), "dpkg sets them");
        assert!(is_altered(&[DPKG.into()], b"x\0", b"A=b\0LD_PRE", None), "cut off");
    }

    #[test]
    fn home_with_code_alters_a_program() {
        let home = tempfile::tempdir().unwrap();
        let environment = format!("HOME={}\0", home.path().display());
        let altered = |path: &str| is_altered(&[path.into()], b"x\0", environment.as_bytes(), None);
        assert!(!altered(DPKG));
        fs::write(home.path().join(".dpkg.cfg"), "admindir=/o\n").unwrap();
        assert!(altered(DPKG) && !altered("/usr/bin/dash"));
        // The folder above it is one that all may write to.
        assert!(altered("/usr/bin/python3.11"));
    }

    #[test]
    fn options_of_dpkg_cannot_be_hidden() {
        let known = |line: &str| has_known_options(line.replace(' ', "\0").as_bytes());
        assert!(known("dpkg --status-fd 3 --unpack a.deb "));
        assert!(!known("dpkg --log=aaaa"), "cut off");
        assert!(known("dpkg --unpack a.deb b.deb c.de"), "cut off after the options");
        let many = "--force-all ".repeat(limits::DPKG_WORDS_MAX);
        assert!(!known(&format!("dpkg {many}--admindir=/o -i a b ")));
        assert!(known(&format!("dpkg -i {}", "a.deb ".repeat(limits::DPKG_WORDS_MAX))));
    }

    #[test]
    fn module_of_ansible_belongs_to_root_or_the_login() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join(".ansible/tmp/ansible-tmp-1-2");
        fs::create_dir_all(&folder).unwrap();
        let module = folder.join("AnsiballZ_copy.py");
        fs::write(&module, "").unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let altered = |login| is_altered(std::slice::from_ref(&module), b"x\0", b"", login);
        let own = fs::metadata(&module).unwrap().uid();
        set(&module, 0o600);
        set(&folder, 0o700);
        assert!(!altered(Some(own)));
        set(&folder, 0o777);
        assert!(altered(Some(own)), "its folder is one that all may write to");
        set(&folder, 0o700);
        if own == 0 {
            std::os::unix::fs::chown(&module, Some(1), None).unwrap();
            std::os::unix::fs::chown(&folder, Some(1), None).unwrap();
            assert!(!altered(Some(1)) && altered(Some(2)) && altered(None));
        }
        assert!(is_altered(&["/none/.ansible/tmp/ansible-tmp-1/a".into()], b"x\0", b"", None));
    }
}
