//! Plots as SVG that read in black and white: lines differ in dashes and markers, and have their
//! names at their ends.
//!
//! Colours and fonts come from the page's style sheet (classes `s0` to `s7`, `grid`, `band`, …), so
//! that one drawing fits a light page, a dark one and paper.

mod axis;
mod look;
mod names;
mod thin;

use axis::Span;
pub(crate) use axis::{Axis, Scale};
pub(crate) use look::LOOKS;
use names::Names;
use thin::{POINTS_MAX, thinned};

/// Least height of the drawing in its own pixels; the page hardly scales it. Many names make it
/// higher.
const HEIGHT_MIN: f64 = 330.0;
/// Above and below the plotting area: a half line of text, and ticks with the label of the x axis.
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;
/// A line of text, and the width of an average character of it.
const LINE: f64 = 15.0;
const CHARACTER: f64 = 7.2;
/// Markers along a line of many points.
const MARKERS: u32 = 7;
/// A line of no more points than this gets a marker at each.
const FEW_POINTS: usize = 12;

/// The part of the page's width that a plot takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Beside another.
    Half,
    /// Alone.
    Whole,
}

impl Size {
    /// In pixels of the drawing.
    fn width(self) -> f64 {
        match self {
            Self::Half => 580.0,
            Self::Whole => 960.0,
        }
    }

    /// Characters of a line of a name; a longer name has several.
    fn name_chars_max(self) -> usize {
        match self {
            Self::Half => 20,
            Self::Whole => 36,
        }
    }
}

/// The connection of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// By straight lines.
    Straight,
    /// A value holds from the point before up to its own point: a setting of the period that ends
    /// there.
    Step,
}

/// The strength of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// One of several that differ in their looks.
    Usual,
    /// The one that stands for its repeats.
    Bold,
    /// A repeat of another, with its look, but without markers and name.
    Thin,
}

/// A line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Its name, shown at its end.
    pub name: String,
    /// Its points in ascending x. A point that is not finite is a gap.
    pub points: Vec<(f64, f64)>,
    /// Their connection.
    pub shape: Shape,
    /// Which colour, dashes and markers.
    pub look: usize,
    /// Its strength.
    pub weight: Weight,
}

impl Line {
    /// A line of straight pieces.
    pub(crate) fn straight(name: &str, look: usize, points: Vec<(f64, f64)>) -> Self {
        let weight = Weight::Usual;
        Self { name: name.to_owned(), points, shape: Shape::Straight, look, weight }
    }

    /// A line of steps.
    pub(crate) fn step(name: &str, look: usize, points: Vec<(f64, f64)>) -> Self {
        Self { shape: Shape::Step, ..Self::straight(name, look, points) }
    }

    /// Repeats of one thing: the first is drawn bold and named, the others thin behind it.
    pub(crate) fn repeats(
        name: &str,
        look: usize,
        repeats: impl IntoIterator<Item = Vec<(f64, f64)>>,
    ) -> Vec<Self> {
        let mut lines: Vec<Self> =
            repeats.into_iter().map(|points| Self::straight(name, look, points)).collect();
        if lines.len() > 1 {
            for (index, line) in lines.iter_mut().enumerate() {
                line.weight = if index == 0 { Weight::Bold } else { Weight::Thin };
            }
        }
        lines
    }
}

/// A shaded range of x.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    /// From.
    pub from: f64,
    /// To.
    pub to: f64,
    /// Its name.
    pub name: String,
}

/// A horizontal line at one value: a threshold, an ideal.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Its position.
    pub y: f64,
    /// Its name.
    pub name: String,
}

/// A plot.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// Its subject, for readers who hear it.
    pub title: String,
    /// Its contents, for readers who hear it.
    pub description: String,
    /// Its width.
    pub size: Size,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines, the most important first.
    pub lines: Vec<Line>,
    /// Shaded ranges.
    pub bands: Vec<Band>,
    /// Horizontal lines.
    pub rules: Vec<Rule>,
}

/// The axes over the plotting area.
struct Frame {
    x: Span,
    y: Span,
    left: f64,
    right: f64,
    /// The lower edge of the plotting area.
    bottom: f64,
    size: Size,
    /// Of the lines that have a name, in their order.
    names: Names,
}

