use proptest::prelude::*;

use super::*;

fn directory() -> Directory {
    Directory::new(Arc::from(&b"/d"[..]))
}

fn name(n: u64) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

fn covers(stretches: &[NameRange], name: &[u8]) -> bool {
    stretches.iter().any(|s| *s.from <= *name && name < s.to())
}

#[test]
fn small_directory_has_at_most_one_newer_range() {
    let mut small = directory();
    (0..BLOCK_ROWS).for_each(|n| small.load(&name(n), n));
    assert_eq!(small.newer(BLOCK_ROWS - 1, b""), []);
    let all = small.newer(5, b"000007");
    assert_eq!(all.len(), 1);
    assert!(covers(&all, b"000007") && covers(&all, &[0xff; 300]) && !covers(&all, b"000006"));
}

#[test]
fn newer_ranges_of_a_large_directory_cover_only_changed_blocks() {
    let mut large = directory();
    (0..20 * BLOCK_ROWS).for_each(|n| large.load(&name(n), 1));
    for n in [0, 5 * BLOCK_ROWS, 6 * BLOCK_ROWS + 1, 20 * BLOCK_ROWS - 1] {
        let block = large.block_from(0, &name(n));
        assert_eq!(block as u64, n / BLOCK_ROWS);
        large.change(block, 9, 0);
    }
    let found = large.newer(1, b"");
    // The fifth and the sixth block are adjacent.
    assert_eq!(found.len(), 3);
    let covered = (0..20 * BLOCK_ROWS).filter(|n| covers(&found, &name(*n))).count() as u64;
    assert_eq!(covered, 4 * BLOCK_ROWS);
    assert_eq!(large.newer(1, &name(5 * BLOCK_ROWS + 3)).len(), 2);
    assert_eq!(large.newer(9, b""), []);
}

#[test]
fn dropping_an_empty_block_lowers_the_newest_mark() {
    let mut large = directory();
    (0..3 * BLOCK_ROWS).for_each(|n| large.load(&name(n), 1));
    large.change(1, 9, 0);
    large.change(1, 0, -(BLOCK_ROWS as i64));
    large.drop_empty_blocks();
    assert_eq!((large.newest, large.newer(1, b"")), (1, Vec::new()));
}

/// Divides large blocks as the writer does, with the names of the model.
fn divide(directory: &mut Directory, held: &std::collections::BTreeMap<Vec<u8>, u64>) {
    for stretch in directory.large() {
        let within = held.range(stretch.from.to_vec()..stretch.to().to_vec());
        let at = within.step_by(BLOCK_ROWS as usize).skip(1).map(|(name, _)| name[..].into());
        directory.divide(&stretch.from, at.collect());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// After any writes and removals, every name with a version above the mark is in a returned
    /// range, and no block is too large.
    #[test]
    fn newer_ranges_cover_every_newer_name(
        loaded in 0u64..3000,
        groups in prop::collection::vec(
            (0u64..20_000, 1u64..4000, 1u64..7, any::<bool>()), 1..12),
        told in 0u64..14,
        from in 0u64..20_000,
    ) {
        let mut held = std::collections::BTreeMap::new();
        let mut directory = directory();
        for n in 0..loaded {
            directory.load(&name(n * 3), 1);
            held.insert(name(n * 3), 1);
        }
        for (seen, (start, count, step, gone)) in (2..).zip(groups) {
            // One group: all changes refer to the blocks as they were before it.
            let mut changes = std::collections::BTreeMap::<usize, (u64, i64)>::new();
            let mut block = 0;
            for n in (start..start + count * step).step_by(step as usize) {
                block = directory.block_from(block, &name(n));
                prop_assert_eq!(block, directory.block_from(0, &name(n)));
                let entry = changes.entry(block).or_default();
                if gone {
                    entry.1 -= i64::from(held.remove(&name(n)).is_some());
                } else {
                    entry.0 = seen;
                    entry.1 += i64::from(held.insert(name(n), seen).is_none());
                }
            }
            let grown = changes.into_iter().fold(false, |grown, (block, (newest, rows))| {
                directory.change(block, newest, rows) == BlockSize::TooLarge || grown
            });
            directory.drop_empty_blocks();
            if grown {
                divide(&mut directory, &held);
            }
            prop_assert_eq!(directory.rows, held.len() as u64);
            prop_assert!(directory.large().is_empty());
            // A cycle skips a directory by its highest version alone.
            let newest = directory.newest;
            prop_assert!(held.is_empty() || !directory.newer(newest.saturating_sub(1), b"").is_empty());
        }
        let found = directory.newer(told, &name(from));
        for (name, seen) in held.range(name(from)..) {
            prop_assert!(*seen <= told || covers(&found, name));
        }
        for pair in found.windows(2) {
            prop_assert!(pair[0].to() < &*pair[1].from);
        }
    }
}
