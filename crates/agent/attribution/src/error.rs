//! Errors of the attribution.

use std::io;

/// Reason why changes cannot be attributed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttributionError {
    #[error("process connector: needs CAP_NET_ADMIN in the first user namespace")]
    NotPermitted,
    #[error(
        "process connector: no answer; it works only in the first process and network namespaces, \
         and in kernels with CONFIG_PROC_EVENTS"
    )]
    OtherNamespace,
    #[error("process connector: the kernel has none (CONFIG_CONNECTOR)")]
    NotSupported,
    #[error("process connector: {0}")]
    Io(#[from] io::Error),
}
