//! The one place that writes to the terminal.

use crate::Failure;
use indicatif::ProgressDrawTarget;
use std::fmt;
use std::io::{IsTerminal, Write};

/// Writes a line to standard output. A reader that has gone (`| head`) is no reason to stop
/// measuring.
macro_rules! say {
    ($($arguments:tt)*) => {
        $crate::output::line(format_args!($($arguments)*))
    };
}
pub(crate) use say;

pub(crate) fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// The place of progress bars: standard error if that is a terminal, and nowhere else.
pub(crate) fn bars() -> ProgressDrawTarget {
    if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    }
}

/// Reports why the program ends without having done its task.
pub(crate) fn complain(failure: &Failure) {
    let _ = writeln!(std::io::stderr().lock(), "humboldt-lab: {failure}");
}