impl Plot {
    /// The plot as an SVG element. `id` must be unique on the page.
    pub(crate) fn svg(&self, id: &str) -> String {
        let frame = self.frame();
        let mut svg = Svg::new(id, &self.title, &self.description, &frame);
        self.draw_bands(&frame, &mut svg);
        self.draw_axes(&frame, &mut svg);
        let mut ends = Vec::new();
        let (thin, named): (Vec<&Line>, Vec<&Line>) =
            self.lines.iter().partition(|line| line.weight == Weight::Thin);
        for line in thin {
            draw_line(line, &frame, &mut svg);
        }
        // The most important line comes last, so that it lies above the others.
        for (line, name) in named.into_iter().zip(&frame.names.own).rev() {
            if let Some((x, y)) = draw_line(line, &frame, &mut svg) {
                ends.push(End { x, y, look: line.look, name });
            }
        }
        self.draw_band_names(&frame, &mut svg);
        self.draw_rules(&frame, &mut svg);
        if ends.is_empty() {
            svg.text(
                (frame.left + frame.right) / 2.0,
                frame.bottom / 2.0,
                "mid muted",
                "no values",
            );
        }
        // Lines that end at the same height are named in the order of their importance.
        ends.reverse();
        draw_names(ends, &frame, &mut svg);
        svg.finish()
    }

    fn frame(&self) -> Frame {
        let xs = self
            .lines
            .iter()
            .flat_map(|line| line.points.iter().filter(|p| p.1.is_finite()).map(|p| p.0));
        let ys = self
            .lines
            .iter()
            .flat_map(|line| line.points.iter().filter(|p| p.0.is_finite()).map(|p| p.1));
        let x = Span::fit(&self.x, xs, if self.size == Size::Half { 6 } else { 10 });
        let y = Span::fit(&self.y, ys.chain(self.rules.iter().map(|rule| rule.y)), 6);
        let tick_chars = y.ticks.iter().map(|tick| tick.label.chars().count()).max().unwrap_or(1);
        let named = self.lines.iter().filter(|line| line.weight != Weight::Thin);
        let names: Vec<&str> = named.map(|line| line.name.as_str()).collect();
        let names = Names::of(&names, self.size.name_chars_max());
        let left = 34.0 + tick_chars as f64 * CHARACTER;
        let right = self.size.width() - 30.0 - names.width() as f64 * CHARACTER;
        let bottom = (HEIGHT_MIN - BOTTOM).max(TOP + names.height() as f64 * LINE);
        Frame {
            x: x.over(left, right),
            y: y.over(bottom, TOP),
            left,
            right,
            bottom,
            size: self.size,
            names,
        }
    }

    fn draw_bands(&self, frame: &Frame, svg: &mut Svg) {
        for band in &self.bands {
            let (Some(from), Some(to)) = (frame.x.px(band.from), frame.x.px(band.to)) else {
                continue;
            };
            let (width, height) = ((to - from).max(1.0), frame.bottom - TOP);
            svg.raw(&format!(
                "<rect class=\"band\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height}\" />"
            ));
            svg.line("bandedge", from, TOP, from, frame.bottom);
        }
    }

    /// Over the lines, which may be anywhere.
    fn draw_band_names(&self, frame: &Frame, svg: &mut Svg) {
        for band in &self.bands {
            let (Some(from), Some(to)) = (frame.x.px(band.from), frame.x.px(band.to)) else {
                continue;
            };
            // Beside the band if its name does not fit into it.
            let fits = to - from > band.name.chars().count() as f64 * CHARACTER + 8.0;
            let (x, class) =
                if fits { (from + 5.0, "halo muted") } else { (from - 5.0, "end halo muted") };
            svg.text(x, frame.bottom - 6.0, class, &band.name);
        }
    }

