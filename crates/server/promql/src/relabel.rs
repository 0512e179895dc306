//! `label_replace` and `label_join`.

use crate::labels::Labels;
use promql_syntax::{Expr, Regexp, quote};

use crate::eval::{Emit, Evaluator, string, text};
use crate::rows::Rows;
use crate::{Eval, QueryError, failed};

impl Evaluator<'_> {
    /// Evaluates `label_replace(v, target, replacement, source, regexp)`.
    pub(crate) fn label_replace(&self, args: &[Expr], emit: Emit<'_>) -> Eval<()> {
        let [vector, target, replacement, source, regexp] = args else { return Ok(()) };
        let target = label_name(target, "destination", "label_replace")?;
        let (replacement, source, shown) = (text(replacement), text(source), text(regexp));
        // Compiled after the vector is there, so that of nested ones one is held at a time.
        let rows = self.rows(vector)?;
        let regexp = Regexp::new(&shown).map_err(|_| {
            let text = format!("invalid regular expression in label_replace(): {shown}");
            QueryError::Execution(text)
        })?;
        self.relabelled(rows, emit, &|labels| {
            if let Some(value) = regexp.expand(labels.get(&source), &replacement) {
                labels.set(&target, &value);
            }
        })
    }

    /// Evaluates `label_join(v, target, separator, source...)`.
    pub(crate) fn label_join(&self, args: &[Expr], emit: Emit<'_>) -> Eval<()> {
        let [vector, target, separator, sources @ ..] = args else { return Ok(()) };
        let name = |source| label_name(source, "source", "label_join");
        let sources = sources.iter().map(name).collect::<Eval<Vec<String>>>()?;
        let target = label_name(target, "destination", "label_join")?;
        let separator = text(separator);
        self.relabelled(self.rows(vector)?, emit, &|labels| {
            let values: Vec<&str> = sources.iter().map(|source| labels.get(source)).collect();
            let value = values.join(&separator);
            labels.set(&target, &value);
        })
    }

    fn relabelled(&self, rows: Rows, emit: Emit<'_>, change: &dyn Fn(&mut Labels)) -> Eval<()> {
        let mut out = Rows::new(self.grid.count, self.shared.budget);
        for (mut labels, row) in rows.list {
            change(&mut labels);
            out.add(&labels, &row)?;
        }
        Self::emit_all(out, emit)
    }
}

/// Returns the name of a label that an argument gives.
fn label_name(arg: &Expr, which: &str, function: &str) -> Eval<String> {
    match std::str::from_utf8(string(arg)) {
        Ok(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => {
            let shown = quote(string(arg));
            let shown = shown.trim_matches('"');
            failed(format!("invalid {which} label name in {function}(): {shown}"))
        }
    }
}
