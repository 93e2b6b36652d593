//! squid.conf: lexer, the table of directives, typed configuration, diagnostics.
//!
//! [`load`] reads a file into a [`Config`] and [`Diagnostics`]; a configuration with errors must
//! not be used. Nothing in here panics on any input, and every size is bounded.

mod builtin;
mod bumping;
mod covered;
mod diagnostics;
mod docs;
mod external_format;
mod filters;
mod glob;
mod hardware;
mod kinds;
mod lexer;
mod line;
mod lists;
mod loader;
mod log_codes;
mod log_format;
mod log_json;
mod page_files;
mod posix;
mod state;
mod suggest;
mod table;
mod tally;
mod tls_errors;
mod types;

pub use builtin::{BUILTIN_STORE, builtin_text};
pub use diagnostics::{Diagnostic, Diagnostics, Severity};
pub use docs::docs_markdown;
pub use external_format::{ExternalCode, ExternalPart, ExternalQuoting};
pub use hardware::{parse_eui48, parse_eui64, parse_fingerprint};
pub use lists::{List, Need, Supply};
pub use loader::{load, parse_str};
pub use log_codes::{BUILT_IN_JSON, JsonKind, LogCode};
pub use log_format::{LogFormatProblem, LogPart, LogValue, TIME_CONVERSIONS, log_parts};
pub use log_json::{JsonField, json_fields};
pub use posix::{literal as regex_literal, translate as translate_regex};
pub use table::{Config, Directive, Status, directives};
pub use tls_errors::tls_error_names;
pub use types::*;
