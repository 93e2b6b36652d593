//! Sets of domain names with Squid's `dstdomain` semantics: `.example.com` is the domain and
//! everything below it, `example.com` only itself.

use std::hash::BuildHasher;

use hashbrown::hash_table::Entry as Place;
use hashbrown::{DefaultHashBuilder, HashTable};
use humboldt_http::uri::HOST_BYTES_MAX;
use memchr::{memchr_iter, memrchr_iter};

use crate::error::AclProblem;

/// Most bytes of all names of one set: a name's place has 32 bits.
const NAMES_BYTES_MAX: usize = 1 << 30;

/// A table of names, in one block of memory. A host is looked up, and then each domain above it:
/// some accesses to memory, whatever the size.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainSet {
    names: Vec<u8>,
    table: HashTable<Name>,
    hasher: DefaultHashBuilder,
    /// Most labels of a name whose subtree belongs to the set; domains of more need no look-up.
    subtree_labels: usize,
}

#[derive(Copy, Clone, Debug)]
struct Name {
    start: u32,
    length: u8,
    /// Everything below belongs to it.
    subtree: bool,
}

impl DomainSet {
    /// Compiles names, with or without leading dot; case and a trailing dot do not matter. Names
    /// that are longer than that of any host match none, and are left out.
    ///
    /// # Errors
    /// More names than a set has room for.
    pub(crate) fn compile(values: &[String]) -> Result<Self, AclProblem> {
        Self::within(values, NAMES_BYTES_MAX)
    }

    /// The domains directly above those names: `*.example.com` may stand for a name of `values` if
    /// `example.com` is among these.
    ///
    /// # Errors
    /// As of [`Self::compile`].
    pub(crate) fn above(values: &[String]) -> Result<Self, AclProblem> {
        let mut set = Self::default();
        let names = values.iter().filter_map(|value| stripped(value));
        let above = names.filter_map(|(name, _)| Some((name.split_once('.')?.1, false)));
        set.take(above.filter(|(domain, _)| !domain.is_empty()), NAMES_BYTES_MAX)?;
        Ok(set)
    }

    fn within(values: &[String], bytes_max: usize) -> Result<Self, AclProblem> {
        let mut set = Self::default();
        set.table.reserve(values.len(), |_| 0);
        set.names.reserve(values.iter().map(String::len).sum::<usize>().min(bytes_max));
        set.take(values.iter().filter_map(|value| stripped(value)), bytes_max)?;
        Ok(set)
    }

    /// Takes names in; `true`: with everything below.
    fn take<'v>(
        &mut self,
        names: impl Iterator<Item = (&'v str, bool)>,
        bytes_max: usize,
    ) -> Result<(), AclProblem> {
        for (name, subtree) in names {
            let Ok(length) = u8::try_from(name.len()) else { continue };
            let start = self.names.len();
            if start + name.len() > bytes_max {
                return Err(AclProblem::TooLarge { what: "names", bytes_max });
            }
            self.names.extend(name.bytes().map(|byte| byte.to_ascii_lowercase()));
            self.insert(Name { start: u32::try_from(start).unwrap_or(u32::MAX), length, subtree });
        }
        self.names.shrink_to_fit();
        Ok(())
    }

    /// Takes in the last of the names, unless it is there.
    fn insert(&mut self, name: Name) {
        let Self { names, table, hasher, subtree_labels } = self;
        let text = text_of(names, name);
        let hash_of = |name: &Name| hasher.hash_one(text_of(names, *name));
        let is_same = |known: &Name| text_of(names, *known) == text;
        if name.subtree {
            *subtree_labels = (*subtree_labels).max(memchr_iter(b'.', text).count() + 1);
        }
        match table.entry(hasher.hash_one(text), is_same, hash_of) {
            Place::Vacant(place) => _ = place.insert(name),
            Place::Occupied(mut known) => {
                known.get_mut().subtree |= name.subtree;
                names.truncate(name.start as usize);
            }
        }
    }

