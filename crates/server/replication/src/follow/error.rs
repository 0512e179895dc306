//! Errors of following a server.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use control::ControlError;
use thiserror::Error;

/// A permanent failure of following. The text names the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FollowError {
    /// Decisions cannot be applied: a newer server made them, or the registry's file fails.
    #[error("{0}")]
    Registry(#[from] ControlError),
    /// The server's address is not a URL.
    #[error("--from {from}")]
    Address {
        from: String,
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// The server's address is of a kind that cannot be followed.
    #[error(
        "--from {from}: name https://HOST:PORT of the server's API, or unix:PATH of the socket in \
         its data folder"
    )]
    AddressKind { from: String },
    /// The certificate authority cannot be read.
    #[error(
        "{}: name the server's certificate authority (keys/ca.pem in its data folder) with --ca",
        path.display()
    )]
    Authority {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// The certificate authority's file holds no certificate.
    #[error("{}", path.display())]
    Certificate {
        path: PathBuf,
        #[source]
        cause: rustls::pki_types::pem::Error,
    },
    /// There is no token to send to the server.
    #[error(
        "{}: a follower over the network needs the server's token: give keys/follower of the \
         server's data folder as HOLDFAST_FOLLOW_TOKEN",
        path.display()
    )]
    Token {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The HTTP client cannot be created.
    #[error(transparent)]
    Http(reqwest::Error),
    /// The server refuses this follower.
    #[error("{from}: {detail}")]
    Refused { from: String, detail: String },
    /// The server sent something that the format of the stream does not allow.
    #[error("{0}")]
    Format(String),
    /// The folder is neither empty, nor restored, nor already following.
    #[error(
        "{}: a server's data folder; name an empty one, or one that a backup was just restored into",
        path.display()
    )]
    Folder { path: PathBuf },
    /// The marker of a following folder cannot be parsed.
    #[error("{}: not the mark of a follower; restore it", path.display())]
    Marker {
        path: PathBuf,
        #[source]
        cause: serde_json::Error,
    },
    /// A file or a folder cannot be read or written.
    #[error("{}", path.display())]
    File {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// A file of the seed cannot be written.
    #[error("seed")]
    Seed(#[source] io::Error),
    /// No random number for the follower's name is available.
    #[error("the follower's name could not be drawn")]
    Random(#[source] io::Error),
    #[error(transparent)]
    State(#[from] state::StateError),
    /// The journal of the folder cannot be opened.
    #[error("journal; `holdfast journal verify {}` says what is wrong", dir.display())]
    Journal {
        dir: PathBuf,
        #[source]
        cause: journal::OpenError,
    },
    /// The journal's folder cannot be read or created.
    #[error(transparent)]
    JournalFolder(journal::OpenError),
    #[error(transparent)]
    Append(#[from] journal::AppendError),
    #[error(transparent)]
    Read(#[from] journal::ReadError),
    /// The last record of the journal is missing.
    #[error("the journal's last record {0} cannot be read: verify the journal")]
    LastRecord(u64),
    /// The records of the journal cannot be applied.
    #[error("commit")]
    Apply(#[source] commit::CommitError),
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}

impl FollowError {
    /// Returns a function that adds the path to an I/O error.
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |cause| Self::File { path: path.to_owned(), cause }
    }
}
