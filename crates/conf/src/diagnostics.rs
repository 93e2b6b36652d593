//! Findings about a configuration, shown in the way of compilers.

use crate::tally::Tally;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// Most diagnostics that are kept; further ones are only counted.
const DIAGNOSTICS_MAX: usize = 1000;

/// Longest part of a source line that is shown, in bytes.
const SHOWN_LINE_BYTES_MAX: usize = 160;

/// The severity of a [`Diagnostic`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing needs to change.
    Note,
    /// Something in the file has no effect, or not the one that may be expected.
    Warning,
    /// The configuration must not be used.
    Error,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its severity.
    pub severity: Severity,
    /// Name of the file as given or included; empty when the finding concerns the configuration as
    /// a whole.
    pub file: String,
    /// Line from 1; 0 without a place.
    pub line: u32,
    /// Column from 1, in characters; 0 without a place.
    pub column: u32,
    /// Bytes of the file that are meant, all on that line.
    pub span: Range<usize>,
    /// The finding.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
    /// The text of the line, without its end.
    source_line: Arc<str>,
    /// Offset of `source_line` in the file.
    line_start: usize,
}

/// Everything found in one configuration, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    dropped: usize,
    dropped_error: bool,
    /// Errors that were found, those included that turned out later to be none.
    errors_added: usize,
    tally: Tally,
}

/// One file's text with the offsets of its lines.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Diagnostics {
    /// The findings.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// How many lines work, and which do not and why: text for people.
    pub fn summary(&self) -> String {
        self.tally.render()
    }

    /// The sum that is being made.
    pub(crate) fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// True when the configuration must not be used.
    pub fn has_errors(&self) -> bool {
        self.dropped_error || self.list.iter().any(|d| d.severity == Severity::Error)
    }

    /// Number of findings of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.list.iter().filter(|d| d.severity == severity).count()
    }

    /// All findings as text for people, each with its source line; with terminal colours when
    /// `color`.
    pub fn render(&self, color: bool) -> String {
        self.render_from(color, Severity::Note)
    }

    /// The findings of at least `least` severity, like [`Self::render`].
    pub fn render_from(&self, color: bool, least: Severity) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let renderer = renderer.decor_style(DecorStyle::Ascii);
        let mut out = String::new();
        for diagnostic in self.list.iter().filter(|d| d.severity >= least) {
            out.push_str(&renderer.render(&diagnostic.groups()));
            out.push_str("\n\n");
        }
        if self.dropped > 0 {
            out.push_str(&format!("{} more findings are not shown\n", self.dropped));
        }
        out
    }

    pub(crate) fn add_at(
        &mut self,
        severity: Severity,
        source: &Source,
        span: Range<usize>,
        message: String,
        help: Option<String>,
    ) {
        let place = Place::find(source, span);
        self.add(Diagnostic {
            severity,
            file: source.name.clone(),
            line: place.line,
            column: place.column,
            span: place.span,
            message,
            help,
            source_line: place.text.into(),
            line_start: place.line_start,
        });
    }

    /// A finding without a place.
    pub(crate) fn add_general(
        &mut self,
        severity: Severity,
        message: String,
        help: Option<String>,
    ) {
        self.add(Diagnostic {
            severity,
            file: String::new(),
            line: 0,
            column: 0,
            span: 0..0,
            message,
            help,
            source_line: "".into(),
            line_start: 0,
        });
    }

    /// The last finding's help text, to be completed when more is known.
    pub(crate) fn set_help(&mut self, index: usize, help: String) {
        if let Some(diagnostic) = self.list.get_mut(index) {
            diagnostic.help = Some(help);
        }
    }

    /// Changes the severity of a finding after more was read. A finding that was not kept keeps its
    /// own.
    pub(crate) fn set_severity(&mut self, index: usize, severity: Severity) {
        if let Some(diagnostic) = self.list.get_mut(index) {
            diagnostic.severity = severity;
        }
    }

    /// Another text for a finding, now that more is known, without help.
    pub(crate) fn set_message(&mut self, index: usize, message: String) {
        if let Some(diagnostic) = self.list.get_mut(index) {
            diagnostic.message = message;
            diagnostic.help = None;
        }
    }

    /// Takes a finding's help text away.
    pub(crate) fn clear_help(&mut self, index: usize) {
        if let Some(diagnostic) = self.list.get_mut(index) {
            diagnostic.help = None;
        }
    }

    /// Number of kept findings: the index of the next one.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Number of errors that were found so far.
    pub(crate) fn errors_added(&self) -> usize {
        self.errors_added
    }

    fn add(&mut self, diagnostic: Diagnostic) {
        self.errors_added += usize::from(diagnostic.severity == Severity::Error);
        if self.list.len() < DIAGNOSTICS_MAX {
            self.list.push(diagnostic);
        } else {
            self.dropped += 1;
            self.dropped_error |= diagnostic.severity == Severity::Error;
        }
    }
}

