//! From runs to reports: a folder per run, comparisons, the live page, lines for a terminal.
//!
//! A page is one file that needs nothing else: its plots are SVG that reads in black and white, its
//! few lines of script only show values under the pointer. Whatever came from a cache or a server
//! is text on it, never markup.

mod bang;
mod bangs;
mod compare;
mod csv;
mod document;
mod error;
mod experiment;
mod folder;
mod format;
mod live;
mod plot;
mod provenance;
mod recompute;
mod run_page;
mod stored;
#[cfg(test)]
#[path = "../examples/sample_report/synthetic.rs"]
mod synthetic;
mod table;
mod terminal;
#[cfg(test)]
mod testing;

pub use bang::{BANG_S_MIN, is_short_bang, write_bang};
pub use compare::{Claim, Pairs, Side, Step, compare};
pub use error::ReportError;
pub use experiment::{Experiment, Kind, Results, write_report};
pub use folder::{RunFolder, write_run};
pub use live::LivePage;
pub use recompute::{Difference, Recomputed, recompute};
pub use run_page::objection;
pub use stored::{read_bang, read_run};
pub use terminal::{
    curve_line, live_header, live_line, sparkline, summary_text, time_left_s, wrapped,
};
