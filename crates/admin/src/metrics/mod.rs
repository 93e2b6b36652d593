//! The page `metrics`: every figure for Prometheus, from one table.

mod exposition;

use humboldt_base::counters::Counter;
use humboldt_helpers::Statistics;
use humboldt_logs::access::Tag;
use humboldt_proxy::cut::Cut;
use humboldt_proxy::shared::TimesOf;

use self::exposition::Number;
use crate::figures::{DirFigures, Figures};
use crate::{memory, rules};

pub(crate) use self::exposition::{CONTENT_TYPE, Kind, Samples};

/// The beginning of all names of metrics.
pub(crate) const PREFIX: &str = "humboldt_";

/// A metric: a name, and samples that differ in their labels.
pub(crate) struct Family {
    /// Without [`PREFIX`].
    pub name: &'static str,
    /// The kind of the metric.
    pub kind: Kind,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// One line that explains it.
    pub help: &'static str,
    write: fn(&Figures, &mut Samples<'_>),
}

const fn family(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
    write: fn(&Figures, &mut Samples<'_>),
) -> Family {
    Family { name, kind, labels, help, write }
}

const DIR: &[&str] = &["dir", "path", "scheme"];
const HELPER: &[&str] = &["kind", "helper"];

/// Everything but the plain counters of [`Counter::ALL`].
pub(crate) const FAMILIES: &[Family] = &[
    family(
        "build_info",
        Kind::Gauge,
        &["version"],
        "Always 1; the version is in the label.",
        |_, out| {
            out.add(&[env!("CARGO_PKG_VERSION")], 1);
        },
    ),
    family(
        "start_time_seconds",
        Kind::Gauge,
        &[],
        "When the program started, in Unix time.",
        |f, out| {
            out.add(&[], f.started.0 as f64 / 1000.0);
        },
    ),
    family(
        "uptime_seconds",
        Kind::Gauge,
        &[],
        "How long the program has been running.",
        |f, out| {
            out.add(&[], f.totals.uptime.as_secs_f64());
        },
    ),
    family("cores", Kind::Gauge, &[], "Threads that serve requests.", |f, out| {
        out.add(&[], f.cores)
    }),
    family(
        "client_connections_open",
        Kind::Gauge,
        &[],
        "Connections open to clients.",
        |f, out| {
            out.add(&[], f.connections);
        },
    ),
    family(
        "client_budgets",
        Kind::Gauge,
        &[],
        "Clients whose use of their budgets is known (`client_budget`).",
        |f, out| out.add(&[], f.budgets.clients),
    ),
    family(
        "client_budgets_evicted_total",
        Kind::Counter,
        &[],
        "Clients that left the table of budgets for others, which took over what they owed.",
        |f, out| out.add(&[], f.budgets.evicted),
    ),
    family(
        "client_http_results_total",
        Kind::Counter,
        &["result"],
        "Finished requests by result code, as the access log names it.",
        |f, out| {
            Tag::ALL.iter().for_each(|tag| out.add(&[tag.name()], f.totals.result(*tag).requests))
        },
    ),
    family(
        "client_http_result_bytes_total",
        Kind::Counter,
        &["result"],
        "Bytes sent to clients by result code.",
        |f, out| {
            Tag::ALL.iter().for_each(|tag| out.add(&[tag.name()], f.totals.result(*tag).bytes))
        },
    ),
    family(
        "client_http_aborted_total",
        Kind::Counter,
        &[],
        "Answers that did not reach the client whole.",
        |f, out| out.add(&[], f.totals.aborted),
    ),
    family(
        "rule_decisions_total",
        Kind::Counter,
        rules::LABELS,
        "Decisions of each line of the lists that refuse, by its words; `none` where no line applied, `others` for lines beyond the first ones. A line that a reconfiguration leaves as it was goes on counting.",
        |f, out| rules::write_samples(f, out, |count| count.decided),
    ),
    family(
        "rule_refusals_reported_total",
        Kind::Counter,
        rules::LABELS,
        "Those of them that would have refused, had that not only been to be reported.",
        |f, out| rules::write_samples(f, out, |count| count.reported),
    ),
    family(
        "configuration_generation",
        Kind::Gauge,
        &[],
        "Number of the configuration in force: 1 at the start, and one more with each reconfiguration.",
        |f, out| out.add(&[], f.generation),
    ),
    family(
        "configuration_start_time_seconds",
        Kind::Gauge,
        &[],
        "Since when it is in force, in Unix time.",
        |f, out| out.add(&[], f.in_force_since.0 as f64 / 1000.0),
    ),
    family(
        "failed_reconfigurations_total",
        Kind::Counter,
        &[],
        "Reconfigurations that left the old configuration in force, because the new one has errors.",
        |f, out| out.add(&[], f.failed_reconfigurations),
    ),
    family(
        "client_connections_cut_total",
        Kind::Counter,
        &["reason"],
        "Connections that ended before their answer was complete, or without any, by reason.",
        |f, out| Cut::ALL.iter().for_each(|cut| out.add(&[cut.name()], f.totals.cut(*cut))),
    ),
    family(
        "hit_ratio",
        Kind::Gauge,
        &["window"],
        "Hits among all requests of the last 5 or 60 minutes; NaN without requests.",
        |f, out| windows(f, out, |interval| interval.hit_ratio()),
    ),
    family(
        "byte_hit_ratio",
        Kind::Gauge,
        &["window"],
        "Bytes of hits among all bytes sent to clients in the last 5 or 60 minutes; NaN when none were sent.",
        |f, out| windows(f, out, |interval| interval.byte_hit_ratio()),
    ),
    family(
        "service_time_seconds",
        Kind::Histogram,
        &[],
        "Time from the end of a request's head to the end of its answer, all requests.",
        |f, out| out.add_times(&[], &f.totals.times(TimesOf::All)),
    ),
    family(
        "service_time_by_kind_seconds",
        Kind::Histogram,
        &["kind"],
        "The same by kind of answer: miss, hit, near_hit (a server was asked first), not_modified (a condition of the client).",
        |f, out| KINDS.iter().for_each(|(of, name)| out.add_times(&[name], &f.totals.times(*of))),
    ),
    family("cache_mem_limit_bytes", Kind::Gauge, &[], "cache_mem.", |f, out| {
        out.add(&[], f.mem.limit_bytes)
    }),
    family(
        "memory_bytes",
        Kind::Gauge,
        &["use"],
        "Memory accounted for, by use; the uses do not overlap.",
        |f, out| {
            memory::USES.iter().for_each(|memory| out.add(&[memory.name], (memory.read)(f)));
        },
    ),
    family("memory_objects", Kind::Gauge, &[], "Entries in the memory cache.", |f, out| {
        out.add(&[], f.mem.entries)
    }),
    family(
        "fetches_in_flight",
        Kind::Gauge,
        &[],
        "Fetches that other requests can join now.",
        |f, out| {
            out.add(&[], f.fetches);
        },
    ),
    family("dns_cached_names", Kind::Gauge, &[], "Names in the name cache.", |f, out| {
        out.add(&[], f.dns_names)
    }),
    family("open_descriptors", Kind::Gauge, &[], "Descriptors open.", |f, out| {
        out.add(&[], f.process.open_descriptors);
    }),
    family("max_descriptors", Kind::Gauge, &[], "Descriptors allowed.", |f, out| {
        out.add(&[], f.descriptors_max)
    }),
    family(
        "cpu_seconds_total",
        Kind::Counter,
        &["mode"],
        "Processor time, in the program and in the kernel.",
        |f, out| {
            out.add(&["user"], f.process.user.as_secs_f64());
            out.add(&["system"], f.process.system.as_secs_f64());
        },
    ),
    family("resident_bytes", Kind::Gauge, &[], "Memory resident.", |f, out| {
        out.add(&[], f.process.resident_bytes)
    }),
    family(
        "resident_max_bytes",
        Kind::Gauge,
        &[],
        "Most memory that was ever resident.",
        |f, out| {
            out.add(&[], f.process.resident_max_bytes);
        },
    ),
    family(
        "page_faults_total",
        Kind::Counter,
        &["kind"],
        "Page faults; major ones needed the disk.",
        |f, out| {
            out.add(&["major"], f.process.major_faults);
            out.add(&["minor"], f.process.minor_faults);
        },
    ),
    family(
        "helper_processes",
        Kind::Gauge,
        HELPER,
        "Processes of a helper program that take questions.",
        |f, out| helpers(f, out, |helper| helper.active as u64),
    ),
    family(
        "helper_queue",
        Kind::Gauge,
        HELPER,
        "Questions that wait for a process of a helper program.",
        |f, out| helpers(f, out, |helper| helper.queue as u64),
    ),
    family(
        "helper_requests_total",
        Kind::Counter,
        HELPER,
        "Questions to a helper program since the last reconfiguration.",
        |f, out| helpers(f, out, |helper| helper.requests),
    ),
    family(
        "helper_replies_total",
        Kind::Counter,
        HELPER,
        "Answers of a helper program since the last reconfiguration.",
        |f, out| helpers(f, out, |helper| helper.replies),
    ),
    family(
        "helper_timeouts_total",
        Kind::Counter,
        HELPER,
        "Questions without an answer in time since the last reconfiguration.",
        |f, out| helpers(f, out, |helper| helper.timed_out),
    ),
    family("store_objects", Kind::Gauge, DIR, "Objects in a cache directory.", |f, out| {
        dirs(f, out, |dir| dir.stats.objects.into());
    }),
    family("store_used_bytes", Kind::Gauge, DIR, "Bytes in use in a cache directory.", |f, out| {
        dirs(f, out, |dir| dir.stats.used_bytes.into());
    }),
    family(
        "store_capacity_bytes",
        Kind::Gauge,
        DIR,
        "Configured size of a cache directory.",
        |f, out| {
            dirs(f, out, |dir| dir.stats.capacity_bytes.into());
        },
    ),
    family(
        "store_index_bytes",
        Kind::Gauge,
        DIR,
        "Memory of a cache directory's index.",
        |f, out| {
            dirs(f, out, |dir| dir.stats.index_bytes.into());
        },
    ),
    family("store_open_files", Kind::Gauge, DIR, "Files a cache directory has open.", |f, out| {
        dirs(f, out, |dir| dir.stats.open_files.into());
    }),
    family(
        "store_reads_total",
        Kind::Counter,
        DIR,
        "Objects read from a cache directory.",
        |f, out| {
            dirs(f, out, |dir| dir.stats.reads.into());
        },
    ),
    family(
        "store_writes_total",
        Kind::Counter,
        DIR,
        "Objects written to a cache directory.",
        |f, out| {
            dirs(f, out, |dir| dir.stats.writes.into());
        },
    ),
    family(
        "store_evictions_total",
        Kind::Counter,
        DIR,
        "Objects removed from a cache directory to make room.",
        |f, out| {
            dirs(f, out, |dir| dir.stats.evictions.into());
        },
    ),
    family(
        "store_errors_total",
        Kind::Counter,
        DIR,
        "Errors of a cache directory, records that did not verify among them.",
        |f, out| dirs(f, out, |dir| dir.stats.errors.into()),
    ),
    family(
        "store_shed_total",
        Kind::Counter,
        DIR,
        "Objects that a cache directory did not read or write because too much was waiting.",
        |f, out| dirs(f, out, |dir| dir.stats.shed.into()),
    ),
    family(
        "store_shed_hits_total",
        Kind::Counter,
        DIR,
        "The part of them that were hits, and became misses.",
        |f, out| dirs(f, out, |dir| dir.stats.shed_hits.into()),
    ),
    family(
        "store_waits_total",
        Kind::Counter,
        DIR,
        "New objects whose clients have waited for the disk of a cache directory (`overload=wait`).",
        |f, out| dirs(f, out, |dir| dir.stats.waits.into()),
    ),
    family(
        "store_device_reads_total",
        Kind::Counter,
        DIR,
        "Reads that a cache directory asked of its device or file system.",
        |f, out| dirs(f, out, |dir| dir.stats.read_ops.into()),
    ),
    family(
        "store_device_read_bytes_total",
        Kind::Counter,
        DIR,
        "Bytes that they brought.",
        |f, out| {
            dirs(f, out, |dir| dir.stats.read_bytes.into());
        },
    ),
    family(
        "store_device_writes_total",
        Kind::Counter,
        DIR,
        "Writes that a cache directory asked of its device or file system.",
        |f, out| dirs(f, out, |dir| dir.stats.write_ops.into()),
    ),
    family(
        "store_device_written_bytes_total",
        Kind::Counter,
        DIR,
        "Bytes that they wrote.",
        |f, out| {
            dirs(f, out, |dir| dir.stats.write_bytes.into());
        },
    ),
    family(
        "store_object_bytes_total",
        Kind::Counter,
        DIR,
        "Bytes of URLs, heads and bodies that were stored in a cache directory.",
        |f, out| dirs(f, out, |dir| dir.stats.object_bytes.into()),
    ),
    family(
        "store_write_amplification_ratio",
        Kind::Gauge,
        DIR,
        "Bytes written for each byte of objects stored since the start; NaN before the first.",
        |f, out| dirs(f, out, |dir| Number::Real(dir.write_amplification().unwrap_or(f64::NAN))),
    ),
    family(
        "store_index_bytes_per_object",
        Kind::Gauge,
        DIR,
        "Memory of a cache directory's index for each object; NaN without objects.",
        |f, out| dirs(f, out, |dir| Number::Real(dir.index_bytes_per_object().unwrap_or(f64::NAN))),
    ),
    family(
        "store_load_ratio",
        Kind::Gauge,
        DIR,
        "How busy a cache directory is, 0 to 1.",
        |f, out| {
            dirs(f, out, |dir| Number::Real(f64::from(dir.load) / 1000.0));
        },
    ),
    family(
        "store_rebuild_ratio",
        Kind::Gauge,
        DIR,
        "Progress of the index's rebuild, 1 when complete.",
        |f, out| {
            dirs(f, out, |dir| Number::Real(f64::from(dir.stats.rebuild_percent) / 100.0));
        },
    ),
    family(
        "store_down",
        Kind::Gauge,
        DIR,
        "1 when a cache directory is out of service.",
        |f, out| {
            dirs(f, out, |dir| u64::from(dir.stats.down).into());
        },
    ),
];

/// Kinds of answers with their labels. Other answers, such as refusals and tunnels, are only in the
/// count of all.
const KINDS: &[(TimesOf, &str)] = &[
    (TimesOf::Misses, "miss"),
    (TimesOf::Hits, "hit"),
    (TimesOf::NearHits, "near_hit"),
    (TimesOf::NotModified, "not_modified"),
];

type Ratio = fn(&crate::interval::Interval<'_>) -> Option<f64>;

fn windows(figures: &Figures, out: &mut Samples<'_>, ratio: Ratio) {
    out.add(&["5m"], ratio(&figures.five_minutes()).unwrap_or(f64::NAN));
    out.add(&["60m"], ratio(&figures.sixty_minutes()).unwrap_or(f64::NAN));
}

fn dirs(figures: &Figures, out: &mut Samples<'_>, read: fn(&DirFigures) -> Number) {
    for dir in &figures.dirs {
        out.add(&[&dir.index.to_string(), &dir.path, dir.scheme], read(dir));
    }
}

fn helpers(figures: &Figures, out: &mut Samples<'_>, read: fn(&Statistics) -> u64) {
    for helper in figures.helpers.iter().filter(|helper| helper.is_in_force) {
        out.add(&[helper.kind.name(), &helper.name], read(helper));
    }
}

/// The page.
pub(crate) fn render(figures: &Figures) -> String {
    let mut out = String::new();
    for counter in Counter::ALL {
        let mut samples =
            Samples::begin(&mut out, counter.name(), Kind::Counter, &[], counter.help());
        samples.add(&[], figures.totals.count(*counter));
    }
    for family in FAMILIES {
        let mut samples =
            Samples::begin(&mut out, family.name, family.kind, family.labels, family.help);
        (family.write)(figures, &mut samples);
    }
    out
}

#[cfg(test)]
mod tests;