    fn draw_axes(&self, frame: &Frame, svg: &mut Svg) {
        let bottom = frame.bottom;
        for tick in &frame.y.ticks {
            let Some(y) = frame.y.px(tick.value) else { continue };
            svg.line("grid", frame.left, y, frame.right, y);
            svg.text(frame.left - 6.0, y + 4.0, "end", &tick.label);
        }
        for tick in &frame.x.ticks {
            let Some(x) = frame.x.px(tick.value) else { continue };
            svg.line("grid", x, TOP, x, bottom);
            svg.text(x, bottom + 17.0, "mid", &tick.label);
        }
        svg.line("axis", frame.left, bottom, frame.right, bottom);
        svg.line("axis", frame.left, TOP, frame.left, bottom);
        let below = bottom + BOTTOM - 8.0;
        svg.text((frame.left + frame.right) / 2.0, below, "mid name", &self.x.label);
        let middle = (TOP + bottom) / 2.0;
        svg.raw(&format!(
            "<text class=\"mid name\" transform=\"translate(13 {middle}) rotate(-90)\">{}</text>",
            escaped(&self.y.label)
        ));
    }

    fn draw_rules(&self, frame: &Frame, svg: &mut Svg) {
        let mut names: Vec<(f64, &str)> = Vec::new();
        for rule in &self.rules {
            let Some(y) = frame.y.px(rule.y) else { continue };
            svg.line("rule", frame.left, y, frame.right, y);
            names.push((y - 4.0, &rule.name));
        }
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted: Vec<f64> = names.iter().map(|(y, _)| *y).collect();
        for (y, (_, name)) in spread(&wanted, TOP + 10.0, frame.bottom - 4.0).into_iter().zip(names)
        {
            svg.text(frame.left + 6.0, y, "halo", name);
        }
    }
}

/// The end of a line, where its name goes.
struct End<'a> {
    x: f64,
    y: f64,
    look: usize,
    name: &'a [String],
}

/// Draws a line with its markers; returns its end, `None` if it has no point.
fn draw_line(line: &Line, frame: &Frame, svg: &mut Svg) -> Option<(f64, f64)> {
    let points = thinned(&line.points, POINTS_MAX);
    let mut pieces: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for (x, y) in points {
        match (frame.x.px(x), frame.y.px(y)) {
            (Some(x), Some(y)) => pieces.last_mut()?.push((x, y)),
            _ if pieces.last()?.is_empty() => {}
            _ => pieces.push(Vec::new()),
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    let end = *pieces.last()?.last()?;
    for piece in &pieces {
        let joined = if line.shape == Shape::Step { steps(piece) } else { piece.clone() };
        svg.polyline(line, &joined);
    }
    if line.weight != Weight::Thin {
        svg.markers(line.look, &marked(&pieces, frame, line.look));
    }
    Some(end)
}

/// The corners of a staircase through points, each the end of its period.
fn steps(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::with_capacity(points.len() * 2);
    for (x, y) in points {
        if let Some((before, _)) = corners.last().copied() {
            corners.push((before, *y));
        }
        corners.push((*x, *y));
    }
    corners
}

/// The positions of a line's markers: at every point of a few, else evenly, and elsewhere than
/// those of other lines.
fn marked(pieces: &[Vec<(f64, f64)>], frame: &Frame, look: usize) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = pieces.iter().flatten().copied().collect();
    if points.len() <= FEW_POINTS {
        return points;
    }
    let distance = (frame.right - frame.left) / f64::from(MARKERS);
    let shift = (look % LOOKS) as f64 / LOOKS as f64;
    let mut marked: Vec<(f64, f64)> = Vec::new();
    for place in 0..MARKERS {
        let wanted = frame.left + (f64::from(place) + 0.06 + shift) * distance;
        let nearest =
            points.iter().min_by(|a, b| (a.0 - wanted).abs().total_cmp(&(b.0 - wanted).abs()));
        if let Some(point) = nearest
            && (point.0 - wanted).abs() < distance / 2.0
            && !marked.contains(point)
        {
            marked.push(*point);
        }
    }
    marked
}

/// Names at the right of the plot, each as near to its line's end as the others let it, below the
/// parts that all have in common.
fn draw_names(mut ends: Vec<End<'_>>, frame: &Frame, svg: &mut Svg) {
    let mut top = TOP;
    for line in &frame.names.common {
        svg.text(frame.right + 8.0, top + 4.0, "muted", line);
        top += LINE;
    }
    ends.sort_by(|a, b| a.y.total_cmp(&b.y));
    // Every line of a name has a place of its own; the first is beside the line's end.
    let wanted: Vec<f64> = ends.iter().flat_map(|end| end.name.iter().map(|_| end.y)).collect();
    let mut places = spread(&wanted, top, frame.bottom).into_iter();
    for end in &ends {
        for (index, (text, y)) in end.name.iter().zip(places.by_ref()).enumerate() {
            if index == 0 {
                if frame.right - end.x < 40.0 && (end.y - y).abs() < 1.7 * LINE {
                    svg.line("leader", end.x, end.y, frame.right + 9.0, y);
                }
                svg.markers(end.look, &[(frame.right + 14.0, y)]);
            }
            svg.text(frame.right + 22.0, y + 4.0, "", text);
        }
    }
}

/// Moves ascending heights apart so that a line of text fits between any two, within the limits if
/// they all fit.
fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut placed: Vec<f64> = Vec::with_capacity(wanted.len());
    for y in wanted {
        let free = placed.last().map_or(top, |last| last + LINE);
        placed.push(y.max(free));
    }
    let mut limit = bottom;
    for y in placed.iter_mut().rev() {
        *y = y.min(limit);
        limit = *y - LINE;
    }
    placed
}

