//! Compares pages line by line with the answers of Squid 5.7, whose numbers are replaced by `#`,
//! with one `#` behind the point for each of its decimals.

use crate::figures::{DirFigures, Figures};
use crate::{averages, counters, info, service_times, storedir};

/// Lines whose values are names and dates.
const NAMES: [&str; 5] =
    ["Squid Object Cache:", "Build Info:", "Service Name:", "Start Time:", "Current Time:"];

fn shape(page: &str) -> Vec<String> {
    // Newer than 5.7.
    let is_newer = |line: &&str| line.starts_with("hit_validation.");
    page.lines().filter(|line| !is_newer(line)).map(line_shape).collect()
}

fn line_shape(line: &str) -> String {
    if let Some(name) = NAMES.iter().find(|name| line.starts_with(**name)) {
        return (*name).to_owned();
    }
    let (line, date) = match line.split_once(" (").filter(|(_, date)| date.ends_with(" GMT)")) {
        Some((before, _)) => (before, " (date)"),
        None => (line, ""),
    };
    let mut out = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let taken = match number(rest) {
            Some((length, shape)) => {
                out.push_str(&shape);
                length
            }
            None => {
                out.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    // The padding of a number behind a tab depends on the number.
    out.replace("\t #", "\t#") + date
}

/// A number at the start of the text, with blanks before it: its length and its shape. Numbers that
/// belong to a label stay as they are.
fn number(text: &str) -> Option<(usize, String)> {
    let unpadded = text.trim_start_matches(' ');
    let digits =
        |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let sign = usize::from(unpadded.starts_with('-'));
    let whole = digits(&unpadded[sign..]);
    if whole == 0 {
        return None;
    }
    let after = &unpadded[sign + whole..];
    let decimals = after.strip_prefix('.').map_or(0, digits);
    let after = if decimals > 0 { &after[1 + decimals..] } else { after };
    let length = text.len() - after.len();
    let is_label = after.starts_with("min")
        || after.starts_with(" min")
        || decimals == 0 && after.starts_with('%');
    if is_label {
        return Some((length, text[..length].to_owned()));
    }
    let padding = if text.starts_with(' ') { " " } else { "" };
    let fraction = if decimals > 0 { format!(".{}", "#".repeat(decimals)) } else { String::new() };
    Some((length, format!("{padding}#{fraction}")))
}

fn expect(page: &str, expected: &str) {
    let (page, expected) = (shape(page), shape(expected));
    for (ours, squids) in page.iter().zip(&expected) {
        assert_eq!(ours, squids);
    }
    assert_eq!(page.len(), expected.len());
}

#[test]
fn shapes_tell_lines_apart() {
    assert_eq!(
        line_shape("\tCPU Usage, 5 minute avg:\t0.12%"),
        "\tCPU Usage, 5 minute avg:\t#.##%"
    );
    assert_eq!(
        line_shape("\tCache Hits:            5%   0.00100  1.00000"),
        "\tCache Hits:            5% #.##### #.#####"
    );
    assert_eq!(
        line_shape("sample_time = 1.200000 (Sat, 21 Nov 2026 21:36:40 GMT)"),
        "sample_time = #.###### (date)"
    );
    assert_ne!(line_shape("a = 1"), line_shape("a = 1.0"));
}

#[test]
fn pages_have_squids_lines_in_squids_order() {
    for figures in [Figures::idle(), Figures::busy()] {
        expect(&info::render(&figures), include_str!("expected/info.txt"));
        expect(&counters::render(&figures), include_str!("expected/counters.txt"));
        expect(&service_times::render(&figures), include_str!("expected/service_times.txt"));
        expect(&averages::render_five(&figures), include_str!("expected/5min.txt"));
        expect(&averages::render_sixty(&figures), include_str!("expected/5min.txt"));
    }
}

#[test]
fn storedir_has_squids_lines_among_others() {
    let mut figures = Figures::busy();
    figures.dirs = vec![DirFigures { path: "/".to_owned(), ..figures.dirs.remove(0) }];
    let without_percents = |page: &str| {
        page.lines().map(|l| line_shape(l.split(" (").next().unwrap_or(l))).collect::<Vec<_>>()
    };
    let page = without_percents(&storedir::render(&figures));
    let mut lines = page.iter();
    for squids in without_percents(include_str!("expected/storedir.txt")) {
        assert!(lines.any(|ours| *ours == squids), "{squids} is not (in its place) in {page:#?}");
    }
}

#[test]
fn columns_are_where_squid_has_them() {
    let (info, times) = (info::render(&Figures::idle()), service_times::render(&Figures::idle()));
    for line in [
        "\tHTTP Requests (All):   0.00000  0.00000",
        "\tNot-Modified Replies:  0.00000  0.00000",
        "\tStorage Swap capacity:\t 0.0% used, 100.0% free",
        "\tTotal accounted:            0 KB",
        "\tmemPoolAlloc calls:         0",
        "\tFiles queued for open:                   0",
        "\t     0 on-disk objects",
    ] {
        assert!(info.contains(&format!("\n{line}\n")), "{line} is not in\n{info}");
    }
    assert!(times.contains("\n\tHTTP Requests (All):   5%   0.00000  0.00000\n"));
    assert!(times.contains("\n\tICP Queries:          95%   0.00000  0.00000\n"));
}

/// The reading of `counters` by exporters: the text before `=` is the key, the first word behind it
/// a number.
#[test]
fn counters_are_numbers_as_exporters_read_them() {
    for line in counters::render(&Figures::busy()).lines() {
        let (key, value) = line.split_once('=').expect(line);
        assert!(!key.trim().is_empty());
        assert!(
            value.split_ascii_whitespace().next().expect(line).parse::<f64>().is_ok(),
            "{line}"
        );
    }
}
