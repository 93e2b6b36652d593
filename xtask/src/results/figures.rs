//! Figures as the tables show them.

use crate::bench::table::aligned;

/// Stands where there is no figure.
pub(super) const NOTHING: &str = "–";

/// Repeats that differ by more than this share of their mean are marked.
const SPREAD_MAX: f64 = 0.05;

const BYTES_PER_MIB: f64 = 1_048_576.0;

/// Rows below the names of their columns. A name that begins with `#`, which is not shown, has
/// numbers below it: they are aligned to the right.
pub(super) fn table<const N: usize>(
    columns: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let names = columns.map(|column| column.trim_start_matches('#'));
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|row| row.iter().map(|text| cell(text)).collect()).collect();
    aligned(&names, &rows, |column| columns[column].starts_with('#'))
}

/// Text that may stand in a cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// `value`, which is not negative, with `decimals` and commas between thousands.
pub(super) fn number(value: Option<f64>, decimals: usize) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else { return NOTHING.to_owned() };
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::new();
    for (position, digit) in whole.chars().enumerate() {
        if position > 0 && (whole.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// Answers per second that were measured here: whole ones, and a decimal below a hundred.
pub(super) fn per_s(value: Option<f64>) -> String {
    let decimals = usize::from(value.is_some_and(|value| value < 99.95));
    number(value, decimals)
}

/// Answers per second as the published tables print them.
pub(super) fn published_per_s(value: Option<f64>) -> String {
    number(value, 1)
}

/// A rate with the share of hits, if that is known: a cache that stores little is fast too.
pub(super) fn with_hits(rate: &str, hit_ratio: Option<f64>) -> String {
    hit_ratio.map_or_else(
        || rate.to_owned(),
        |share| format!("{rate} · {} %", number(Some(share * 100.0), 1)),
    )
}

/// A figure in proportion to a rate, marked if that found no limit: it may be larger.
pub(super) fn at_least(is_bound: bool, figure: &str) -> String {
    let mark = if is_bound { "≥ " } else { "" };
    format!("{mark}{figure}")
}

/// Answers per second, and whether no limit was found: they may be more.
pub(super) type Bounded = (f64, bool);

/// A rate ÷ the one that it is compared with, marked as [`bound_ratio`] does; nothing without that.
pub(super) fn over_base((per_s, is_bound): Bounded, base: Option<Bounded>) -> String {
    let Some((base_per_s, is_base_bound)) = base else { return NOTHING.to_owned() };
    bound_ratio((is_base_bound, is_bound), over(Some(per_s), Some(base_per_s)))
}

/// A factor of two rates, marked if the one before or the one after found no limit: it may be
/// smaller or larger. Nothing if both found none: it may be both.
pub(super) fn bound_ratio(are_bound: (bool, bool), factor: Option<f64>) -> String {
    match are_bound {
        _ if factor.is_none() => NOTHING.to_owned(),
        (true, true) => NOTHING.to_owned(),
        (true, false) => format!("≤ {}", ratio(factor)),
        (false, is_bound) => at_least(is_bound, &ratio(factor)),
    }
}

/// A share in per cent, which may be negative, without the sign of per cent.
pub(super) fn signed_pct(share: f64) -> String {
    let tenths = (share * 1000.0).round() / 10.0;
    let sign = if tenths < 0.0 { "−" } else { "" };
    format!("{sign}{:.1}", tenths.abs())
}

pub(super) fn ratio(value: Option<f64>) -> String {
    number(value, 2)
}

/// `value` ÷ `base`, if there are both.
pub(super) fn over(value: Option<f64>, base: Option<f64>) -> Option<f64> {
    Some(value? / base.filter(|base| *base > 0.0)?)
}

/// The difference of repeats as a share of their mean; `(!)` marks a difference too large for
/// quoting the mean.
pub(super) fn spread(share: Option<f64>) -> String {
    let Some(share) = share else { return NOTHING.to_owned() };
    let mark = if share > SPREAD_MAX { " (!)" } else { "" };
    format!("{} %{mark}", number(Some(share * 100.0), 1))
}

/// Three digits, or all whole ones.
pub(super) fn milliseconds(value_ms: Option<f64>) -> String {
    let decimals = match value_ms {
        Some(value_ms) if value_ms < 9.995 => 2,
        Some(value_ms) if value_ms < 99.95 => 1,
        _ => 0,
    };
    number(value_ms, decimals)
}

pub(super) fn mebibytes(bytes: Option<f64>) -> String {
    let mib = number(bytes.map(|bytes| bytes / BYTES_PER_MIB), 0);
    if mib == NOTHING { mib } else { format!("{mib} MiB") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_as_many_digits_as_they_deserve() {
        let shown = [99.94, 99.96, 999.6, 1_234_567.0].map(|value| per_s(Some(value)));
        assert_eq!(shown, ["99.9", "100", "1,000", "1,234,567"]);
        assert_eq!(published_per_s(Some(1326.3)), "1,326.3");
        assert_eq!(
            [ratio(Some(2.0)), ratio(None), ratio(Some(f64::NAN))],
            ["2.00", NOTHING, NOTHING]
        );
        assert_eq!(
            [0.5, 12.34, 1234.5].map(|value| milliseconds(Some(value))),
            ["0.50", "12.3", "1,234"]
        );
        assert_eq!(mebibytes(Some(3.0 * BYTES_PER_MIB)), "3 MiB");
        assert_eq!(mebibytes(None), NOTHING);
    }

    #[test]
    fn ratios_need_both_and_a_base() {
        assert_eq!(over(Some(3.0), Some(2.0)), Some(1.5));
        assert_eq!(over(Some(3.0), Some(0.0)), None);
        assert_eq!(over(None, Some(2.0)), None);
        assert_eq!(over(Some(3.0), None), None);
    }

    #[test]
    fn a_wide_spread_is_marked() {
        assert_eq!(
            [spread(Some(0.05)), spread(Some(0.0941)), spread(None)],
            ["5.0 %", "9.4 % (!)", NOTHING]
        );
    }

    #[test]
    fn only_columns_of_numbers_are_aligned_to_the_right() {
        let rows = [["x|y".to_owned(), "b".to_owned(), "1".to_owned()]];
        let expected = "| a    | why | no |\n| ---- | --- | -: |\n| x\\|y | b   |  1 |\n";
        assert_eq!(table(["a", "why", "#no"], rows), expected);
    }
}
