//! Charts as SVG: lines over logarithmic axes, several panels side by side, one legend.
//!
//! Each line has its own colour and its own marker, so that colour is never the only signal.

use std::fmt::Write as _;

/// A point, in values or in pixels.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    pub x: f64,
    pub y: f64,
}

fn at(x: f64, y: f64) -> Point {
    Point { x, y }
}

/// One line of a panel.
pub struct Line {
    pub name: String,
    pub ours: bool,
    pub points: Vec<Point>,
}

/// One coordinate system.
pub struct Panel {
    pub title: String,
    pub x: String,
    pub y: String,
    pub lines: Vec<Line>,
}

const PANEL_WIDTH: f64 = 430.0;
/// Minimum width, which leaves room for the title.
const WIDTH_MIN: f64 = 880.0;
const PLOT_HEIGHT: f64 = 330.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 84.0;
const AXIS: f64 = 52.0;
const LEGEND_ROW: f64 = 22.0;
const LEGEND_COLUMN: f64 = 255.0;
/// Colours that can be distinguished with colour blindness too.
const COLOURS: [&str; 10] = [
    "#0057b7", "#d1495b", "#2a9d5c", "#8f5fbf", "#e08e0b", "#00838f", "#7a4a2b", "#c2185b",
    "#5c6b73", "#6b8e00",
];

/// Returns the whole picture.
pub fn svg(title: &str, note: &str, panels: &[Panel]) -> String {
    let mut names: Vec<(&str, bool)> = Vec::new();
    for line in panels.iter().flat_map(|panel| &panel.lines) {
        if !names.iter().any(|(name, _)| *name == line.name) {
            names.push((&line.name, line.ours));
        }
    }
    let width = (PANEL_WIDTH * panels.len() as f64 + 20.0).max(WIDTH_MIN);
    let columns = ((width - 40.0) / LEGEND_COLUMN).floor().max(1.0) as usize;
    let legend_top = TOP + PLOT_HEIGHT + AXIS + 22.0;
    let height = legend_top + names.len().div_ceil(columns) as f64 * LEGEND_ROW + 14.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"sans-serif\" \
         font-size=\"13\" fill=\"#1f2933\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"#ffffff\"/>\n"
    );
    text(&mut out, at(20.0, 26.0), "start", "font-size=\"17\" font-weight=\"bold\"", title);
    text(&mut out, at(20.0, 46.0), "start", "fill=\"#52606d\"", note);
    for (index, panel) in panels.iter().enumerate() {
        draw(&mut out, panel, index as f64 * PANEL_WIDTH + 10.0, &names);
    }
    for (index, (name, ours)) in names.iter().enumerate() {
        let x = 20.0 + (index % columns) as f64 * LEGEND_COLUMN;
        let y = legend_top + (index / columns) as f64 * LEGEND_ROW;
        let style = Style::new(index, *ours);
        style.stroke(&mut out, &[at(x, y), at(x + 30.0, y)]);
        style.marker(&mut out, at(x + 15.0, y));
        text(&mut out, at(x + 38.0, y + 4.5), "start", "", name);
    }
    out.push_str("</svg>\n");
    out
}

/// A logarithmic scale from values to pixels.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Maps the values to the range between two pixels, with a margin.
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64, room: f64) -> Self {
        let (mut low, mut high) = (f64::MAX, f64::MIN);
        for value in values.filter(|v| *v > 0.0 && v.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        Self { low: low / room, high: (high * room).max(low * 1.01), from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        self.from + share * (self.to - self.from)
    }

    /// Returns 1, 2 and 5 of each power of ten in range, or only the powers if there are many.
    fn ticks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let steps: &[f64] = if decades > 3.2 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let mut found = Vec::new();
        for power in self.low.log10().floor() as i32..=self.high.log10().ceil() as i32 {
            found.extend(steps.iter().map(|s| s * 10_f64.powi(power)));
        }
        found.retain(|t| *t >= self.low && *t <= self.high);
        found
    }
}

