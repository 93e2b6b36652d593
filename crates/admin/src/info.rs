//! The page `info`, in the layout that Squid's exporters parse.

use std::fmt::Write;

use humboldt_base::clock::UnixMillis;
use humboldt_base::counters::Counter;

use crate::descriptors;
use crate::figures::Figures;
use crate::interval::{Interval, ratio};
use crate::service_times;

/// The page.
pub(crate) fn render(figures: &Figures) -> String {
    let mut out = String::new();
    write_program(&mut out, figures);
    write_connections(&mut out, figures);
    write_cache(&mut out, figures);
    service_times::write_medians(&mut out, figures);
    write_resources(&mut out, figures);
    write_descriptors(&mut out, figures);
    write_structures(&mut out, figures);
    out
}

fn date(at: UnixMillis) -> String {
    String::from_utf8_lossy(&humboldt_http::date::format(at.secs())).into_owned()
}

fn write_program(out: &mut String, figures: &Figures) {
    _ = writeln!(out, "Squid Object Cache: Version Humboldt/{}", env!("CARGO_PKG_VERSION"));
    _ = writeln!(out, "Build Info: Humboldt, in the layout of Squid 5.7");
    _ = writeln!(out, "Service Name: humboldt");
    _ = writeln!(out, "Start Time:\t{}", date(figures.started));
    _ = writeln!(out, "Current Time:\t{}", date(figures.totals.at));
}

fn write_connections(out: &mut String, figures: &Figures) {
    let requests = figures.totals.count(Counter::ClientRequests);
    let minutes = figures.totals.uptime.as_secs_f64() / 60.0;
    let failures = figures.five_minutes().failure_ratio().unwrap_or(0.0);
    _ = writeln!(out, "Connection information for squid:");
    _ = writeln!(out, "\tNumber of clients accessing cache:\t{}", figures.connections);
    _ = writeln!(out, "\tNumber of HTTP requests received:\t{requests}");
    for absent in [
        "Number of ICP messages received",
        "Number of ICP messages sent",
        "Number of queued ICP replies",
        "Number of HTCP messages received",
        "Number of HTCP messages sent",
    ] {
        _ = writeln!(out, "\t{absent}:\t0");
    }
    let per_minute = ratio(requests as f64, minutes).unwrap_or(0.0);
    _ = writeln!(out, "\tRequest failure ratio:\t{failures:5.2}");
    _ = writeln!(out, "\tAverage HTTP requests per minute since start:\t{per_minute:.1}");
    _ = writeln!(out, "\tAverage ICP messages per minute since start:\t0.0");
    _ = writeln!(out, "\tSelect loop called: 0 times, 0.000 ms avg");
}

