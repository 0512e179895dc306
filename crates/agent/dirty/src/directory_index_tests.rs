use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A step of the model test. Numbers select a living directory.
#[derive(Debug, Clone)]
enum Step {
    Create {
        parent: usize,
        name: usize,
    },
    Remove {
        directory: usize,
    },
    Rename {
        directory: usize,
        parent: usize,
        name: usize,
    },
    /// An entry below a directory becomes pending.
    Hold {
        directory: usize,
    },
    Release {
        entry: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    prop_oneof![
        4 => (any::<usize>(), name.clone()).prop_map(|(parent, name)| Step::Create { parent, name }),
        2 => any::<usize>().prop_map(|directory| Step::Remove { directory }),
        3 => (any::<usize>(), any::<usize>(), name)
            .prop_map(|(directory, parent, name)| Step::Rename { directory, parent, name }),
        1 => any::<usize>().prop_map(|directory| Step::Hold { directory }),
        1 => any::<usize>().prop_map(|entry| Step::Release { entry }),
    ]
}

/// The reference: the path of each living directory by its handle.
#[derive(Debug, Default)]
struct Model {
    paths: BTreeMap<u32, String>,
    next: u32,
}

impl Model {
    fn pick(&self, number: usize) -> Option<(u32, String)> {
        let (handle, path) = self.paths.iter().nth(number % self.paths.len().max(1))?;
        Some((*handle, path.clone()))
    }

    fn at(&self, path: &str) -> Option<u32> {
        self.paths.iter().find(|(_, known)| *known == path).map(|(handle, _)| *handle)
    }

