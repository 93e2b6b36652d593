//! Annotations: ACLs that write notes, and those that read them.

use std::cell::RefCell;
use std::fmt;

use humboldt_base::notes::Notes;
use humboldt_conf::{AclDef, Annotation};

use crate::matcher::Match;
use crate::question::Question;

/// The notes of a transaction, for ACLs.
pub trait Annotated {
    /// Its own.
    fn notes(&self) -> &RefCell<Notes>;

    /// Those of the client's connection.
    fn client_notes(&self) -> &RefCell<Notes>;

    /// The text of a format for the transaction. The number is that of [`crate::AclSet::formats`].
    fn formatted(&self, format: usize) -> Vec<u8>;
}

impl fmt::Debug for dyn Annotated + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.notes().fmt(f)
    }
}

/// The pairs of one ACL that writes.
#[derive(Debug)]
pub(crate) struct Pairs {
    pairs: Box<[Pair]>,
    /// Bytes that divide values.
    delimiters: Box<[u8]>,
    /// The connection of the client is annotated too.
    of_client: bool,
}

#[derive(Debug)]
struct Pair {
    name: Box<str>,
    appends: bool,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Text(Box<[u8]>),
    /// The number of a format.
    Format(usize),
}

impl Pairs {
    /// Takes the pairs of a definition, and adds their formats to `formats`. As in Squid, those of
    /// one name come together, at the place of the first.
    pub(crate) fn compile(definition: &AclDef, of_client: bool, formats: &mut Vec<String>) -> Self {
        let mut given: Vec<&Annotation> = definition.annotations.iter().collect();
        let first = |name: &str| definition.annotations.iter().position(|one| one.name == name);
        given.sort_by_key(|one| first(&one.name));
        let mut value = |one: &Annotation| {
            if !one.formatted {
                return Value::Text(one.value.as_bytes().into());
            }
            formats.push(one.value.clone());
            Value::Format(formats.len() - 1)
        };
        let pairs = given.into_iter().map(|one| Pair {
            name: one.name.as_str().into(),
            appends: one.appends,
            value: value(one),
        });
        Self { pairs: pairs.collect(), delimiters: delimiters(definition), of_client }
    }

    /// Writes the notes.
    pub(crate) fn write(&self, annotated: &dyn Annotated) {
        for pair in &self.pairs {
            let made;
            let value = match &pair.value {
                Value::Text(text) => &**text,
                Value::Format(format) => {
                    made = annotated.formatted(*format);
                    made.as_slice()
                }
            };
            let connection = self.of_client.then(|| annotated.client_notes());
            for notes in connection.into_iter().chain([annotated.notes()]) {
                let mut notes = notes.borrow_mut();
                if !pair.appends {
                    notes.remove(&pair.name);
                }
                parts(value, &self.delimiters).for_each(|part| notes.add(&pair.name, part));
            }
        }
    }
}

/// A name, and values of which one must be there.
#[derive(Debug)]
pub(crate) struct Wanted {
    name: Box<str>,
    /// Sorted; empty: any.
    values: Box<[Box<[u8]>]>,
    /// Bytes that divide the values of notes.
    delimiters: Box<[u8]>,
}

impl Wanted {
    /// `None`: there is no name.
    pub(crate) fn compile(definition: &AclDef) -> Option<Self> {
        let (name, values) = definition.values.split_first()?;
        let mut values: Vec<Box<[u8]>> =
            values.iter().map(|value| value.as_bytes().into()).collect();
        values.sort_unstable();
        let delimiters = delimiters(definition);
        Some(Self { name: name.as_str().into(), values: values.into(), delimiters })
    }

    /// Whether the transaction has such a note; `acl` asks. It has no answer if one is not found
    /// and not all notes were kept.
    pub(crate) fn check<'a>(&self, annotated: &dyn Annotated, acl: &'a str) -> Match<'a> {
        let notes = annotated.notes().borrow();
        let is_wanted = |part: &[u8]| self.values.binary_search_by(|one| (**one).cmp(part)).is_ok();
        let is_found = notes
            .values(&self.name)
            .any(|value| self.values.is_empty() || parts(value, &self.delimiters).any(is_wanted));
        match is_found || notes.are_complete() {
            true => is_found.into(),
            false => Match::Needs(Question::Notes { acl }),
        }
    }
}

