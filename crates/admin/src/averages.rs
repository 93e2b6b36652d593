//! The pages `5min` and `60min`: averages in the layout that Squid's exporters parse.

use std::fmt::Write;

use humboldt_base::counters::Counter;
use humboldt_proxy::shared::TimesOf;

use crate::counters::{LINES, Source, moment};
use crate::figures::Figures;
use crate::interval::Interval;

/// A line between `sample_end_time` and `cpu_time`.
enum Average {
    /// A line of `counters`, per second.
    PerSecond(&'static str),
    /// A counter that is not in `counters`, per second.
    Count(&'static str, Counter),
    /// The median of service times.
    Median(&'static str, TimesOf),
    /// Always 0, with the unit behind it.
    Absent(&'static str, &'static str),
}

use Average::{Absent, Count, Median, PerSecond};

/// In Squid's order.
const AVERAGES: &[Average] = &[
    PerSecond("client_http.requests"),
    PerSecond("client_http.hits"),
    PerSecond("client_http.errors"),
    PerSecond("client_http.kbytes_in"),
    PerSecond("client_http.kbytes_out"),
    Median("client_http.all_median_svc_time", TimesOf::All),
    Median("client_http.miss_median_svc_time", TimesOf::Misses),
    Median("client_http.nm_median_svc_time", TimesOf::NotModified),
    Median("client_http.nh_median_svc_time", TimesOf::NearHits),
    Median("client_http.hit_median_svc_time", TimesOf::Hits),
    PerSecond("server.all.requests"),
    PerSecond("server.all.errors"),
    PerSecond("server.all.kbytes_in"),
    PerSecond("server.all.kbytes_out"),
    PerSecond("server.http.requests"),
    PerSecond("server.http.errors"),
    PerSecond("server.http.kbytes_in"),
    PerSecond("server.http.kbytes_out"),
    PerSecond("server.ftp.requests"),
    PerSecond("server.ftp.errors"),
    PerSecond("server.ftp.kbytes_in"),
    PerSecond("server.ftp.kbytes_out"),
    PerSecond("server.other.requests"),
    PerSecond("server.other.errors"),
    PerSecond("server.other.kbytes_in"),
    PerSecond("server.other.kbytes_out"),
    PerSecond("icp.pkts_sent"),
    PerSecond("icp.pkts_recv"),
    PerSecond("icp.queries_sent"),
    PerSecond("icp.replies_sent"),
    PerSecond("icp.queries_recv"),
    PerSecond("icp.replies_recv"),
    PerSecond("icp.replies_queued"),
    PerSecond("icp.query_timeouts"),
    PerSecond("icp.kbytes_sent"),
    PerSecond("icp.kbytes_recv"),
    PerSecond("icp.q_kbytes_sent"),
    PerSecond("icp.r_kbytes_sent"),
    PerSecond("icp.q_kbytes_recv"),
    PerSecond("icp.r_kbytes_recv"),
    Absent("icp.query_median_svc_time", " seconds"),
    Absent("icp.reply_median_svc_time", " seconds"),
    Absent("dns.median_svc_time", " seconds"),
    PerSecond("unlink.requests"),
    PerSecond("page_faults"),
    PerSecond("select_loops"),
    Absent("select_fds", "/sec"),
    Absent("average_select_fd_period", "/fd"),
    Absent("median_select_fds", ""),
    PerSecond("swap.outs"),
    PerSecond("swap.ins"),
    PerSecond("swap.files_cleaned"),
    PerSecond("aborted_requests"),
    PerSecond("hit_validation.attempts"),
    PerSecond("hit_validation.refusals.due_to_locking"),
    PerSecond("hit_validation.refusals.due_to_zeroSize"),
    PerSecond("hit_validation.refusals.due_to_timeLimit"),
    PerSecond("hit_validation.failures"),
    Absent("syscalls.disk.opens", "/sec"),
    Absent("syscalls.disk.closes", "/sec"),
    Absent("syscalls.disk.reads", "/sec"),
    Absent("syscalls.disk.writes", "/sec"),
    Absent("syscalls.disk.seeks", "/sec"),
    Absent("syscalls.disk.unlinks", "/sec"),
    Count("syscalls.sock.accepts", Counter::ClientConnections),
    Absent("syscalls.sock.sockets", "/sec"),
    Count("syscalls.sock.connects", Counter::ServerConnections),
    Absent("syscalls.sock.binds", "/sec"),
    Absent("syscalls.sock.closes", "/sec"),
    Absent("syscalls.sock.reads", "/sec"),
    Absent("syscalls.sock.writes", "/sec"),
    Absent("syscalls.sock.recvfroms", "/sec"),
    Absent("syscalls.sock.sendtos", "/sec"),
];

/// The page `5min`.
pub(crate) fn render_five(figures: &Figures) -> String {
    render(figures.five_minutes())
}

/// The page `60min`.
pub(crate) fn render_sixty(figures: &Figures) -> String {
    render(figures.sixty_minutes())
}

fn render(interval: Interval<'_>) -> String {
    let (start, end) = (moment(interval.from.at), moment(interval.to.at));
    let mut out = format!("sample_start_time = {start}\nsample_end_time = {end}\n");
    for average in AVERAGES {
        _ = match average {
            PerSecond(label) => writeln!(out, "{label} = {:.6}/sec", per_second(interval, label)),
            Count(label, counter) => {
                writeln!(out, "{label} = {:.6}/sec", interval.rate(|t| t.count(*counter)))
            }
            Median(label, of) => {
                writeln!(out, "{label} = {:.6} seconds", interval.percentile(*of, 0.5))
            }
            Absent(label, unit) => writeln!(out, "{label} = 0.000000{unit}"),
        };
    }
    let percent = interval.cpu_ratio() * 100.0;
    _ = writeln!(out, "cpu_time = {:.6} seconds", interval.cpu_secs());
    _ = writeln!(out, "wall_time = {:.6} seconds", interval.secs());
    _ = writeln!(out, "cpu_usage = {percent:.6}%");
    out
}

fn per_second(interval: Interval<'_>, label: &str) -> f64 {
    match LINES.iter().find(|(known, _)| *known == label) {
        Some((_, Source::Number(read))) => interval.rate(read),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_counters() {
        for average in AVERAGES {
            if let PerSecond(label) = average {
                assert!(LINES.iter().any(|(known, _)| known == label), "{label}");
            }
        }
    }

    #[test]
    fn lines_look_as_in_squid() {
        let page = render_five(&Figures::busy());
        assert!(
            page.contains(
                "\nclient_http.requests = 100.000000/sec\nclient_http.hits = 75.000000/sec\n"
            ),
            "{page}"
        );
        let connections = (10_000.0 + Counter::ClientConnections as usize as f64) / 100.0;
        assert!(page.contains(&format!("\nsyscalls.sock.accepts = {connections:.6}/sec\n")));
        assert!(page.ends_with(
            "\ncpu_time = 2.500000 seconds\nwall_time = 100.000000 seconds\ncpu_usage = 2.500000%\n"
        ));
    }
}
