//! `holdfast completions` and `holdfast man`. Both are generated from the description of the
//! command line, so they cannot differ from it.

use std::fs;
use std::io::{Write as _, stdout};
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "holdfast", &mut text);
    stdout().write_all(&text).context("stdout")
}

/// Prints the manual page, or writes one page per command into a folder.
pub(crate) fn man(to: Option<&Path>) -> anyhow::Result<()> {
    let command = Cli::command().disable_help_subcommand(true);
    let Some(folder) = to else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page).context("manual page")?;
        return stdout().write_all(&page).context("stdout");
    };
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .with_context(|| folder.display().to_string())
}