    /// Whether the lower-case `host` is in the set. A trailing dot does not matter.
    pub(crate) fn contains(&self, host: &[u8]) -> bool {
        let host = host.strip_suffix(b".").unwrap_or(host);
        if self.find(host).is_some() {
            return true;
        }
        let above = memrchr_iter(b'.', host).take(self.subtree_labels);
        let mut domains = above.filter_map(|dot| host.get(dot + 1..));
        domains.any(|domain| self.find(domain).is_some_and(|name| name.subtree))
    }

    fn find(&self, text: &[u8]) -> Option<Name> {
        let is_it = |name: &Name| text_of(&self.names, *name) == text;
        self.table.find(self.hasher.hash_one(text), is_it).copied()
    }
}

fn text_of(names: &[u8], name: Name) -> &[u8] {
    let start = name.start as usize;
    names.get(start..start + usize::from(name.length)).unwrap_or_default()
}

/// The name in a value, and whether it is a whole domain; `None` for an empty one, and for one that
/// is too long.
fn stripped(value: &str) -> Option<(&str, bool)> {
    let (name, subtree) = match value.strip_prefix('.') {
        Some(name) => (name, true),
        None => (value, false),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let name = name.strip_prefix('[').and_then(|inside| inside.strip_suffix(']')).unwrap_or(name);
    (1..=HOST_BYTES_MAX).contains(&name.len()).then_some((name, subtree))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the values mean, one after the other.
    fn plainly_contains(values: &[String], host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        values.iter().any(|value| {
            let lower = value.to_ascii_lowercase();
            stripped(&lower).is_some_and(|(name, subtree)| {
                host == name || subtree && host.ends_with(&format!(".{name}"))
            })
        })
    }

    proptest! {
        #[test]
        fn the_set_means_what_its_values_mean(
            values in prop::collection::vec("[.]?([abB-]{1,2}[.]){0,3}[abB]{0,2}[.]?", 0..40),
            hosts in prop::collection::vec("([ab-]{0,2}[.]){0,4}[ab]{0,2}[.]?", 1..40),
        ) {
            let set = DomainSet::compile(&values).unwrap();
            for host in hosts {
                let expected = plainly_contains(&values, &host);
                prop_assert_eq!(set.contains(host.as_bytes()), expected, "{:?} {}", values, host);
            }
        }
    }

    #[test]
    fn too_many_names_are_an_error_and_too_long_ones_are_left_out() {
        let values: Vec<String> = (0..100).map(|n| format!("{n:03}.example")).collect();
        assert!(DomainSet::within(&values, 1100).is_ok());
        let error = DomainSet::within(&values, 1099).unwrap_err();
        assert_eq!(error, AclProblem::TooLarge { what: "names", bytes_max: 1099 });
        let (longest, longer) = ("a".repeat(255), "a".repeat(256));
        assert!(set(&[&longest]).contains(longest.as_bytes()));
        assert!(!set(&[&longer]).contains(longer.as_bytes()));
    }

    fn set(values: &[&str]) -> DomainSet {
        DomainSet::compile(&values.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
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
    fn domains_above_are_those_of_the_names() {
        let values = [".a.foo.com", "B.Foo.com.", "c.d.bar.org", "com", "10.0.0.1", "x."];
        let set = DomainSet::above(&values.map(str::to_owned)).unwrap();
        for (domain, inside) in [
            ("foo.com", true),
            ("d.bar.org", true),
            ("bar.org", false),
            ("a.foo.com", false),
            ("x.foo.com", false),
            ("com", false),
            ("", false),
        ] {
            assert_eq!(set.contains(domain.as_bytes()), inside, "{domain}");
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
        let set = DomainSet::compile(&values).unwrap();
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
        let set = DomainSet::compile(&values).unwrap();
        assert_eq!(set.table.len(), values.len());
        assert!(set.contains(b"www.host99999.example345.org"));
        assert!(!set.contains(b"host99999.example346.org"));
    }
}
