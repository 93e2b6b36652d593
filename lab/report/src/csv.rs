//! samples.csv and cdf.csv: one list of columns, from which both the header and every line are
//! made.

use humboldt_lab_record::{FaultKind, Histogram, Resources, Sample, Tally};

/// Quotes a field if it needs to be (RFC 4180).
pub(crate) fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// A number without more digits than it has; empty if it is not finite.
fn exact(value: f64) -> String {
    if value.is_finite() { format!("{value}") } else { String::new() }
}

/// A number with this many decimals; empty if it is not finite.
fn rounded(value: f64, decimals: usize) -> String {
    if value.is_finite() { format!("{value:.decimals$}") } else { String::new() }
}

/// Names and values of one line, in order.
struct Fields {
    names: Vec<String>,
    values: Vec<String>,
}

impl Fields {
    fn add(&mut self, name: &str, value: impl ToString) {
        self.names.push(name.to_owned());
        self.values.push(field(&value.to_string()));
    }

    fn times(&mut self, prefix: &str, times: &Histogram) {
        self.add(&format!("{prefix}_mean_ms"), rounded(times.mean_us() / 1e3, 3));
        for (name, percentile) in [("p50", 50.0), ("p95", 95.0), ("p99", 99.0)] {
            self.add(
                &format!("{prefix}_{name}_ms"),
                rounded(times.percentile_us(percentile) as f64 / 1e3, 3),
            );
        }
        self.add(&format!("{prefix}_max_ms"), rounded(times.max_us() as f64 / 1e3, 3));
    }
}

fn fields(sample: &Sample) -> Fields {
    let mut fields = Fields { names: Vec::new(), values: Vec::new() };
    fields.add("sample", sample.index);
    fields.add("at_s", exact(sample.at_s));
    fields.add("load_per_s", exact(sample.load_per_s));
    fields.add("fill_ratio", exact(sample.fill_ratio));
    fields.add("throughput_per_s", rounded(sample.throughput_per_s(), 3));
    fields.add("hit_ratio", rounded(sample.hit_ratio(), 5));
    fields.add("byte_hit_ratio", rounded(sample.byte_hit_ratio(), 5));
    counts(&mut fields, &sample.tally);
    fields.times("response", &sample.tally.response());
    fields.times("hits", &sample.tally.hits.response);
    fields.times("misses", &sample.tally.misses.response);
    fields.times("others", &sample.tally.others.response);
    fields.times("hits_added", &sample.tally.hits.added);
    fields.times("misses_added", &sample.tally.misses.added);
    faults(&mut fields, &sample.tally);
    laboratory(&mut fields, sample);
    resources(&mut fields, sample.resources.as_ref());
    let share = |share: Option<f64>| share.map(|share| rounded(share, 5)).unwrap_or_default();
    fields.add("steal", share(sample.steal));
    fields.add("foreign", share(sample.foreign));
    fields.add("sustained", u8::from(sample.verdict.sustained));
    fields.add("next_load_per_s", exact(sample.verdict.next_load_per_s));
    fields.add("state", &sample.verdict.state);
    fields.add("reason", &sample.verdict.reason);
    fields.add("lab_limited", sample.lab_limited.as_deref().unwrap_or_default());
    fields
}

fn counts(fields: &mut Fields, tally: &Tally) {
    fields.add("period_us", tally.period_us);
    fields.add("due", tally.due);
    fields.add("sent", tally.sent);
    fields.add("answers", tally.answers());
    fields.add("hits", tally.hits.answers);
    fields.add("misses", tally.misses.answers);
    fields.add("others", tally.others.answers);
    fields.add("hit_bytes", tally.hits.body_bytes);
    fields.add("miss_bytes", tally.misses.body_bytes);
    fields.add("other_bytes", tally.others.body_bytes);
    fields.add("offered_hits", tally.offered_hits);
    fields.add("offered_hit_bytes", tally.offered_hit_bytes);
    fields.add("fill_bytes", tally.fill_bytes);
    fields.add("refill_bytes", tally.refill_bytes);
    fields.add("aborted", tally.aborted);
    fields.add("excused", tally.excused);
    fields.add("backlog", tally.backlog);
    fields.add("waiting", tally.waiting);
    fields.add("oldest_us", tally.oldest_us);
    fields.add("connections", tally.connections);
    fields.add("connects", tally.connects);
}

fn faults(fields: &mut Fields, tally: &Tally) {
    fields.add("faults", tally.faults_total());
    for kind in FaultKind::ALL {
        let name = kind.label().replace(' ', "_");
        fields.add(&format!("fault_{name}"), tally.faults.get(&kind).copied().unwrap_or_default());
    }
}

fn laboratory(fields: &mut Fields, sample: &Sample) {
    fields.add("robots_cpu_us", sample.tally.cpu_us);
    fields.add("robots_threads", sample.tally.threads);
    fields.add("robots_lag_p99_us", sample.tally.lag.percentile_us(99.0));
    let origin = &sample.origin;
    fields.add("origin_requests", origin.requests);
    fields.add("origin_not_modified", origin.not_modified);
    fields.add("origin_partial", origin.partial);
    fields.add("origin_refused", origin.refused);
    fields.add("origin_body_bytes", origin.body_bytes);
    fields.add("origin_connects", origin.connects);
    fields.add("origin_connections", origin.connections);
    fields.add("origin_cpu_us", origin.cpu_us);
    fields.add("origin_threads", origin.threads);
    fields.add("origin_lag_p99_us", origin.lag.percentile_us(99.0));
}

