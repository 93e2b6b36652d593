//! A strict reader of the text format, and its result for our page.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// A metric as read back.
#[derive(Debug, Default)]
struct Read {
    kind: String,
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(mut inside) = rest.strip_prefix('{') {
        loop {
            let (label, after) = inside.split_once("=\"").ok_or("no label value")?;
            let (value, after) = quoted(after)?;
            if !is_name(label) || labels.iter().any(|(known, _)| known == label) {
                return Err(format!("bad label {label:?}"));
            }
            labels.push((label.to_owned(), value));
            if let Some(more) = after.strip_prefix(',') {
                inside = more;
            } else {
                rest = after.strip_prefix('}').ok_or("labels do not end")?;
                break;
            }
        }
    }
    let value = rest.strip_prefix(' ').ok_or("no blank before the value")?;
    let is_number =
        value.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'-' | b'+'));
    if !is_name(name) || !(is_number || ["NaN", "+Inf", "-Inf"].contains(&value)) {
        return Err(format!("bad name or value {value:?}"));
    }
    let value = value.parse().map_err(|_| "not a number")?;
    Ok(Sample { name: name.to_owned(), labels, value })
}

/// A label's value up to its closing quote, and the rest.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => value.push(match chars.next().map(|(_, c)| c) {
                Some('n') => '\n',
                Some(c @ ('\\' | '"')) => c,
                other => return Err(format!("bad escape {other:?}")),
            }),
            other => value.push(other),
        }
    }
    Err("a label value does not end".to_owned())
}

/// Reads a page in which each metric has HELP, TYPE and its samples, in this order and in one
/// piece.
fn read(page: &str) -> Result<BTreeMap<String, Read>, String> {
    let mut metrics = BTreeMap::<String, Read>::new();
    let mut current = String::new();
    let mut series = BTreeSet::new();
    let body = page.strip_suffix('\n').ok_or("the last line does not end")?;
    let mut lines = body.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let name =
                help.split_once(' ').filter(|(_, text)| !text.is_empty()).ok_or("no help")?.0;
            let kind = lines
                .next()
                .and_then(|next| next.strip_prefix(&format!("# TYPE {name} ")))
                .ok_or("no type")?;
            if !["counter", "gauge", "histogram"].contains(&kind) || !is_name(name) {
                return Err(format!("bad type of {name}"));
            }
            current = name.to_owned();
            let new = Read { kind: kind.to_owned(), samples: Vec::new() };
            if metrics.insert(current.clone(), new).is_some() {
                return Err(format!("{name} twice"));
            }
            continue;
        }
        let sample = sample(line).map_err(|error| format!("{line}: {error}"))?;
        let metric = metrics.get_mut(&current).ok_or("a sample before the first metric")?;
        let suffixes: &[&str] =
            if metric.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        if !suffixes.iter().any(|suffix| sample.name == format!("{current}{suffix}")) {
            return Err(format!("{line}: not of {current}"));
        }
        let mut labels = sample.labels.clone();
        labels.sort();
        if !series.insert((sample.name.clone(), labels)) {
            return Err(format!("{line}: twice"));
        }
        metric.samples.push(sample);
    }
    Ok(metrics)
}

fn label<'a>(sample: &'a Sample, name: &str) -> Option<&'a str> {
    sample.labels.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Buckets ascend, count up, and end with all observations.
fn check_histogram(name: &str, samples: &[Sample]) -> usize {
    let mut histograms = BTreeMap::<Vec<_>, Vec<&Sample>>::new();
    for sample in samples {
        let labels = sample.labels.iter().filter(|(label, _)| label != "le").cloned().collect();
        histograms.entry(labels).or_default().push(sample);
    }
    for samples in histograms.values() {
        let part = |suffix: &str| -> Vec<&Sample> {
            samples.iter().filter(|s| s.name == format!("{name}{suffix}")).copied().collect()
        };
        let (buckets, sum, count) = (part("_bucket"), part("_sum"), part("_count"));
        let bounds: Vec<f64> = buckets
            .iter()
            .map(|s| label(s, "le").expect("le").parse().expect("a number"))
            .collect();
        assert!(
            bounds.is_sorted_by(|a, b| a < b) && bounds.last() == Some(&f64::INFINITY),
            "{bounds:?}"
        );
        assert!(buckets.is_sorted_by(|a, b| a.value <= b.value));
        assert_eq!((sum.len(), count.len()), (1, 1));
        assert_eq!(buckets.last().map(|s| s.value), Some(count[0].value));
    }
    histograms.len()
}

