//! The page `service_times`, and the medians on `info`.

use std::fmt::Write;

use humboldt_proxy::shared::TimesOf;

use crate::figures::Figures;

/// Squid's kinds of service times, in its order; `None` for those that Humboldt does not measure.
const KINDS: &[(&str, Option<TimesOf>)] = &[
    ("HTTP Requests (All):", Some(TimesOf::All)),
    ("Cache Misses:", Some(TimesOf::Misses)),
    ("Cache Hits:", Some(TimesOf::Hits)),
    ("Near Hits:", Some(TimesOf::NearHits)),
    ("Not-Modified Replies:", Some(TimesOf::NotModified)),
    ("DNS Lookups:", None),
    ("ICP Queries:", None),
];

/// Times in seconds over 5 and 60 minutes.
fn times(figures: &Figures, of: Option<TimesOf>, fraction: f64) -> (f64, f64) {
    let time = |of| {
        let (five, sixty) = (figures.five_minutes(), figures.sixty_minutes());
        (five.percentile(of, fraction), sixty.percentile(of, fraction))
    };
    of.map_or((0.0, 0.0), time)
}

/// The page.
pub(crate) fn render(figures: &Figures) -> String {
    let mut out = "Service Time Percentiles            5 min    60 min:\n".to_owned();
    for (label, of) in KINDS {
        for percent in (5..100).step_by(5) {
            let (five, sixty) = times(figures, *of, f64::from(percent) / 100.0);
            _ = writeln!(out, "\t{label:<22}{percent:2}%  {five:8.5} {sixty:8.5}");
        }
    }
    out
}

/// The lines of `info`.
pub(crate) fn write_medians(out: &mut String, figures: &Figures) {
    out.push_str("Median Service Times (seconds)  5 min    60 min:\n");
    for (label, of) in KINDS {
        let (five, sixty) = times(figures, *of, 0.5);
        _ = writeln!(out, "\t{label:<22}{five:8.5} {sixty:8.5}");
    }
}
