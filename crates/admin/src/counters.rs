//! The page `counters`: totals since the start, in the layout that Squid's exporters parse.

use std::fmt::Write;

use humboldt_base::clock::UnixMillis;
use humboldt_base::counters::Counter;

use crate::figures::Figures;
use crate::totals::Totals;

/// The source of a line's value.
#[derive(Copy, Clone)]
pub(crate) enum Source {
    /// A whole number.
    Number(fn(&Totals) -> u64),
    /// Seconds, shown with six decimals.
    Seconds(fn(&Totals) -> f64),
    /// Always 0: Humboldt does not have the events that Squid counts here, or does not count them.
    Absent,
}

use Source::{Absent, Number, Seconds};

/// A line: Squid's label and the value.
pub(crate) type Line = (&'static str, Source);

/// All lines after `sample_time`, in Squid's order.
pub(crate) const LINES: &[Line] = &[
    ("client_http.requests", Number(|t| t.count(Counter::ClientRequests))),
    ("client_http.hits", Number(|t| t.count(Counter::ClientHits))),
    // Squid counts refusals among errors, too.
    (
        "client_http.errors",
        Number(|t| t.count(Counter::ClientErrors) + t.count(Counter::ClientDenied)),
    ),
    ("client_http.kbytes_in", Number(|t| kib(t, Counter::ClientInBytes))),
    ("client_http.kbytes_out", Number(|t| kib(t, Counter::ClientOutBytes))),
    ("client_http.hit_kbytes_out", Number(|t| kib(t, Counter::ClientHitOutBytes))),
    // As in Squid, a tunnel is a request to a server that is not HTTP.
    (
        "server.all.requests",
        Number(|t| t.count(Counter::ServerRequests) + t.count(Counter::Tunnels)),
    ),
    ("server.all.errors", Number(|t| t.count(Counter::ServerErrors))),
    ("server.all.kbytes_in", Number(|t| kib(t, Counter::ServerInBytes))),
    ("server.all.kbytes_out", Number(|t| kib(t, Counter::ServerOutBytes))),
    ("server.http.requests", Number(|t| t.count(Counter::ServerRequests))),
    ("server.http.errors", Number(|t| t.count(Counter::ServerErrors))),
    ("server.http.kbytes_in", Number(|t| kib(t, Counter::ServerInBytes))),
    ("server.http.kbytes_out", Number(|t| kib(t, Counter::ServerOutBytes))),
    ("server.ftp.requests", Absent),
    ("server.ftp.errors", Absent),
    ("server.ftp.kbytes_in", Absent),
    ("server.ftp.kbytes_out", Absent),
    ("server.other.requests", Number(|t| t.count(Counter::Tunnels))),
    ("server.other.errors", Absent),
    ("server.other.kbytes_in", Absent),
    ("server.other.kbytes_out", Absent),
    ("icp.pkts_sent", Absent),
    ("icp.pkts_recv", Absent),
    ("icp.queries_sent", Absent),
    ("icp.replies_sent", Absent),
    ("icp.queries_recv", Absent),
    ("icp.replies_recv", Absent),
    ("icp.query_timeouts", Absent),
    ("icp.replies_queued", Absent),
    ("icp.kbytes_sent", Absent),
    ("icp.kbytes_recv", Absent),
    ("icp.q_kbytes_sent", Absent),
    ("icp.r_kbytes_sent", Absent),
    ("icp.q_kbytes_recv", Absent),
    ("icp.r_kbytes_recv", Absent),
    ("icp.times_used", Absent),
    ("cd.times_used", Absent),
    ("cd.msgs_sent", Absent),
    ("cd.msgs_recv", Absent),
    ("cd.memory", Absent),
    ("cd.local_memory", Absent),
    ("cd.kbytes_sent", Absent),
    ("cd.kbytes_recv", Absent),
    ("unlink.requests", Absent),
    ("page_faults", Number(|t| t.major_faults)),
    ("select_loops", Absent),
    ("cpu_time", Seconds(|t| t.cpu.as_secs_f64())),
    ("wall_time", Seconds(|t| t.uptime.as_secs_f64())),
    ("swap.outs", Number(|t| t.count(Counter::SwapOuts))),
    ("swap.ins", Number(|t| t.count(Counter::SwapIns))),
    ("swap.files_cleaned", Absent),
    ("aborted_requests", Number(|t| t.aborted)),
    // Since Squid 6.
    ("hit_validation.attempts", Absent),
    ("hit_validation.refusals.due_to_locking", Absent),
    ("hit_validation.refusals.due_to_zeroSize", Absent),
    ("hit_validation.refusals.due_to_timeLimit", Absent),
    ("hit_validation.failures", Absent),
];

fn kib(totals: &Totals, counter: Counter) -> u64 {
    totals.count(counter) / 1024
}

/// A moment as Squid shows it: seconds with six decimals, and a date.
pub(crate) fn moment(at: UnixMillis) -> String {
    let date = humboldt_http::date::format(at.secs());
    format!("{}.{:03}000 ({})", at.secs(), at.millis_of_sec(), String::from_utf8_lossy(&date))
}

/// The page.
pub(crate) fn render(figures: &Figures) -> String {
    let totals = &figures.totals;
    let mut out = format!("sample_time = {}\n", moment(totals.at));
    for (label, source) in LINES {
        _ = match source {
            Number(read) => writeln!(out, "{label} = {}", read(totals)),
            Seconds(read) => writeln!(out, "{label} = {:.6}", read(totals)),
            Absent => writeln!(out, "{label} = 0"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_as_in_squid() {
        let page = render(&Figures::busy());
        assert!(
            page.starts_with("sample_time = 1700000100.000000 (Tue, 14 Nov 2023 22:15:00 GMT)\n"),
            "{page}"
        );
        assert!(page.contains("\nclient_http.requests = 10000\nclient_http.hits = 7500\n"));
        assert!(page.contains("\ncpu_time = 2.500000\nwall_time = 100.000000\n"));
    }
}