    fn is_empty(&self, path: &str) -> bool {
        !self.paths.values().any(|known| known.starts_with(&format!("{path}/")))
    }
}

fn handle(number: u32) -> [u8; 4] {
    number.to_ne_bytes()
}

fn node(index: &DirectoryIndex, number: u32) -> NodeId {
    let places = index.places(&handle(number));
    *places.iter().find(|node| index.is_alive(**node)).expect("a living directory has a node")
}

/// A pending entry: the node that it holds, and the path as long as the directory is alive.
type Pending = (NodeId, u32);

fn run(index: &mut DirectoryIndex, model: &mut Model, pending: &mut Vec<Pending>, step: &Step) {
    match *step {
        Step::Create { parent, name } => {
            let parent = model.pick(parent);
            let above = parent.as_ref().map_or(DirectoryIndex::top(), |(n, _)| node(index, *n));
            let path = format!("{}/{}", parent.map_or(String::new(), |(_, p)| p), NAMES[name]);
            if model.at(&path).is_none() {
                model.next += 1;
                index.add(above, NAMES[name].as_bytes(), Some(&handle(model.next))).unwrap();
                model.paths.insert(model.next, path);
            }
        }
        Step::Remove { directory } => {
            let Some((number, path)) = model.pick(directory) else { return };
            if model.is_empty(&path) {
                index.remove(node(index, number));
                model.paths.remove(&number);
            }
        }
        Step::Rename { directory, parent, name } => {
            let (Some((number, from)), Some((above, parent))) =
                (model.pick(directory), model.pick(parent))
            else {
                return;
            };
            let to = format!("{parent}/{}", NAMES[name]);
            let target = model.at(&to);
            let is_inside = to.starts_with(&format!("{from}/"));
            if is_inside || to == from || !model.is_empty(&to) || from.starts_with(&to) {
                return;
            }
            let moved =
                index.rename(node(index, number), node(index, above), NAMES[name].as_bytes());
            assert_eq!(
                moved,
                if target.is_some() { MoveOutcome::Replaced } else { MoveOutcome::Done }
            );
            target.map(|target| model.paths.remove(&target));
            for path in model.paths.values_mut() {
                if *path == from || path.starts_with(&format!("{from}/")) {
                    *path = format!("{to}{}", &path[from.len()..]);
                }
            }
        }
        Step::Hold { directory } => {
            let Some((number, _)) = model.pick(directory) else { return };
            let node = node(index, number);
            index.hold(node);
            pending.push((node, number));
        }
        Step::Release { entry } => {
            if !pending.is_empty() {
                let (node, _) = pending.swap_remove(entry % pending.len());
                index.release(node);
            }
        }
    }
}

fn assert_equal(index: &DirectoryIndex, model: &Model, pending: &[Pending]) {
    for (number, path) in &model.paths {
        let node = node(index, *number);
        assert_eq!(String::from_utf8(index.path(node)).unwrap(), *path);
        assert_eq!(index.find(path.as_bytes()), (node, &b""[..]));
    }
    for (node, number) in pending {
        // The handle proves that the slot was not given to another directory.
        assert_eq!(index.handle(*node), Some(&handle(*number)[..]));
        if let Some(path) = model.paths.get(number) {
            assert_eq!(index.path(*node), path.as_bytes());
        }
    }
    if pending.is_empty() {
        assert_eq!(index.len(), model.paths.len() + 1, "removed directories are freed");
    }
}

proptest! {
    #[test]
    fn index_equals_a_map_of_paths(steps in prop::collection::vec(step(), 1..200)) {
        let mut index = DirectoryIndex::new(1_000);
        let (mut model, mut pending) = (Model::default(), Vec::new());
        for step in &steps {
            run(&mut index, &mut model, &mut pending, step);
            assert_equal(&index, &model, &pending);
        }
        for (node, _) in std::mem::take(&mut pending) {
            index.release(node);
        }
        assert_equal(&index, &model, &pending);
    }
}

fn add(index: &mut DirectoryIndex, parent: NodeId, name: &str, number: u32) -> NodeId {
    index.add(parent, name.as_bytes(), Some(&handle(number))).unwrap()
}

#[test]
fn removed_directory_keeps_its_path_while_an_entry_waits() {
    let mut index = DirectoryIndex::new(100);
    let a = add(&mut index, DirectoryIndex::top(), "a", 1);
    let b = add(&mut index, a, "b", 2);
    index.hold(b);
    index.remove(b);
    index.remove(a);
    let again = add(&mut index, DirectoryIndex::top(), "a", 3);
    assert_eq!(index.path(b), b"/a/b");
    assert_eq!(index.find(b"/a"), (again, &b""[..]));
    index.release(b);
    assert_eq!(index.len(), 2);
    assert_eq!(index.places(&handle(2)), []);
}

#[test]
fn exchanged_directories_are_revived() {
    let mut index = DirectoryIndex::new(100);
    let top = DirectoryIndex::top();
    let (a, b) = (add(&mut index, top, "a", 1), add(&mut index, top, "b", 2));
    let (below_a, below_b) = (add(&mut index, a, "x", 3), add(&mut index, b, "y", 4));
    assert_eq!(index.rename(a, top, b"b"), MoveOutcome::Replaced);
    assert_eq!(index.rename(b, top, b"a"), MoveOutcome::Done);
    assert_eq!(index.path(below_a), b"/b/x");
    assert_eq!(index.path(below_b), b"/a/y");
    assert!(index.is_alive(a) && index.is_alive(b));
}

#[test]
fn directory_cannot_move_below_itself() {
    let mut index = DirectoryIndex::new(100);
    let a = add(&mut index, DirectoryIndex::top(), "a", 1);
    let b = add(&mut index, a, "b", 2);
    assert_eq!(index.rename(a, b, b"c"), MoveOutcome::Cycle);
    assert_eq!(index.path(b), b"/a/b");
}

#[test]
fn directory_in_two_places_has_two_nodes() {
    let mut index = DirectoryIndex::new(100);
    let top = DirectoryIndex::top();
    let (a, b) = (add(&mut index, top, "a", 1), add(&mut index, top, "b", 1));
    let c = add(&mut index, top, "c", 1);
    assert_eq!(index.places(&handle(1)).len(), 3);
    index.remove(b);
    assert_eq!(index.places(&handle(1)), [c, a]);
    index.set_handle(c, &handle(2));
    assert_eq!(index.places(&handle(1)), [a]);
    assert_eq!(index.places(&handle(2)), [c]);
}

#[test]
fn limit_of_directories_holds() {
    let mut index = DirectoryIndex::new(3);
    let top = DirectoryIndex::top();
    let a = add(&mut index, top, "a", 1);
    add(&mut index, top, "b", 2);
    assert_eq!(index.add(top, b"c", None), Err(DirectoryLimitReached));
    assert_eq!(index.add(top, b"a", None), Ok(a), "a known directory needs no space");
    index.remove(a);
    assert!(index.add(top, b"c", None).is_ok());
    assert!(!index.is_alive(a), "a freed number stays invalid");
}

#[test]
fn role_is_inherited_and_moves_with_the_directory() {
    let mut index = DirectoryIndex::new(100);
    let root = add(&mut index, DirectoryIndex::top(), "root", 1);
    let own = add(&mut index, root, "own", 2);
    let below = add(&mut index, own, "x", 3);
    assert_eq!(index.role(below), Role::Outside);
    index.set_role(root, Some(Role::Watched));
    assert_eq!(index.role(below), Role::Watched);
    index.set_role(own, Some(Role::Excluded));
    assert_eq!(index.role(below), Role::Excluded);
    index.rename(below, root, b"y");
    assert_eq!(index.role(below), Role::Watched);
}
