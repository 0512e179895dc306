//! The set of agents that a caller may see: all, only some, or all but some. Lists and counters
//! filter by it in the database, so that a small set never costs a scan of the whole fleet.

use std::sync::Arc;

use crate::AgentId;

/// The set of agents that a caller may see. The numbers are ascending and distinct.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Permitted {
    #[default]
    All,
    /// These; none when empty.
    Only(Arc<Vec<AgentId>>),
    /// Every agent but these.
    Except(Arc<Vec<AgentId>>),
}

impl Permitted {
    pub fn none() -> Self {
        Self::Only(Arc::default())
    }

    /// Builds the set from the rule for all agents and the exceptions to it, ascending and
    /// distinct.
    pub fn of(rest: bool, opposite: Vec<AgentId>) -> Self {
        match (rest, opposite.is_empty()) {
            (true, true) => Self::All,
            (true, false) => Self::Except(Arc::new(opposite)),
            (false, _) => Self::Only(Arc::new(opposite)),
        }
    }

    pub fn holds(&self, id: AgentId) -> bool {
        match self {
            Self::All => true,
            Self::Only(ids) => ids.binary_search(&id).is_ok(),
            Self::Except(ids) => ids.binary_search(&id).is_err(),
        }
    }

    /// Returns true if every agent is in the set.
    pub fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Returns true if no agent is in the set.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Only(ids) if ids.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permitted_set_contains_its_agents() {
        let some = vec![AgentId(2), AgentId(5)];
        assert_eq!(Permitted::of(true, Vec::new()), Permitted::All);
        let except = Permitted::of(true, some.clone());
        let only = Permitted::of(false, some);
        for id in 0..8 {
            assert_ne!(only.holds(AgentId(id)), except.holds(AgentId(id)));
        }
        assert!(only.holds(AgentId(5)) && !only.holds(AgentId(4)));
        assert!(Permitted::none().is_none() && !except.is_none() && !Permitted::All.is_none());
    }
}
