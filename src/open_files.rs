//! This process's limit of open files.

/// Raises this process's limit of open files as far as the system allows and returns the new limit.
/// Each connection of an agent is an open file.
pub(crate) fn raise() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` means that there is no limit.
    let Some(now) = current else { return u64::MAX };
    let raised = Rlimit { current: maximum, maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum.unwrap_or(u64::MAX),
        Err(_) => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_file_limit_is_raised_to_the_hard_limit() {
        use rustix::process::{Resource, getrlimit};
        let most = raise();
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), most);
        assert_eq!(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX), most);
    }
}
