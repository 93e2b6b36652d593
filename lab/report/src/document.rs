//! The parts of every page: a sentence, warnings, sections of text, tables and plots.

use crate::format::{plain, plain_lines};
use crate::plot::Plot;
use crate::table::{Table, markdown_text};
use askama::Template;

/// Something that a reader must know before believing a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    /// Whether the result must not be used without it (red), as opposed to a condition worth
    /// knowing.
    pub grave: bool,
    /// In a few words.
    pub heading: String,
    /// In a sentence or two.
    pub text: String,
}

/// A file that is made of others: its name below a folder, and its text.
pub(crate) type Made = (String, String);

/// The name of the files of an experiment's page.
pub(crate) const INDEX: &str = "index";

/// A plot with its caption.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Drawn above it, and read out.
    pub title: String,
    /// The caption, drawn below.
    pub caption: String,
    /// The drawing.
    pub svg: String,
}

impl Figure {
    /// Draws a plot. `id` must be unique on the page.
    pub(crate) fn draw(id: &str, caption: &str, plot: &Plot) -> Self {
        Self { title: plot.title.clone(), caption: caption.to_owned(), svg: plot.svg(id) }
    }

    /// The drawing as a file that needs nothing else: with a name space and a style.
    fn alone(&self) -> String {
        let (head, body) = self.svg.split_once('>').unwrap_or((&self.svg, ""));
        format!("{head} xmlns=\"http://www.w3.org/2000/svg\">\n<style>{PLOT_STYLE}</style>{body}")
    }
}

/// Name of the file of a page's drawing.
fn drawing_name(page: &str, index: usize) -> String {
    format!("{page}-{}.svg", index + 1)
}

/// A part that most readers need not see at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fold {
    /// Its title.
    pub title: String,
    /// Tables.
    pub tables: Vec<Table>,
    /// Text as it is; empty if none.
    pub text: String,
}

/// A part of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    /// Its heading.
    pub title: String,
    /// A word before; empty if none.
    pub text: String,
    /// The finished share of the run, 0 to 1, drawn as a bar.
    pub progress: Option<f64>,
    /// Whether its tables belong into the short form.
    pub short: bool,
    /// Tables.
    pub tables: Vec<Table>,
    /// Plots.
    pub figures: Vec<Figure>,
    /// Closed parts.
    pub folds: Vec<Fold>,
    /// Words and their meanings.
    pub terms: Vec<(&'static str, &'static str)>,
    /// Other pages in folders below this one: (words, path).
    pub links: Vec<(String, String)>,
}

impl Section {
    /// An empty section.
    pub(crate) fn new(title: &str) -> Self {
        Self { title: title.to_owned(), ..Self::default() }
    }

    /// Links to the reports in these folders, which have this name.
    pub(crate) fn of_reports(title: &str, folders: &[String], report: &str) -> Self {
        let links = folders.iter().map(|folder| (folder.clone(), format!("{folder}/{report}")));
        Self { links: links.collect(), ..Self::new(title) }
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
            && self.tables.is_empty()
            && self.figures.is_empty()
            && self.folds.is_empty()
            && self.terms.is_empty()
            && self.links.is_empty()
    }
}

/// A page.
#[derive(Clone, Debug, Template)]
#[template(path = "document.html")]
pub(crate) struct Document {
    /// The subject.
    pub title: String,
    /// Place and time.
    pub subtitle: String,
    /// The result in one sentence.
    pub lead: String,
    /// Warnings, the gravest first.
    pub warnings: Vec<Warning>,
    /// The rest, in the order in which a reader wants it.
    pub sections: Vec<Section>,
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    title: &'a str,
    style: &'static str,
    script: &'static str,
    live_script: &'static str,
    main: &'a str,
}

/// As many characters of a title are shown in the browser's tab.
const TITLE_CHARS_MAX: usize = 200;

/// Colours and lines of drawings.
const PLOT_STYLE: &str = include_str!("../templates/plot.css");
const STYLE: &str =
    concat!(include_str!("../templates/plot.css"), include_str!("../templates/style.css"));
const SCRIPT: &str = include_str!("../templates/hover.js");
const LIVE_SCRIPT: &str = include_str!("../templates/live.js");

fn page(title: &str, main: &str, live_script: &'static str) -> String {
    let title = plain(title, TITLE_CHARS_MAX);
    Page { title: &title, style: STYLE, script: SCRIPT, live_script, main }.to_string()
}

impl Document {
    /// The contents of the page's main element. No character of it controls a terminal or turns the
    /// direction of text.
    pub(crate) fn main_html(&self) -> String {
        plain_lines(&self.to_string(), usize::MAX)
    }

    /// The page as one file that needs nothing else.
    pub(crate) fn html(&self) -> String {
        page(&self.title, &self.main_html(), "")
    }

    /// The page that asks its server for news.
    pub(crate) fn live_html(title: &str, main: &str) -> String {
        page(title, main, LIVE_SCRIPT)
    }

    /// The drawings as files of their own, beside a page in Markdown, which cannot contain them:
    /// name and contents of each.
    fn drawings(&self, page: &str) -> Vec<(String, String)> {
        let figures = self.sections.iter().flat_map(|section| &section.figures);
        figures
            .enumerate()
            .map(|(index, figure)| (drawing_name(page, index), figure.alone()))
            .collect()
    }

    /// The short form with [`Document::drawings`], which lie beside it.
    fn illustrated_markdown(&self, page: &str) -> String {
        let mut out = self.markdown();
        let figures = self.sections.iter().flat_map(|section| &section.figures);
        for (index, figure) in figures.enumerate() {
            let (title, caption) = (markdown_text(&figure.title), markdown_text(&figure.caption));
            let file = drawing_name(page, index);
            out.push_str(&format!("\n**{title}**\n\n![{title}]({file})\n\n{caption}\n"));
        }
        out
    }

    /// The page in Markdown, with its drawings, under this name.
    pub(crate) fn files(&self, page: &str) -> Vec<Made> {
        let mut made = self.drawings(page);
        made.push((format!("{page}.md"), self.illustrated_markdown(page)));
        made
    }

    /// The short form for a pull request or a README.
    pub(crate) fn markdown(&self) -> String {
        let mut out = format!(
            "# {}\n\n{}\n\n{}\n\n",
            markdown_text(&self.title),
            markdown_text(&self.subtitle),
            markdown_text(&self.lead)
        );
        for warning in &self.warnings {
            let word = if warning.grave { "Warning" } else { "Note" };
            let (heading, text) = (markdown_text(&warning.heading), markdown_text(&warning.text));
            out.push_str(&format!("> **{word}: {heading}.** {text}\n>\n"));
        }
        if out.ends_with(">\n") {
            out.truncate(out.len() - 2);
            out.push('\n');
        }
        for section in self.sections.iter().filter(|section| section.short) {
            let tables = section.tables.iter().filter(|table| !table.rows.is_empty());
            tables.for_each(|table| out.push_str(&table.markdown()));
        }
        for section in self.sections.iter().filter(|section| !section.links.is_empty()) {
            out.push_str(&format!("**{}**\n\n", markdown_text(&section.title)));
            for (words, path) in &section.links {
                out.push_str(&format!("- [{}]({path})\n", markdown_text(words)));
            }
            out.push('\n');
        }
        out
    }
}
