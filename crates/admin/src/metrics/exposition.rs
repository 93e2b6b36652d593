//! The text format in which Prometheus reads metrics, version 0.0.4.

use std::fmt::{self, Display, Write};

use humboldt_proxy::shared::{TIME_BUCKETS, TimeCounts};

use super::PREFIX;

/// Media type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The kind of a metric.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows, until the program ends.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of observations by size.
    Histogram,
}

impl Kind {
    /// Its name in the format.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A value.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Number {
    /// Whole.
    Whole(u64),
    /// Not whole, perhaps NaN.
    Real(f64),
}

impl From<u64> for Number {
    fn from(n: u64) -> Self {
        Self::Whole(n)
    }
}

impl From<f64> for Number {
    fn from(n: f64) -> Self {
        Self::Real(n)
    }
}

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(n) => n.fmt(f),
            // No ratio or time of ours is infinite; NaN is spelled as the format wants it.
            Self::Real(n) => n.fmt(f),
        }
    }
}

/// Writes the samples of one metric.
pub(crate) struct Samples<'a> {
    out: &'a mut String,
    name: &'a str,
    labels: &'a [&'a str],
}

impl<'a> Samples<'a> {
    /// Writes the lines before the samples.
    pub(crate) fn begin(
        out: &'a mut String,
        name: &'a str,
        kind: Kind,
        labels: &'a [&'a str],
        help: &str,
    ) -> Self {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        _ = writeln!(out, "# HELP {PREFIX}{name} {help}");
        _ = writeln!(out, "# TYPE {PREFIX}{name} {}", kind.name());
        Self { out, name, labels }
    }

    /// A sample: values of the labels in their order, and the value.
    pub(crate) fn add(&mut self, labels: &[&str], value: impl Into<Number>) {
        debug_assert_eq!(labels.len(), self.labels.len());
        self.write("", labels, None, value.into());
    }

    /// A histogram of times, in seconds.
    pub(crate) fn add_times(&mut self, labels: &[&str], counts: &TimeCounts) {
        let mut below = 0;
        for (bucket, count) in counts.buckets.iter().enumerate() {
            below += count;
            let is_last = bucket == TIME_BUCKETS - 1;
            let bound = if is_last {
                "+Inf".to_owned()
            } else {
                ((1_u64 << bucket) as f64 / 1000.0).to_string()
            };
            self.write("_bucket", labels, Some(&bound), Number::Whole(below));
        }
        self.write("_sum", labels, None, Number::Real(counts.sum_ms as f64 / 1000.0));
        self.write("_count", labels, None, Number::Whole(below));
    }

    fn write(&mut self, suffix: &str, labels: &[&str], bound: Option<&str>, value: Number) {
        _ = write!(self.out, "{PREFIX}{}{suffix}", self.name);
        let pairs = self.labels.iter().zip(labels).map(|(name, value)| (*name, *value));
        let mut separator = '{';
        for (name, value) in pairs.chain(bound.map(|bound| ("le", bound))) {
            _ = write!(self.out, "{separator}{name}=\"{}\"", Escaped(value));
            separator = ',';
        }
        let end = if separator == ',' { "}" } else { "" };
        _ = writeln!(self.out, "{end} {value}");
    }
}

/// The value of a label between its quotes.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            other => f.write_char(other),
        })
    }
}