/// Totals since the subject's start, as they were counted; empty if it is not watched.
fn resources(fields: &mut Fields, resources: Option<&Resources>) {
    let mut add = |name: &str, value: fn(&Resources) -> u64| {
        fields.add(name, resources.map(|now| value(now).to_string()).unwrap_or_default());
    };
    add("subject_at_us", |now| now.at_us);
    add("subject_processes", |now| u64::from(now.processes));
    add("subject_threads", |now| u64::from(now.threads));
    add("subject_user_us", |now| now.cpu.user_us);
    add("subject_system_us", |now| now.cpu.system_us);
    add("subject_resident_bytes", |now| now.resident_bytes);
    add("subject_anonymous_bytes", |now| now.anonymous_bytes);
    add("subject_shared_bytes", |now| now.shared_bytes);
    add("subject_minor_faults", |now| now.minor_faults);
    add("subject_major_faults", |now| now.major_faults);
    add("subject_descriptors", |now| u64::from(now.descriptors));
    add("subject_voluntary_switches", |now| now.voluntary_switches);
    add("subject_involuntary_switches", |now| now.involuntary_switches);
    add("subject_read_bytes", |now| now.read_bytes);
    add("subject_write_bytes", |now| now.write_bytes);
    add("subject_read_calls", |now| now.read_calls);
    add("subject_write_calls", |now| now.write_calls);
    add("device_reads", |now| now.device_reads);
    add("device_writes", |now| now.device_writes);
    add("device_read_bytes", |now| now.device_read_bytes);
    add("device_write_bytes", |now| now.device_write_bytes);
    let mut add = |name: &str, value: fn(&Resources) -> Option<u64>| {
        let value = resources.and_then(value);
        fields.add(name, value.map(|value| value.to_string()).unwrap_or_default());
    };
    add("subject_allowed_cpu_us", |now| now.allowed_cpu_us);
    add("subject_short_cpu_us", |now| now.short_cpu_us);
}

/// The first line of samples.csv.
pub(crate) fn samples_header() -> String {
    let mut line = fields(&Sample::default()).names.join(",");
    line.push('\n');
    line
}

/// The line of a sample.
pub(crate) fn sample_line(sample: &Sample) -> String {
    let mut line = fields(sample).values.join(",");
    line.push('\n');
    line
}

/// cdf.csv: for every class and every time that occurred, how many answers took up to so long, and
/// which share of the class that is.
pub(crate) fn distributions(classes: &[(&str, &Histogram)]) -> String {
    let mut out = String::from("class,upto_us,answers,share\n");
    for (name, times) in classes {
        let total = times.count().max(1) as f64;
        let mut below: u64 = 0;
        for (value_us, count) in times.buckets() {
            below = below.saturating_add(count);
            out.push_str(&format!(
                "{},{value_us},{below},{:.6}\n",
                field(name),
                below as f64 / total
            ));
        }
    }
    out
}

/// Splits lines as a spreadsheet does.
pub(crate) fn rows(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), String::new());
    let mut quoted = false;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' if quoted && rest.peek() == Some(&'"') => cell.extend(rest.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut cell)),
            '\n' if !quoted => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            c => cell.push(c),
        }
    }
    rows
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) use super::rows as parsed;

    #[test]
    fn every_line_has_the_columns_of_the_header() {
        let mut sample =
            Sample { index: 3, at_s: 0.1 + 0.2, load_per_s: f64::NAN, ..Sample::default() };
        sample.tally.hits.add(10, 1500, 700);
        sample.verdict.reason = "p95 of \"hits\", 312 ms\n> 200 ms".to_owned();
        sample.resources = Some(Resources { read_bytes: 77, ..Resources::default() });
        let text =
            [samples_header(), sample_line(&Sample::default()), sample_line(&sample)].concat();
        let rows = parsed(&text);
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        let value = |name: &str| {
            let column = rows[0].iter().position(|header| header == name).unwrap();
            rows[2][column].as_str()
        };
        assert_eq!(value("at_s").parse::<f64>().unwrap(), sample.at_s);
        assert_eq!(value("load_per_s"), "");
        assert_eq!(value("reason"), sample.verdict.reason);
        assert_eq!(value("subject_read_bytes"), "77");
        assert_eq!(value("hits_added_max_ms"), "0.700");
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn distributions_add_up() {
        let mut times = Histogram::default();
        [10, 10, 20, 40].iter().for_each(|value| times.record_us(*value));
        let rows = parsed(&distributions(&[("hits", &times), ("misses", &Histogram::default())]));
        assert_eq!(
            rows[1..],
            [
                ["hits", "10", "2", "0.500000"],
                ["hits", "20", "3", "0.750000"],
                ["hits", "40", "4", "1.000000"]
            ]
        );
    }
}