type Ratio = fn(&Interval<'_>) -> Option<f64>;

const RATIOS: &[(&str, Ratio)] = &[
    ("Hits as % of all requests", |interval| interval.hit_ratio()),
    ("Hits as % of bytes sent", |interval| interval.byte_hit_ratio()),
    ("Memory hits as % of hit requests", |interval| interval.memory_hit_ratio()),
    ("Disk hits as % of hit requests", |interval| interval.disk_hit_ratio()),
];

fn write_cache(out: &mut String, figures: &Figures) {
    _ = writeln!(out, "Cache information for squid:");
    for (label, ratio) in RATIOS {
        let percent = |interval: Interval<'_>| ratio(&interval).unwrap_or(0.0) * 100.0;
        let (five, sixty) = (percent(figures.five_minutes()), percent(figures.sixty_minutes()));
        _ = writeln!(out, "\t{label}:\t5min: {five:.1}%, 60min: {sixty:.1}%");
    }
    let (used, capacity) =
        (figures.disk(|dir| dir.used_bytes), figures.disk(|dir| dir.capacity_bytes));
    write_capacity(out, "Storage Swap", used, capacity);
    write_capacity(out, "Storage Mem", figures.mem.used_bytes, figures.mem.limit_bytes);
    let mean = ratio(kib(used), figures.disk(|dir| dir.objects) as f64).unwrap_or(0.0);
    _ = writeln!(out, "\tMean Object Size:\t{mean:.2} KB");
    _ = writeln!(out, "\tRequests given to unlinkd:\t0");
}

fn write_capacity(out: &mut String, label: &str, used: u64, capacity: u64) {
    let percent = ratio(used as f64, capacity as f64).unwrap_or(0.0) * 100.0;
    let free = (100.0 - percent).max(0.0);
    _ = writeln!(out, "\t{label} size:\t{:.0} KB", kib(used));
    _ = writeln!(out, "\t{label} capacity:\t{percent:4.1}% used, {free:4.1}% free");
}

fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

fn write_resources(out: &mut String, figures: &Figures) {
    let (cpu, uptime) = (figures.totals.cpu.as_secs_f64(), figures.totals.uptime.as_secs_f64());
    let usage = ratio(cpu, uptime).unwrap_or(0.0) * 100.0;
    let (five, sixty) =
        (figures.five_minutes().cpu_ratio() * 100.0, figures.sixty_minutes().cpu_ratio() * 100.0);
    _ = writeln!(out, "Resource usage for squid:");
    _ = writeln!(out, "\tUP Time:\t{uptime:.3} seconds");
    _ = writeln!(out, "\tCPU Time:\t{cpu:.3} seconds");
    _ = writeln!(out, "\tCPU Usage:\t{usage:.2}%");
    _ = writeln!(out, "\tCPU Usage, 5 minute avg:\t{five:.2}%");
    _ = writeln!(out, "\tCPU Usage, 60 minute avg:\t{sixty:.2}%");
    _ = writeln!(out, "\tMaximum Resident Size: {:.0} KB", kib(figures.process.resident_max_bytes));
    _ = writeln!(out, "\tPage faults with physical i/o: {}", figures.totals.major_faults);
    let accounted = kib(figures.mem.used_bytes + figures.disk(|dir| dir.index_bytes));
    _ = writeln!(out, "Memory accounted for:");
    _ = writeln!(out, "\tTotal accounted:       {accounted:6.0} KB");
    _ = writeln!(out, "\tmemPoolAlloc calls: {:9}", 0);
    _ = writeln!(out, "\tmemPoolFree calls:  {:9}", 0);
}

fn write_descriptors(out: &mut String, figures: &Figures) {
    let (open, max) = (figures.process.open_descriptors, figures.descriptors_max);
    let available = max.saturating_sub(open);
    _ = writeln!(out, "File descriptor usage for squid:");
    _ = writeln!(out, "\tMaximum number of file descriptors:   {max:4}");
    _ = writeln!(out, "\tLargest file desc currently in use:   {:4}", descriptors::largest());
    _ = writeln!(out, "\tNumber of file desc currently in use: {open:4}");
    _ = writeln!(out, "\tFiles queued for open:                {:4}", 0);
    _ = writeln!(out, "\tAvailable number of file descriptors: {available:4}");
    _ = writeln!(out, "\tReserved number of file descriptors:  {:4}", 0);
    _ = writeln!(
        out,
        "\tStore Disk files open:                {:4}",
        figures.disk(|dir| dir.open_files)
    );
}

fn write_structures(out: &mut String, figures: &Figures) {
    _ = writeln!(out, "Internal Data Structures:");
    _ = writeln!(out, "\t{:6} StoreEntries", figures.store_entries());
    _ = writeln!(out, "\t{:6} StoreEntries with MemObjects", figures.mem.entries + figures.fetches);
    _ = writeln!(out, "\t{:6} Hot Object Cache Items", figures.mem.entries);
    _ = writeln!(out, "\t{:6} on-disk objects", figures.disk(|dir| dir.objects));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_where_parsers_look_for_them() {
        let page = render(&Figures::busy());
        let first = format!("Squid Object Cache: Version Humboldt/{}\n", env!("CARGO_PKG_VERSION"));
        assert!(page.starts_with(&first), "{page}");
        for line in [
            "Current Time:\tTue, 14 Nov 2023 22:15:00 GMT",
            "\tNumber of HTTP requests received:\t10000",
            "\tAverage HTTP requests per minute since start:\t6000.0",
            "\tHits as % of all requests:\t5min: 75.0%, 60min: 75.0%",
            "\tStorage Swap size:\t2048 KB",
            "\tStorage Swap capacity:\t25.0% used, 75.0% free",
            "\tStorage Mem capacity:\t 9.5% used, 90.5% free",
            "\tMean Object Size:\t34.13 KB",
            "\tUP Time:\t100.000 seconds",
            "\tCPU Usage:\t2.50%",
            "\tCPU Usage, 5 minute avg:\t2.50%",
            "\tMaximum number of file descriptors:   1024",
            "\tAvailable number of file descriptors: 1024",
            "\tStore Disk files open:                   0",
            "\t    72 StoreEntries",
            "\t    60 on-disk objects",
        ] {
            assert!(page.contains(&format!("\n{line}\n")), "{line} is not in\n{page}");
        }
    }
}