/// An SVG element in the making.
struct Svg {
    out: String,
}

impl Svg {
    fn new(id: &str, title: &str, description: &str, frame: &Frame) -> Self {
        let data = |span: &Span, from: f64, to: f64| {
            let log = u8::from(span.scale == Scale::Log);
            format!("{:e},{:e},{from:.1},{to:.1},{log}", span.lo, span.hi)
        };
        let (width, height) = (frame.size.width(), frame.bottom + BOTTOM);
        let class = if frame.size == Size::Whole { "whole" } else { "half" };
        let (id, title, description) = (escaped(id), escaped(title), escaped(description));
        Self {
            out: format!(
                "<svg class=\"plot {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
                 aria-labelledby=\"{id}-t {id}-d\" data-x=\"{}\" data-y=\"{}\">\n\
                 <title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{description}</desc>\n",
                data(&frame.x, frame.left, frame.right),
                data(&frame.y, frame.bottom, TOP)
            ),
        }
    }

    fn raw(&mut self, element: &str) {
        self.out.push_str(element);
        self.out.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.raw(&format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            escaped(text)
        ));
    }

    fn line(&mut self, class: &str, x1: f64, y1: f64, x2: f64, y2: f64) {
        self.raw(&format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" />"
        ));
    }

    fn polyline(&mut self, line: &Line, points: &[(f64, f64)]) {
        let mut list = String::with_capacity(points.len() * 12);
        for (x, y) in points {
            list.push_str(&format!("{x:.1},{y:.1} "));
        }
        let dashes = match look::dashes(line.look) {
            "" => String::new(),
            dashes => format!(" stroke-dasharray=\"{dashes}\""),
        };
        // The pointer shows values of lines that have a name.
        let (weight, name) = match line.weight {
            Weight::Usual => ("", format!(" data-name=\"{}\"", escaped(&line.name))),
            Weight::Bold => (" bold", format!(" data-name=\"{}\"", escaped(&line.name))),
            Weight::Thin => (" thin", String::new()),
        };
        self.raw(&format!(
            "<polyline class=\"line s{}{weight}\"{dashes}{name} points=\"{}\" />",
            line.look % LOOKS,
            list.trim_end()
        ));
    }

    fn markers(&mut self, look: usize, at: &[(f64, f64)]) {
        let paths: Vec<String> = at.iter().map(|(x, y)| look::marker(look, *x, *y)).collect();
        if !paths.is_empty() {
            self.raw(&format!(
                "<path class=\"marker s{}\" d=\"{}\" />",
                look % LOOKS,
                paths.concat()
            ));
        }
    }

    fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }
}

/// Text that means nothing but itself in XML and HTML, in elements and in attributes.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