fn draw(out: &mut String, panel: &Panel, left: f64, names: &[(&str, bool)]) {
    let (x0, x1) = (left + LEFT, left + PANEL_WIDTH - RIGHT);
    let (y0, y1) = (TOP + PLOT_HEIGHT, TOP);
    let points = || panel.lines.iter().flat_map(|line| line.points.iter());
    let x = Scale::over(points().map(|p| p.x), x0, x1, 1.12);
    let y = Scale::over(points().map(|p| p.y), y0, y1, 1.25);
    text(out, at(x0, TOP - 12.0), "start", "font-weight=\"bold\"", &panel.title);
    for tick in y.ticks() {
        let level = y.at(tick);
        let _ = writeln!(
            out,
            "<line x1=\"{x0:.1}\" y1=\"{level:.1}\" x2=\"{x1:.1}\" y2=\"{level:.1}\" stroke=\"#e4e7eb\"/>"
        );
        text(out, at(x0 - 8.0, level + 4.5), "end", "fill=\"#52606d\"", &short(tick));
    }
    let mut marks: Vec<f64> = points().map(|p| p.x).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    for mark in marks {
        let column = x.at(mark);
        let _ = writeln!(
            out,
            "<line x1=\"{column:.1}\" y1=\"{y0:.1}\" x2=\"{column:.1}\" y2=\"{:.1}\" stroke=\"#9aa5b1\"/>",
            y0 + 5.0
        );
        text(out, at(column, y0 + 20.0), "middle", "fill=\"#52606d\"", &short(mark));
    }
    let _ = writeln!(
        out,
        "<path d=\"M{x0:.1} {y1:.1}V{y0:.1}H{x1:.1}\" fill=\"none\" stroke=\"#9aa5b1\"/>"
    );
    let middle = f64::midpoint(x0, x1);
    text(out, at(middle, y0 + 42.0), "middle", "", &panel.x);
    let (ax, ay) = (left + 16.0, f64::midpoint(y0, y1));
    let turned = format!("transform=\"rotate(-90 {ax:.1} {ay:.1})\"");
    text(out, at(ax, ay), "middle", &turned, &panel.y);
    // Our lines are drawn last, on top.
    for ours in [false, true] {
        for line in panel.lines.iter().filter(|line| line.ours == ours) {
            let index = names.iter().position(|(name, _)| *name == line.name).unwrap_or(0);
            let style = Style::new(index, ours);
            let drawn: Vec<Point> = line
                .points
                .iter()
                .filter(|p| p.y > 0.0 && p.y.is_finite())
                .map(|p| at(x.at(p.x), y.at(p.y)))
                .collect();
            style.stroke(out, &drawn);
            for point in drawn {
                style.marker(out, point);
            }
        }
    }
}

/// The style of a line.
struct Style {
    colour: &'static str,
    shape: usize,
    ours: bool,
}

impl Style {
    fn new(index: usize, ours: bool) -> Self {
        let colour = COLOURS.get(index % COLOURS.len()).copied().unwrap_or("#000000");
        // When the colours repeat, the markers differ.
        Self { colour, shape: index + index / COLOURS.len(), ours }
    }

    fn stroke(&self, out: &mut String, points: &[Point]) {
        let path: Vec<String> = points.iter().map(|p| format!("{:.1},{:.1}", p.x, p.y)).collect();
        let (width, dash) = if self.ours { ("2.8", "none") } else { ("1.6", "5 3") };
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" \
             stroke-dasharray=\"{dash}\"/>",
            path.join(" "),
            self.colour
        );
    }

    fn marker(&self, out: &mut String, Point { x, y }: Point) {
        let colour = self.colour;
        let path = match self.shape % 5 {
            0 => {
                let _ = writeln!(
                    out,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.2\" fill=\"{colour}\"/>"
                );
                return;
            }
            1 => format!("M{:.1} {:.1}h8v8h-8z", x - 4.0, y - 4.0),
            2 => format!("M{:.1} {:.1}l5 9h-10z", x, y - 5.5),
            3 => format!("M{:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5z", x, y - 5.5),
            _ => format!("M{:.1} {:.1}l-5 -9h10z", x, y + 5.5),
        };
        let _ = writeln!(out, "<path d=\"{path}\" fill=\"{colour}\"/>");
    }
}

fn text(out: &mut String, at: Point, anchor: &str, more: &str, content: &str) {
    let Point { x, y } = at;
    let content = content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{content}</text>"
    );
}

/// Formats 1000000 as 1 M and 0.5 as 0.5.
fn short(value: f64) -> String {
    for (unit, size) in [("M", 1e6), ("k", 1e3)] {
        if value >= size {
            return format!("{}{unit}", trimmed(value / size));
        }
    }
    trimmed(value)
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