fn delimiters(definition: &AclDef) -> Box<[u8]> {
    definition.flags.delimiters.as_deref().unwrap_or_default().as_bytes().into()
}

/// The parts of a value, also empty ones.
fn parts<'a>(value: &'a [u8], delimiters: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    value.split(move |byte| delimiters.contains(byte))
}

#[cfg(test)]
mod tests {
    use humboldt_conf::{AclFlags, AclKind, Location};

    use super::*;

    #[derive(Default)]
    struct Transaction {
        notes: RefCell<Notes>,
        client: RefCell<Notes>,
    }

    impl Annotated for Transaction {
        fn notes(&self) -> &RefCell<Notes> {
            &self.notes
        }

        fn client_notes(&self) -> &RefCell<Notes> {
            &self.client
        }

        fn formatted(&self, format: usize) -> Vec<u8> {
            format!("format {format}").into_bytes()
        }
    }

    fn definition(values: &[&str], annotations: &[&str], delimiters: Option<&str>) -> AclDef {
        let annotation = |text: &&str| {
            let (key, value) = text.split_once('=').unwrap();
            let (name, appends) = (key.trim_end_matches('+'), key.ends_with('+'));
            let formatted = value.starts_with('%');
            Annotation { name: name.into(), appends, value: value.into(), formatted }
        };
        AclDef {
            name: "x".into(),
            kind: AclKind::Note,
            flags: AclFlags { delimiters: delimiters.map(str::to_owned), ..AclFlags::default() },
            values: values.iter().map(|&value| value.to_owned()).collect(),
            annotations: annotations.iter().map(annotation).collect(),
            location: Location::default(),
        }
    }

    fn write(to: &Transaction, of_client: bool, pairs: &[&str], delimiters: Option<&str>) {
        let mut formats = vec!["another".to_owned()];
        Pairs::compile(&definition(&[], pairs, delimiters), of_client, &mut formats).write(to);
    }

    fn shown(notes: &RefCell<Notes>) -> String {
        let notes = notes.borrow();
        let shown = notes.iter().map(|(name, value)| format!("{name}={}", value.escape_ascii()));
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn values_replace_or_join_older_ones() {
        let one = Transaction::default();
        write(&one, false, &["a=1", "b=%ru", "a+=2,3"], None);
        assert_eq!(shown(&one.notes), "a=1 a=2,3 b=format 1");
        write(&one, false, &["a=4"], None);
        write(&one, false, &["b+=5;6,,7"], Some(",;"));
        assert_eq!(shown(&one.notes), "b=format 1 a=4 b=5 b=6 b= b=7");
        assert!(one.client.borrow().is_empty());
        write(&one, true, &["b=8"], None);
        assert_eq!((shown(&one.notes), shown(&one.client)), ("a=4 b=8".into(), "b=8".into()));
    }

    #[test]
    fn a_note_is_found_by_its_name_and_value() {
        let one = Transaction::default();
        write(&one, false, &["a=1", "a+=2,3", "empty+="], None);
        let finds = |values: &[&str], delimiters| {
            let wanted = Wanted::compile(&definition(values, &[], delimiters)).unwrap();
            wanted.check(&one, "x") == Match::Yes
        };
        assert!(finds(&["a"], None) && finds(&["a", "9", "1"], None) && finds(&["empty"], None));
        assert!(!finds(&["A"], None) && !finds(&["a", "2"], None) && !finds(&["b"], None));
        assert!(finds(&["a", "2"], Some(",")) && finds(&["a", "2,3"], None));
        assert!(!finds(&["a", "2,3"], Some(",")) && finds(&["a", "2,3"], Some(";")));
        assert!(Wanted::compile(&definition(&[], &[], None)).is_none());
    }

    #[test]
    fn what_may_have_been_lost_is_not_missing() {
        let one = Transaction::default();
        write(&one, false, &["a=1"], None);
        one.notes.borrow_mut().add("long", &[0; humboldt_base::notes::NOTES_BYTES_MAX]);
        let check = |values: &[&str]| {
            Wanted::compile(&definition(values, &[], None)).unwrap().check(&one, "x")
        };
        assert_eq!(check(&["a"]), Match::Yes);
        assert_eq!(check(&["a", "2"]), Match::Needs(Question::Notes { acl: "x" }));
    }
}