impl Diagnostic {
    fn groups(&self) -> Vec<Group<'_>> {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Note => Level::NOTE,
        };
        let title = level.primary_title(self.message.as_str());
        let group = if self.line == 0 {
            if self.file.is_empty() {
                Group::with_title(title)
            } else {
                title.element(Origin::path(self.file.as_str()))
            }
        } else {
            let (shown, span) = self.shown();
            let snippet = Snippet::source(shown)
                .line_start(self.line as usize)
                .path(self.file.as_str())
                .annotation(AnnotationKind::Primary.span(span));
            title.element(snippet)
        };
        match &self.help {
            Some(help) => vec![group.element(Level::HELP.message(help.as_str()))],
            None => vec![group],
        }
    }

    /// The part of the source line that is shown, with tabs and control characters as blanks, and
    /// the span in it.
    fn shown(&self) -> (String, Range<usize>) {
        let line = &self.source_line;
        let start = self.span.start.saturating_sub(self.line_start).min(line.len());
        let end = self.span.end.saturating_sub(self.line_start).clamp(start, line.len());
        let from = if start > SHOWN_LINE_BYTES_MAX / 2 && line.len() > SHOWN_LINE_BYTES_MAX {
            line.floor_char_boundary(start - SHOWN_LINE_BYTES_MAX / 4)
        } else {
            0
        };
        let to = line.floor_char_boundary((from + SHOWN_LINE_BYTES_MAX).min(line.len()));
        let part = line.get(from..to).unwrap_or("");
        // One byte in, one byte out, so that the span stays right.
        let shown =
            part.chars().map(|c| if c.is_ascii_control() { ' ' } else { c }).collect::<String>();
        let start = shown.floor_char_boundary((start - from).min(shown.len()));
        let end = shown.ceil_char_boundary(end.saturating_sub(from).min(shown.len())).max(start);
        (shown, start..end)
    }
}

/// The position of a span in its file.
struct Place<'a> {
    line: u32,
    column: u32,
    line_start: usize,
    text: &'a str,
    span: Range<usize>,
}

impl<'a> Place<'a> {
    fn find(source: &'a Source, span: Range<usize>) -> Self {
        let text = source.text.as_str();
        let start = text.floor_char_boundary(span.start.min(text.len()));
        let before = text.get(..start).unwrap_or("");
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = text.get(line_start..).unwrap_or("");
        let line_text = rest.split('\n').next().unwrap_or("").trim_end_matches('\r');
        let line_end = line_start + line_text.len();
        let column = text.get(line_start..start).unwrap_or("").chars().count() + 1;
        Self {
            line: u32::try_from(before.bytes().filter(|b| *b == b'\n').count() + 1)
                .unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
            line_start,
            text: line_text,
            span: start..span.end.clamp(start, line_end.max(start)),
        }
    }
}

impl Source {
    /// Line and column (from 1) of a byte offset.
    pub(crate) fn line_and_column(&self, offset: usize) -> (u32, u32) {
        let place = Place::find(self, offset..offset);
        (place.line, place.column)
    }
}

/// A reason to refuse a line, or to say something about it.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    /// Range of the logical line.
    pub(crate) at: Range<usize>,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Problem {
    pub(crate) fn error(at: Range<usize>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, at, message: message.into(), help: None }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, span: Range<usize>) -> Diagnostics {
        let source = Source { name: "squid.conf".into(), text: text.into() };
        let mut diagnostics = Diagnostics::default();
        diagnostics.add_at(Severity::Error, &source, span, "wrong".into(), Some("do this".into()));
        diagnostics
    }

    #[test]
    fn shows_line_column_and_the_underlined_words() {
        let diagnostics = one("cache_mem 1 MB\ncache_mem\tx y\n", 25..26);
        let d = diagnostics.iter().next().expect("one");
        assert_eq!((d.line, d.column), (2, 11));
        let text = diagnostics.render(false);
        assert!(text.contains("--> squid.conf:2:11"), "{text}");
        assert!(text.contains("help: do this"), "{text}");
        let caret = text.lines().find(|l| l.contains('^')).expect("underline");
        let source = text.lines().find(|l| l.contains("cache_mem")).expect("source line");
        assert_eq!(caret.find('^'), source.find('x'), "{text}");
    }

    #[test]
    fn keeps_a_bounded_number_of_findings_but_remembers_errors() {
        let source = Source { name: "f".into(), text: "x".into() };
        let mut diagnostics = Diagnostics::default();
        for _ in 0..DIAGNOSTICS_MAX {
            diagnostics.add_at(Severity::Note, &source, 0..1, "n".into(), None);
        }
        assert!(!diagnostics.has_errors());
        diagnostics.add_at(Severity::Error, &source, 0..1, "e".into(), None);
        assert!(diagnostics.has_errors());
        assert_eq!(diagnostics.len(), DIAGNOSTICS_MAX);
    }

    #[test]
    fn very_long_lines_are_cut_around_the_span() {
        let text = format!("{} bad {}", "é".repeat(5000), "é".repeat(5000));
        let at = text.find("bad").expect("there");
        let shown = one(&text, at..at + 3).render(false);
        assert!(shown.contains("bad") && shown.len() < 2000);
    }
}
