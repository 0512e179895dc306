//! The imports between the files of a crate, read from the paths in their text: `use` lines and
//! paths that begin with `crate`, `self` or `super`. A name that a module only re-exports counts
//! as an import of the file that defines it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

/// A module by its path in the crate; the crate's root is empty.
type Module = Vec<String>;

/// The module in which a path starts, and the rest of the path.
type Definition = (Module, Vec<String>);

/// The files of a crate and what each imports.
pub(crate) struct Modules {
    texts: BTreeMap<Module, String>,
    /// Re-exported names: the re-exporting module and the name in it, with its definition.
    exports: BTreeMap<(Module, String), Definition>,
}

impl Modules {
    /// Reads the files under `src`, without tests.
    pub(crate) fn read(src: &Path) -> Self {
        let mut modules = Self { texts: BTreeMap::new(), exports: BTreeMap::new() };
        modules.walk(src, &[]);
        modules.exports =
            modules.texts.keys().flat_map(|module| modules.reexports(module)).collect();
        modules
    }

    /// Returns the names that a module re-exports.
    fn reexports(&self, module: &Module) -> BTreeMap<(Module, String), Definition> {
        let export = |path: String| {
            let (path, alias) = path.split_once(" as ").unwrap_or((path.as_str(), ""));
            let (start, rest) = self.absolute(module, path)?;
            let name = if alias.is_empty() { rest.last()?.clone() } else { alias.to_owned() };
            Some(((module.clone(), name), (start, rest)))
        };
        uses(&self.texts[module], true).into_iter().filter_map(export).collect()
    }

    fn walk(&mut self, folder: &Path, module: &[String]) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            if name.ends_with("tests") {
                continue;
            }
            let mut inner = module.to_vec();
            inner.push(name.clone());
            if path.is_dir() {
                self.walk(&path, &inner);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = code(&fs::read_to_string(&path).unwrap());
                self.texts.insert(module_of(&name, module, inner), text);
            }
        }
    }

    /// Returns the largest import cycle: files that import each other, directly or through others.
    pub(crate) fn largest_cycle(&self) -> Vec<String> {
        let imports: BTreeMap<&Module, BTreeSet<Module>> =
            self.texts.keys().map(|module| (module, self.imports(module))).collect();
        let reached: BTreeMap<&Module, BTreeSet<Module>> = imports
            .keys()
            .map(|&module| {
                let mut found = BTreeSet::new();
                let mut open = vec![module.clone()];
                while let Some(next) = open.pop() {
                    open.extend(
                        imports[&next].iter().filter(|m| found.insert((*m).clone())).cloned(),
                    );
                }
                (module, found)
            })
            .collect();
        reached
            .iter()
            .map(|(&module, found)| {
                let cycle = found.iter().filter(|other| reached[*other].contains(module));
                cycle.map(|module| module.join("::")).collect::<Vec<_>>()
            })
            .max_by_key(Vec::len)
            .unwrap_or_default()
    }

    fn imports(&self, module: &Module) -> BTreeSet<Module> {
        let text = &self.texts[module];
        let in_bodies = ["crate::", "self::", "super::"].iter().flat_map(|start| {
            text.match_indices(start).map(|(at, _)| {
                let path = &text[at..];
                let end = path.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
                path[..end.unwrap_or(path.len())].to_owned()
            })
        });
        // A list in braces belongs to a `use` line, whose paths `uses` returns one by one.
        let in_bodies = in_bodies.filter(|path| !path.ends_with("::"));
        uses(text, false)
            .into_iter()
            .chain(in_bodies)
            .filter_map(|path| {
                let path = path.split(" as ").next()?.to_owned();
                let (start, rest) = self.absolute(module, &path)?;
                Some(self.defining(start, &rest))
            })
            .filter(|found| found != module)
            .collect()
    }

    /// Returns the module in which a path starts and the rest of the path; `None` for other crates.
    fn absolute(&self, module: &Module, path: &str) -> Option<Definition> {
        let mut words: Vec<String> = path.split("::").map(|word| word.trim().to_owned()).collect();
        let mut start = match words[0].as_str() {
            "crate" => Vec::new(),
            "self" | "super" => module.clone(),
            first => {
                let mut child = module.clone();
                child.push(first.to_owned());
                self.texts.contains_key(&child).then(|| module.clone())?
            }
        };
        while let Some(first) = words.first() {
            match first.as_str() {
                "crate" | "self" => {}
                "super" => {
                    start.pop();
                }
                _ => break,
            }
            words.remove(0);
        }
        Some((start, words))
    }

    /// Returns the module whose file defines the item that a path names.
    fn defining(&self, mut module: Module, path: &[String]) -> Module {
        let mut rest: VecDeque<String> = path.iter().cloned().collect();
        // A chain of re-exports ends, since a circle of them would not compile.
        while let Some(first) = rest.pop_front() {
            let mut child = module.clone();
            child.push(first.clone());
            if self.texts.contains_key(&child) {
                module = child;
                continue;
            }
            let Some((start, path)) = self.exports.get(&(module.clone(), first)) else { break };
            module.clone_from(start);
            for word in path.iter().rev() {
                rest.push_front(word.clone());
            }
        }
        module
    }
}

/// Returns the module of a file with this name in the folder of `parent`.
fn module_of(name: &str, parent: &[String], child: Module) -> Module {
    let root = parent.is_empty() && ["lib", "main"].contains(&name);
    if root || name == "mod" { parent.to_vec() } else { child }
}

/// Returns the text without comments and without the tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect()
}

/// Returns the paths of the `use` lines, or of the re-exports only, with braces expanded.
fn uses(text: &str, exports: bool) -> Vec<String> {
    let mut found = Vec::new();
    for statement in text.split(';') {
        let Some(line) = statement.lines().find(|line| {
            let line = line.trim_start();
            line.starts_with("use ") || (line.starts_with("pub") && line.contains(" use "))
        }) else {
            continue;
        };
        if line.trim_start().starts_with("pub") != exports {
            continue;
        }
        let (_, path) = statement.split_once("use ").unwrap_or_default();
        expand(&path.split_whitespace().collect::<Vec<_>>().join(" "), &mut found);
    }
    found
}

/// Expands `a::{b, c::{d, e}}` to `a::b`, `a::c::d`, `a::c::e`.
fn expand(path: &str, found: &mut Vec<String>) {
    let Some((start, rest)) = path.split_once('{') else {
        if !path.trim().is_empty() {
            found.push(path.trim().to_owned());
        }
        return;
    };
    let mut depth = 0;
    let mut part = String::new();
    for c in rest.chars() {
        match c {
            '}' if depth == 0 => break,
            ',' if depth == 0 => {
                expand(&format!("{start}{}", part.trim()), found);
                part.clear();
                continue;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        part.push(c);
    }
    if !part.trim().is_empty() {
        expand(&format!("{start}{}", part.trim()), found);
    }
}
