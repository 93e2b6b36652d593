//! Sets of domain names with Squid's `dstdomain` semantics: `.example.com` is the domain and
//! everything below it, `example.com` only itself.

use std::cmp::Ordering;

/// Names in one block of memory, sorted by their reversed text with the dot as the smallest byte.
/// In that order a domain is followed by everything below it. Names below a listed domain are left
/// out, so that the only name that can match a host is its predecessor: one binary search, whatever
/// the size.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainSet {
    reversed: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Copy, Clone, Debug)]
struct Entry {
    start: u32,
    length: u16,
    /// Everything below belongs to it.
    subtree: bool,
}

impl DomainSet {
    /// Compiles names, with or without leading dot; case and a trailing dot do not matter. Names
    /// longer than 64 KiB cannot match any host and are left out, and so are names beyond 4 GiB in
    /// all.
    pub(crate) fn compile(values: &[String]) -> Self {
        let mut names: Vec<(Vec<u8>, bool)> =
            values.iter().filter_map(|value| prepare(value)).collect();
        // A domain comes before the single host of the same name, which it covers.
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        let mut set = Self::default();
        for (name, subtree) in names {
            let previous = set.entries.last().copied();
            if previous.is_some_and(|previous| covers(set.text(previous), previous.subtree, &name))
            {
                continue;
            }
            let (Ok(start), Ok(length)) =
                (u32::try_from(set.reversed.len()), u16::try_from(name.len()))
            else {
                continue;
            };
            set.reversed.extend_from_slice(&name);
            set.entries.push(Entry { start, length, subtree });
        }
        set
    }

    /// Whether the lower-case `host` is in the set. A trailing dot does not matter.
    pub(crate) fn contains(&self, host: &[u8]) -> bool {
        let host = host.strip_suffix(b".").unwrap_or(host);
        let after = self
            .entries
            .partition_point(|entry| compare(self.text(*entry), host) != Ordering::Greater);
        let Some(entry) = after.checked_sub(1).and_then(|at| self.entries.get(at)).copied() else {
            return false;
        };
        let text = self.text(entry);
        let mut reversed_host = host.iter().rev().map(|byte| sort_byte(*byte));
        if !text.iter().all(|byte| reversed_host.next() == Some(*byte)) {
            return false;
        }
        match reversed_host.next() {
            None => true,
            Some(next) => entry.subtree && next == DOT,
        }
    }

    fn text(&self, entry: Entry) -> &[u8] {
        let start = entry.start as usize;
        self.reversed.get(start..start + usize::from(entry.length)).unwrap_or_default()
    }
}

/// The stored form of the dot: smaller than any byte of a name.
const DOT: u8 = 0;

fn sort_byte(byte: u8) -> u8 {
    if byte == b'.' { DOT } else { byte }
}

/// The reversed form of a value and whether it is a whole domain; `None` for an empty one.
fn prepare(value: &str) -> Option<(Vec<u8>, bool)> {
    let (name, subtree) = match value.strip_prefix('.') {
        Some(name) => (name, true),
        None => (value, false),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let name = name.strip_prefix('[').and_then(|inside| inside.strip_suffix(']')).unwrap_or(name);
    let reversed: Vec<u8> =
        name.bytes().rev().map(|byte| sort_byte(byte.to_ascii_lowercase())).collect();
    (!reversed.is_empty()).then_some((reversed, subtree))
}

/// Whether the entry with this reversed text makes `name` (reversed) superfluous.
fn covers(entry: &[u8], subtree: bool, name: &[u8]) -> bool {
    match name.strip_prefix(entry) {
        Some([]) => true,
        Some([next, ..]) => subtree && *next == DOT,
        None => false,
    }
}

/// Compares a stored (reversed) name with a host that is not reversed yet.
fn compare(entry: &[u8], host: &[u8]) -> Ordering {
    entry.iter().copied().cmp(host.iter().rev().map(|byte| sort_byte(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(values: &[&str]) -> DomainSet {
        DomainSet::compile(&values.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn semantics() {
        let rows: [(&[&str], &str, bool); 21] = [
            (&["foo.com"], "foo.com", true),
            (&["foo.com"], "x.foo.com", false),
            (&["foo.com"], "oo.com", false),
            (&[".foo.com"], "foo.com", true),
            (&[".foo.com"], "x.foo.com", true),
            (&[".foo.com"], "y.x.foo.com", true),
            (&[".foo.com"], "xfoo.com", false),
            (&[".foo.com"], "x-foo.com", false),
            (&[".foo.com"], "com", false),
            (&[".foo.com"], "foo.com.", true),
            (&["foo.com."], "foo.com", true),
            (&["FOO.com"], "foo.com", true),
            (&[".com", "a.foo.com"], "b.foo.com", true),
            (&["foo.com", ".foo.com"], "b.foo.com", true),
            (&[".foo.com", "foo.com", "zfoo.com", "foo-x.com"], "b.foo.com", true),
            (&["foo.com", "b.foo.com"], "c.foo.com", false),
            (&["foo.com", "b.foo.com"], "b.foo.com", true),
            (&["10.0.0.1"], "10.0.0.1", true),
            (&["[::1]"], "::1", true),
            (&["", "."], "foo.com", false),
            (&[".foo.com"], "", false),
        ];
        for (values, host, inside) in rows {
            assert_eq!(set(values).contains(host.as_bytes()), inside, "{values:?} {host}");
        }
    }

    #[test]
    fn agrees_with_the_definition_on_many_names() {
        let labels = ["a", "b", "a-b", "ab", "com", "x0"];
        let mut names = Vec::new();
        for one in labels {
            for two in labels {
                names.push(format!("{one}.{two}"));
                names.extend(labels.iter().map(|three| format!("{one}.{two}.{three}")));
            }
        }
        let values: Vec<String> = (names.iter().enumerate())
            .filter(|(at, _)| at % 7 < 2)
            .map(|(at, name)| if at % 14 < 7 { format!(".{name}") } else { name.clone() })
            .collect();
        let set = DomainSet::compile(&values);
        for host in &names {
            let expected = values.iter().any(|value| match value.strip_prefix('.') {
                Some(domain) => host == domain || host.ends_with(value.as_str()),
                None => host == value,
            });
            assert_eq!(set.contains(host.as_bytes()), expected, "{host}");
        }
    }

    #[test]
    fn a_large_list() {
        let values: Vec<String> =
            (0..100_000).map(|n| format!(".host{n}.example{}.org", n % 977)).collect();
        let set = DomainSet::compile(&values);
        assert_eq!(set.entries.len(), values.len());
        assert!(set.contains(b"www.host99999.example345.org"));
        assert!(!set.contains(b"host99999.example346.org"));
    }
}
