//! Prints lists as tables that fit the terminal, or as one JSON object per line.

use std::io::Write as _;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;
use service::Console;

use crate::answer::{at, text};

/// Narrowest terminal that tables are fitted to, columns.
const WIDTH_MIN: u16 = 40;

/// A column: its heading and what it shows of an item.
pub(crate) type Column = (&'static str, fn(&Value) -> String);

/// Prints a list and, on stderr, how many items were left out.
pub(crate) fn print(as_json: bool, items: &[Value], total: u64, columns: &[Column]) {
    let console = Console::new();
    if as_json {
        for item in items {
            console.line(&item.to_string());
        }
    } else if !items.is_empty() {
        let rows = items.iter().map(|item| columns.iter().map(|(_, cell)| cell(item)).collect());
        console.line(&fitted(columns.iter().map(|(name, _)| *name), rows, terminal_width()));
    }
    let shown = items.len() as u64;
    if shown < total {
        let _ = writeln!(std::io::stderr(), "{shown} of {total} shown; --limit sets how many");
    } else if shown == 0 && !as_json {
        let _ = writeln!(std::io::stderr(), "nothing found");
    }
}

/// Prints the fields of one object, one per line, or the object as JSON.
pub(crate) fn print_object(as_json: bool, item: &Value, fields: &[(&str, &str)]) {
    let console = Console::new();
    if as_json {
        return console.line(&item.to_string());
    }
    for (name, pointer) in fields {
        console.line(&format!("{name}: {}", text(at(item, pointer))));
    }
}

/// Returns the columns of the terminal on stdout; `None` if it is none.
fn terminal_width() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}

/// Formats a table without frames. Cells are wrapped at `width` columns, if there is one.
fn fitted<'a>(
    heads: impl Iterator<Item = &'a str>,
    rows: impl Iterator<Item = Vec<String>>,
    width: Option<u16>,
) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(heads).add_rows(rows);
    match width {
        Some(width) => table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width.max(WIDTH_MIN)),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_fits_the_terminal_and_keeps_every_character() {
        let path = format!("/srv/{}", "long/".repeat(30));
        let rows = || vec![vec!["001".to_owned(), path.clone()]].into_iter();
        let wide = fitted(["id", "path"].into_iter(), rows(), None);
        assert_eq!(wide, format!("id   path\n001  {path}"));
        let narrow = fitted(["id", "path"].into_iter(), rows(), Some(60));
        assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
        let text: String = narrow.split_whitespace().filter(|word| word.contains('/')).collect();
        assert_eq!(text, path);
    }
}
