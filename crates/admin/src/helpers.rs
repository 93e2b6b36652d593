//! The pages of helper programs, in Squid's layout.

use std::fmt::Write;

use humboldt_helpers::{ChildStatistics, Kind, Statistics};

use crate::figures::Figures;

const FLAGS: &str = "\nFlags key:\n\n   B\tBUSY\n   R\tRESERVED\n   S\tSHUTDOWN PENDING\n";

/// The page of the helpers of one kind.
pub(crate) fn render(figures: &Figures, kind: Kind) -> String {
    let mut out = format!("{}:\n", kind.title());
    let of_kind = figures.helpers.iter().filter(|helper| helper.kind == kind);
    for helper in of_kind {
        write_helper(&mut out, helper);
    }
    out
}

fn write_helper(out: &mut String, helper: &Statistics) {
    let leaving = if helper.is_in_force { "" } else { " (of an older configuration)" };
    _ = writeln!(out, "\nHelper: {}{leaving}", helper.name);
    _ = writeln!(out, "program: {}", helper.program);
    _ = writeln!(
        out,
        "number active: {} of {} ({} shutting down)",
        helper.active, helper.max, helper.ending
    );
    _ = writeln!(out, "requests sent: {}", helper.requests);
    _ = writeln!(out, "replies received: {}", helper.replies);
    _ = writeln!(out, "requests timedout: {}", helper.timed_out);
    _ = writeln!(out, "queue length: {}", helper.queue);
    _ = writeln!(out, "avg service time: {} msec\n", helper.average.as_millis());
    _ = writeln!(
        out,
        "{:>7}\t{:>7}\t{:>11}\t{:>11}\t{:>11}\t{:>6}\t{:>7}",
        "ID #", "PID", "# Requests", "# Replies", "# Timed-out", "Flags", "Time"
    );
    helper.children.iter().for_each(|child| write_child(out, child));
    out.push_str(FLAGS);
}

fn write_child(out: &mut String, child: &ChildStatistics) {
    let flag = |is_set: bool, letter| if is_set { letter } else { ' ' };
    let flags =
        [flag(child.pending > 0, 'B'), flag(child.is_reserved, 'R'), flag(child.is_ending, 'S')];
    let flags: String = flags.iter().collect();
    _ = writeln!(
        out,
        "{:>7}\t{:>7}\t{:>11}\t{:>11}\t{:>11}\t{flags:>6}\t{:>7.3}",
        child.number,
        child.pid,
        child.requests,
        child.replies,
        child.timed_out,
        child.last.as_secs_f64()
    );
}
