//! File names with `*`, `?` and `[…]`, for `include`.

use std::path::{Path, PathBuf};

/// Most files that one pattern may give; further ones are left out.
const MATCHES_MAX: usize = 4096;

/// The files that a pattern means, sorted, and whether it is a pattern at all. A plain name is
/// given back as it is, existing or not.
pub(crate) fn expand(pattern: &str) -> (Vec<PathBuf>, bool) {
    if !pattern.contains(['*', '?', '[']) {
        return (vec![PathBuf::from(pattern)], false);
    }
    let mut found = vec![PathBuf::from(if pattern.starts_with('/') { "/" } else { "" })];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = found.iter().flat_map(|dir| matches_in(dir, part)).take(MATCHES_MAX).collect();
    }
    (found, true)
}

/// The entries of `dir` that match one part of a pattern.
fn matches_in(dir: &Path, part: &str) -> Vec<PathBuf> {
    if !part.contains(['*', '?', '[']) {
        let path = dir.join(part);
        return if path.exists() { vec![path] } else { Vec::new() };
    }
    let place = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let Ok(entries) = std::fs::read_dir(place) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.') || part.starts_with('.'))
        .filter(|name| matches(part.as_bytes(), name.as_bytes()))
        .collect();
    names.sort_unstable();
    names.into_iter().map(|name| dir.join(name)).collect()
}

/// Does `name` match? Linear backtracking: only the last `*` is ever tried again.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match one(pattern.get(p..).unwrap_or(&[]), name[n]) {
            One::Star => {
                star = Some((p + 1, n));
                p += 1;
            }
            One::Matched(len) => {
                p += len;
                n += 1;
            }
            One::Failed => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    p = after;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).unwrap_or(&[]).iter().all(|b| *b == b'*')
}

enum One {
    Star,
    /// Matched by this many bytes of the pattern.
    Matched(usize),
    Failed,
}

fn one(pattern: &[u8], byte: u8) -> One {
    match pattern.first() {
        None => One::Failed,
        Some(b'*') => One::Star,
        Some(b'?') => One::Matched(1),
        Some(b'[') => bracket(pattern, byte),
        Some(b'\\') if pattern.len() > 1 => {
            if pattern.get(1) == Some(&byte) {
                One::Matched(2)
            } else {
                One::Failed
            }
        }
        Some(b) if *b == byte => One::Matched(1),
        Some(_) => One::Failed,
    }
}

/// `[abc]`, `[a-z]`, `[!a]`; without a closing bracket `[` is an ordinary character.
fn bracket(pattern: &[u8], byte: u8) -> One {
    let body = pattern.get(1..).unwrap_or(&[]);
    let negated = matches!(body.first(), Some(b'!' | b'^'));
    let set_start = usize::from(negated);
    let Some(len) =
        body.iter().skip(set_start + 1).position(|b| *b == b']').map(|at| at + set_start + 1)
    else {
        return if byte == b'[' { One::Matched(1) } else { One::Failed };
    };
    let mut set = body.get(set_start..len).unwrap_or(&[]);
    let mut found = false;
    while let Some((&low, rest)) = set.split_first() {
        if let [b'-', high, after @ ..] = rest {
            found |= (low..=*high).contains(&byte);
            set = after;
        } else {
            found |= low == byte;
            set = rest;
        }
    }
    if found != negated { One::Matched(len + 2) } else { One::Failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, yes, no) in [
            ("*.conf", "a.conf", "a.conf.bak"),
            ("a?c", "abc", "ac"),
            ("[a-c]*", "b", "d"),
            ("[!a-c]*", "d", "b"),
            ("*a*b*", "xaxbx", "xbxa"),
            ("[]x]", "]", "y"),
            ("[x", "[x", "x"),
            ("\\*", "*", "a"),
        ] {
            assert!(matches(pattern.as_bytes(), yes.as_bytes()), "{pattern} {yes}");
            assert!(!matches(pattern.as_bytes(), no.as_bytes()), "{pattern} {no}");
        }
    }

    #[test]
    fn files_come_sorted_and_hidden_ones_stay_hidden() {
        let dir = tempfile::tempdir().expect("dir");
        for name in ["b.conf", "a.conf", ".hidden.conf", "c.txt"] {
            std::fs::write(dir.path().join(name), "").expect("write");
        }
        let (files, is_glob) = expand(&format!("{}/*.conf", dir.path().display()));
        let names: Vec<_> = files.iter().filter_map(|f| f.file_name()?.to_str()).collect();
        assert!(is_glob);
        assert_eq!(names, ["a.conf", "b.conf"]);
        assert_eq!(expand("/no/pattern"), (vec![PathBuf::from("/no/pattern")], false));
    }
}
