//! Lines over two axes, both logarithmic or both linear, as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 230.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 8] =
    ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"];

/// One line of a plot: its name and its points.
pub type Line = (String, Vec<(f64, f64)>);

/// Returns a plot of lines with two logarithmic axes.
pub fn svg(title: &str, x_name: &str, y_name: &str, lines: &[Line]) -> String {
    draw(title, (x_name, Axis::decades), (y_name, Axis::decades), lines)
}

/// Returns a plot of lines with two linear axes that start at zero.
#[allow(dead_code, reason = "not every comparison that draws has a linear plot")]
pub fn linear(title: &str, x_name: &str, y_name: &str, lines: &[Line]) -> String {
    draw(title, (x_name, Axis::linear), (y_name, Axis::linear), lines)
}

/// An axis: the range of its transformed values, and its marks.
struct Axis {
    log: bool,
    from: f64,
    to: f64,
    marks: Vec<(f64, String)>,
}

impl Axis {
    fn decades(values: &mut dyn Iterator<Item = f64>) -> Self {
        let (from, to) = decades(values);
        let marks = (from as i32..=to as i32).map(|power| (10f64.powi(power), label(power)));
        Self { log: true, from, to, marks: marks.collect() }
    }

    fn linear(values: &mut dyn Iterator<Item = f64>) -> Self {
        let max = values.fold(f64::MIN_POSITIVE, f64::max);
        let power = 10f64.powf(max.log10().floor());
        let step = [0.1, 0.2, 0.5, 1.0, 2.0].map(|s| s * power);
        let step = step.into_iter().find(|s| max / s <= 8.0).unwrap_or(power);
        let count = (max / step).ceil();
        let mark = |i: u32| (f64::from(i) * step, short(f64::from(i) * step));
        Self {
            log: false,
            from: 0.0,
            to: count * step,
            marks: (0..=count as u32).map(mark).collect(),
        }
    }

    /// Returns the relative position of a value, 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let value = if self.log { value.log10() } else { value };
        (value - self.from) / (self.to - self.from)
    }
}

fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

type Side<'a> = (&'a str, fn(&mut dyn Iterator<Item = f64>) -> Axis);

fn draw(
    title: &str,
    (x_name, x_axis): Side<'_>,
    (y_name, y_axis): Side<'_>,
    lines: &[Line],
) -> String {
    let points = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let x_axis = x_axis(&mut points().map(|p| p.0));
    let y_axis = y_axis(&mut points().map(|p| p.1));
    let x = |v: f64| LEFT + x_axis.share(v) * (WIDTH - LEFT - RIGHT);
    let y = |v: f64| HEIGHT - BOTTOM - y_axis.share(v) * (HEIGHT - TOP - BOTTOM);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{title}</text>\n"
    );
    let mut mark = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    for (value, shown) in &x_axis.marks {
        let at = x(*value);
        mark(format!(
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{}\" stroke=\"#ddd\"/><text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{shown}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 16.0
        ));
    }
    for (value, shown) in &y_axis.marks {
        let at = y(*value);
        mark(format!(
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{shown}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        ));
    }
    mark(format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{x_name}</text>",
        LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
        HEIGHT - 12.0
    ));
    mark(format!(
        "<text x=\"14\" y=\"{}\" transform=\"rotate(-90 14 {})\" text-anchor=\"middle\">{y_name}</text>",
        HEIGHT / 2.0,
        HEIGHT / 2.0
    ));
    for (at, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let mut path = String::new();
        for (px, py) in points {
            let _ = write!(path, "{:.1},{:.1} ", x(*px), y(*py));
        }
        mark(format!(
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        ));
        for (px, py) in points.iter().filter(|_| points.len() < 20) {
            mark(format!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                x(*px),
                y(*py)
            ));
        }
        let line = TOP + 14.0 + at as f64 * 18.0;
        mark(format!(
            "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"4\" fill=\"{colour}\"/><text x=\"{}\" y=\"{}\">{name}</text>",
            WIDTH - RIGHT + 12.0,
            line - 6.0,
            WIDTH - RIGHT + 30.0,
            line
        ));
    }
    out.push_str("</svg>\n");
    out
}

/// Returns the whole decades around values, as powers of ten.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (min, max) = values
        .filter(|v| *v > 0.0)
        .fold((f64::MAX, f64::MIN_POSITIVE), |(a, b), v| (a.min(v), b.max(v)));
    let (low, high) = (min.log10().floor(), max.log10().ceil());
    (low, if high > low { high } else { low + 1.0 })
}

fn label(power: i32) -> String {
    match power {
        0..=6 => format!("{}", 10u64.pow(power as u32)),
        -3..=-1 => format!("{}", 10f64.powi(power)),
        _ => format!("1e{power}"),
    }
}
