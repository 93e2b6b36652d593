//! The events on the wires, for the message of a scenario that failed.

use crate::script::{Party, Side};
use std::fmt::Write;

/// The events so far.
#[derive(Default)]
pub(crate) struct Transcript {
    text: String,
}

/// More of one message than this is left out.
const MAX_LINES: usize = 30;
const MAX_COLUMNS: usize = 160;

impl Transcript {
    /// Bytes that one party sent or got.
    pub(crate) fn note(&mut self, party: &Party, verb: &str, bytes: &[u8]) {
        let side = match party.side {
            Side::Client => "client",
            Side::Origin => "origin",
        };
        let name = format!("{side} {}", party.label);
        let _ = writeln!(self.text, "  {} {verb}", name.trim_end());
        let lines: Vec<String> = bytes.split_inclusive(|&byte| byte == b'\n').map(shown).collect();
        for line in lines.iter().take(MAX_LINES) {
            let _ = writeln!(self.text, "      {line}");
        }
        if lines.len() > MAX_LINES {
            let _ = writeln!(self.text, "      … {} more lines", lines.len() - MAX_LINES);
        }
    }

    /// Something that has no bytes.
    pub(crate) fn say(&mut self, what: &str) {
        let _ = writeln!(self.text, "  {what}");
    }

    /// Everything.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// A line as it can be printed.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let line = bytes.strip_suffix(b"\r\n").unwrap_or(bytes);
    let text: String = line
        .iter()
        .take(MAX_COLUMNS)
        .map(|&byte| match byte {
            b' '..=b'~' => char::from(byte).to_string(),
            other => format!("\\x{other:02x}"),
        })
        .collect();
    let rest = line.len().saturating_sub(MAX_COLUMNS);
    if rest > 0 { format!("{text} … {rest} more bytes") } else { text }
}
