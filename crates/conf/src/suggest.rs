//! "Did you mean …?"

/// Longest word that is compared, in bytes: longer ones have no typo that a person would recognise.
const WORD_BYTES_MAX: usize = 64;

/// The candidate nearest to `word`, if it is near enough to be a slip.
pub(crate) fn suggest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if word.is_empty() || word.len() > WORD_BYTES_MAX {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let bound = (word.len() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter(|candidate| {
            candidate.len().abs_diff(word.len()) <= bound && candidate.len() <= WORD_BYTES_MAX
        })
        .map(|candidate| {
            (distance(word.as_bytes(), candidate.to_ascii_lowercase().as_bytes()), candidate)
        })
        .filter(|(distance, _)| *distance <= bound)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Optimal string alignment: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let width = b.len() + 1;
    let mut before: Vec<usize> = vec![0; width];
    let mut last: Vec<usize> = (0..width).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1; width];
        for (j, y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            row[j + 1] = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i - 1] == *y && *x == b[j - 1] {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_nothing_else() {
        let names = ["http_access", "http_port", "cache_mem", "cache_dir"];
        assert_eq!(suggest("htpt_access", names), Some("http_access"));
        assert_eq!(suggest("cache_men", names), Some("cache_mem"));
        assert_eq!(suggest("CACHE_DIR", names), Some("cache_dir"));
        assert_eq!(suggest("visible_hostname", names), None);
        assert_eq!(suggest("", names), None);
        assert_eq!(distance(b"abc", b"acb"), 1);
        assert_eq!(distance(b"", b"abc"), 3);
    }
}
