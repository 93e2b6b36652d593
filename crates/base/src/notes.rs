//! Annotations (notes) of a transaction or of a client's connection: names with values, in the
//! order in which they came. Rules and helpers write them; rules, logs and helpers read them.

use std::rc::Rc;

/// Most notes of a transaction or of a connection. A further one is not kept, and the notes count
/// as incomplete: see [`Notes::are_complete`].
pub const NOTES_MAX: usize = 64;

/// Most bytes that their names and values have together; a note beyond it is not kept either.
pub const NOTES_BYTES_MAX: usize = 16 * 1024;

/// Notes. A copy costs nothing until one of the two is changed, and no notes need no memory.
#[derive(Clone, Debug, Default)]
pub struct Notes(Option<Rc<Kept>>);

#[derive(Clone, Debug, Default)]
struct Kept {
    notes: Vec<(Box<str>, Box<[u8]>)>,
    /// Of names and values.
    bytes: usize,
    /// A note was not kept.
    is_cut: bool,
}

impl Notes {
    /// No notes.
    pub const NONE: Self = Self(None);

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Whether every note was kept. Otherwise nobody can say that one is missing, so a rule that
    /// does not find it has no answer.
    pub fn are_complete(&self) -> bool {
        self.0.as_ref().is_none_or(|kept| !kept.is_cut)
    }

    /// Names and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let kept = self.0.iter().flat_map(|kept| &kept.notes);
        kept.map(|(name, value)| (&**name, &**value))
    }

    /// The values of a name, in their order.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Adds a note, unless it is there already. A rule that is asked twice so adds it once.
    pub fn add(&mut self, name: &str, value: &[u8]) {
        if self.values(name).any(|known| known == value) {
            return;
        }
        let kept = Rc::make_mut(self.0.get_or_insert_default());
        let bytes = kept.bytes + name.len() + value.len();
        if kept.notes.len() >= NOTES_MAX || bytes > NOTES_BYTES_MAX {
            kept.is_cut = true;
            return;
        }
        kept.bytes = bytes;
        kept.notes.push((name.into(), value.into()));
    }

    /// Removes all notes of a name.
    pub fn remove(&mut self, name: &str) {
        if self.values(name).next().is_none() {
            return;
        }
        let Some(kept) = self.0.as_mut().map(Rc::make_mut) else { return };
        kept.notes.retain(|(known, _)| &**known != name);
        kept.bytes = kept.notes.iter().map(|(name, value)| name.len() + value.len()).sum();
    }

    /// Adds the notes that are not there yet.
    pub fn add_all(&mut self, others: &Self) {
        if self.0.is_none() {
            self.clone_from(others);
            return;
        }
        others.iter().for_each(|(name, value)| self.add(name, value));
        if !others.are_complete() {
            self.note_cut();
        }
    }

    /// Adds notes; those that had the same names are removed before.
    pub fn replace_all(&mut self, others: &Self) {
        others.iter().for_each(|(name, _)| self.remove(name));
        self.add_all(others);
    }

    fn note_cut(&mut self) {
        Rc::make_mut(self.0.get_or_insert_default()).is_cut = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(notes: &Notes) -> String {
        let shown = notes.iter().map(|(name, value)| format!("{name}={}", value.escape_ascii()));
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn notes_keep_their_order_and_are_there_once() {
        let mut notes = Notes::NONE;
        assert!(notes.is_empty() && notes.are_complete());
        for (name, value) in [("a", "1"), ("b", "1"), ("a", "2"), ("a", "1"), ("A", "1")] {
            notes.add(name, value.as_bytes());
        }
        assert_eq!(shown(&notes), "a=1 b=1 a=2 A=1");
        assert_eq!(notes.values("a").collect::<Vec<_>>(), [b"1", b"2"]);
        notes.remove("a");
        assert_eq!(shown(&notes), "b=1 A=1");
    }

    #[test]
    fn a_copy_stays_as_it_is() {
        let mut notes = Notes::NONE;
        notes.add("a", b"1");
        let copy = notes.clone();
        notes.add("a", b"2");
        assert_eq!((shown(&copy).as_str(), shown(&notes).as_str()), ("a=1", "a=1 a=2"));
    }

    #[test]
    fn others_are_added_or_take_the_place_of_those_with_their_names() {
        let (mut notes, mut others) = (Notes::NONE, Notes::NONE);
        for value in [b"1", b"2"] {
            notes.add("a", value);
        }
        notes.add("b", b"1");
        others.add("a", b"2");
        others.add("a", b"3");
        let mut added = notes.clone();
        added.add_all(&others);
        assert_eq!(shown(&added), "a=1 a=2 b=1 a=3");
        notes.replace_all(&others);
        assert_eq!(shown(&notes), "b=1 a=2 a=3");
    }

    #[test]
    fn what_is_not_kept_is_noticed() {
        let mut notes = Notes::NONE;
        for n in 0..NOTES_MAX {
            notes.add("n", n.to_string().as_bytes());
        }
        assert!(notes.are_complete());
        notes.add("n", b"0");
        assert!(notes.are_complete(), "it is there");
        notes.add("n", b"more");
        assert!(!notes.are_complete() && notes.iter().count() == NOTES_MAX);
        let mut of_request = Notes::NONE;
        of_request.add("a", b"1");
        of_request.add_all(&notes);
        assert!(!of_request.are_complete());
        notes.remove("n");
        assert!(notes.is_empty() && !notes.are_complete(), "nobody knows what it was");
    }

    #[test]
    fn the_bytes_are_bounded_too() {
        let mut notes = Notes::NONE;
        notes.add("a", &[b'x'; NOTES_BYTES_MAX - 1]);
        assert!(notes.are_complete());
        notes.add("", b"y");
        assert!(!notes.are_complete() && notes.iter().count() == 1);
        let mut again = Notes::NONE;
        again.add("a", &[b'x'; NOTES_BYTES_MAX]);
        assert!(!again.are_complete() && again.is_empty());
    }
}
