//! A baseline in memory.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;

use model::path::is_at_or_below;
use model::traits::PortError;
use model::{Baseline, BaselineItem, Dataset, ItemKey};
use queue::{Body, ListFilter, QueueError};

/// Observations by directory.
#[derive(Debug, Default)]
pub(crate) struct Baselines(BTreeMap<Vec<u8>, Vec<BaselineItem>>);

impl Baselines {
    /// Reads the observations of a path, of everything below it, and of the directories above it
    /// from an agent's database, which a running agent may have open.
    pub(crate) fn read(database: &Path, path: &[u8]) -> Result<Self, QueueError> {
        let mut found = Self::default();
        let filter = ListFilter {
            pending: false,
            dataset: Some(Dataset::FIM_FILES.into()),
            prefix: Vec::new(),
        };
        queue::list(database, &filter, &mut |item| {
            let own = item.key.path();
            if let Body::Observation(observation) = item.body
                && (is_at_or_below(&own, path) || is_at_or_below(path, &own))
            {
                let ItemKey { directory, name } = item.key;
                let item = BaselineItem { name, observation: *observation };
                found.0.entry(directory).or_default().push(item);
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Returns the path of the topmost item at or above `path`.
    pub(crate) fn top_of(&self, path: &[u8]) -> Option<Vec<u8>> {
        let items = self.0.iter().flat_map(|(directory, items)| {
            items.iter().map(|item| ItemKey::new(directory.as_slice(), item.name.as_slice()).path())
        });
        items.filter(|own| is_at_or_below(path, own)).min_by_key(Vec::len)
    }
}

impl Baseline for Baselines {
    fn directory(
        &mut self,
        directory: &[u8],
        into: &mut Vec<BaselineItem>,
    ) -> Result<(), PortError> {
        into.clear();
        into.extend(self.0.get(directory).into_iter().flatten().cloned());
        Ok(())
    }

    fn directories_below(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, PortError> {
        let from = (Bound::Excluded(directory), Bound::Unbounded);
        let below = self.0.range::<[u8], _>(from).map(|(path, _)| path);
        Ok(below.filter(|path| is_at_or_below(path, directory)).cloned().collect())
    }
}