#[test]
fn the_page_is_in_the_format_busy_or_idle() {
    for figures in [Figures::idle(), Figures::busy()] {
        let metrics = read(&render(&figures)).expect("in the format");
        assert_eq!(metrics.len(), Counter::ALL.len() + FAMILIES.len());
        for (name, metric) in &metrics {
            assert!(name.starts_with(PREFIX));
            assert_eq!(name.ends_with("_total"), metric.kind == "counter", "{name}");
            if metric.kind == "histogram" {
                assert!(check_histogram(name, &metric.samples) >= 1, "{name}");
            } else {
                assert!(
                    metric.samples.iter().all(|s| metric.kind == "gauge" || s.value >= 0.0),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn every_counter_and_every_result_code_is_there() {
    let figures = Figures::busy();
    let metrics = read(&render(&figures)).expect("in the format");
    for counter in Counter::ALL {
        let samples = &metrics[&format!("{PREFIX}{}", counter.name())].samples;
        assert_eq!(samples.len(), 1);
        assert_eq!(samples[0].value, figures.totals.count(*counter) as f64, "{}", counter.name());
    }
    type Column = fn(&Figures, Tag) -> u64;
    let columns: [(&str, Column); 2] = [
        ("client_http_results_total", |f, tag| f.totals.result(tag).requests),
        ("client_http_result_bytes_total", |f, tag| f.totals.result(tag).bytes),
    ];
    for (name, wanted) in columns {
        let samples = &metrics[&format!("{PREFIX}{name}")].samples;
        for tag in Tag::ALL {
            let found =
                samples.iter().find(|s| label(s, "result") == Some(tag.name())).expect("a sample");
            assert_eq!(found.value, wanted(&figures, *tag) as f64);
        }
    }
}

#[test]
fn values_are_what_they_say() {
    let metrics = read(&render(&Figures::busy())).expect("in the format");
    let value = |name: &str, wanted: &[(&str, &str)]| {
        let samples = &metrics[&format!("{PREFIX}{name}")].samples;
        let matches =
            |s: &&Sample| wanted.iter().all(|(name, value)| label(s, name) == Some(value));
        samples.iter().find(matches).expect(name).value
    };
    assert_eq!(value("hit_ratio", &[("window", "5m")]), 0.75);
    assert_eq!(value("memory_bytes", &[("use", "stored_bodies")]), 40_960.0);
    assert_eq!(
        value("store_objects", &[("dir", "1"), ("path", "/a \"b\"\\c\nd"), ("scheme", "ufs")]),
        30.0
    );
    assert_eq!(value("store_load_ratio", &[("dir", "0")]), 0.5);
    assert_eq!(value("service_time_seconds", &[("le", "0.001")]), 1.0);
    assert_eq!(value("service_time_seconds", &[("le", "0.002")]), 3.0);
    assert_eq!(value("service_time_by_kind_seconds", &[("kind", "hit"), ("le", "0.001")]), 1.0);
    let idle = read(&render(&Figures::idle())).expect("in the format");
    assert!(idle["humboldt_hit_ratio"].samples.iter().all(|s| s.value.is_nan()));
    assert!(idle["humboldt_store_objects"].samples.is_empty());
}

#[test]
fn the_reader_is_strict() {
    let head = "# HELP a_total b\n# TYPE a_total counter\n";
    assert!(read(&format!("{head}a_total{{x=\"1\\n\\\"\"}} 1\na_total 2.5\n")).is_ok());
    for bad in [
        "a_total 1",
        "a_total  1\n",
        "a_total one\n",
        "a_total inf\n",
        "b_total 1\n",
        "a_total{x=1} 1\n",
        "a_total{x=\"1} 1\n",
        "a_total{x=\"\\t\"} 1\n",
        "a_total{x=\"1\",x=\"2\"} 1\n",
        "a_total{x=\"1\" 1\n",
        "a_total 1\na_total 2\n",
        "# HELP a_total b\n# TYPE a_total counter\n",
    ] {
        assert!(read(&format!("{head}{bad}")).is_err(), "{bad:?}");
    }
    assert!(read("a_total 1\n").is_err() && read("# HELP a b\na 1\n").is_err());
}
