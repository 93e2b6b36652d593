//! The templates of a language, compressed until one is asked for.
//!
//! Squid's packages have pages in 44 languages besides English: 2.3 MB. A small machine needs this
//! memory for its page cache, and hardly any of the pages is ever asked for.

use std::ops::Range;
use std::sync::OnceLock;

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;

/// The fastest level: higher ones save little more.
const LEVEL: u8 = 1;

/// The templates of one language.
#[derive(Clone, Debug)]
pub struct PackedPages {
    /// The name of each, and its place among all texts.
    places: Box<[(&'static str, Range<usize>)]>,
    packed: Box<[u8]>,
    /// All texts, from the first time that one of them is asked for.
    texts: OnceLock<Option<Box<[u8]>>>,
}

impl PackedPages {
    /// Compresses them.
    #[must_use]
    pub fn new<'a>(pages: impl IntoIterator<Item = (&'static str, &'a [u8])>) -> Self {
        let (mut places, mut texts) = (Vec::new(), Vec::new());
        for (name, text) in pages {
            places.push((name, texts.len()..texts.len() + text.len()));
            texts.extend_from_slice(text);
        }
        let packed = compress_to_vec(&texts, LEVEL).into();
        Self { places: places.into(), packed, texts: OnceLock::new() }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The template of the page with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let (_, place) = self.places.iter().find(|(page, _)| *page == name)?;
        if self.texts.get().is_none() {
            // Another core may be doing the same, and be first. Neither waits for the other.
            let _ = self.texts.set(self.unpack());
        }
        self.texts.get()?.as_deref()?.get(place.clone())
    }

    /// Takes well under a millisecond for a language of Squid's packages, which has 50 KB.
    fn unpack(&self) -> Option<Box<[u8]>> {
        let len = self.places.last().map_or(0, |(_, place)| place.end);
        Some(decompress_to_vec_with_limit(&self.packed, len).ok()?.into())
    }
}

impl PartialEq for PackedPages {
    fn eq(&self, other: &Self) -> bool {
        self.places == other.places && self.packed == other.packed
    }
}

impl Eq for PackedPages {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_what_it_was() {
        let long = "<p>Die Anfrage</p>".repeat(3000);
        let texts = [("ERR_A", "kurz"), ("ERR_B", ""), ("ERR_C", &long)];
        let pages = PackedPages::new(texts.map(|(name, text)| (name, text.as_bytes())));
        assert!(pages.packed.len() < long.len() / 8 && pages.texts.get().is_none());
        for (name, text) in texts {
            assert_eq!(pages.get(name), Some(text.as_bytes()), "{name}");
        }
        assert_eq!((pages.get("ERR_D"), pages.is_empty()), (None, false));
        assert!(PackedPages::new([]).is_empty());
    }

    #[test]
    fn what_cannot_be_unpacked_is_no_page() {
        let mut pages = PackedPages::new([("ERR_A", &b"text"[..])]);
        pages.packed = Box::default();
        assert_eq!(pages.get("ERR_A"), None);
    }

    #[test]
    fn pages_are_the_same_if_their_texts_are() {
        let pages = |text: &'static str| PackedPages::new([("ERR_A", text.as_bytes())]);
        let shown = pages("a");
        assert_eq!(shown.get("ERR_A"), Some(&b"a"[..]));
        assert_eq!(shown, pages("a"));
        assert_ne!(shown, pages("b"));
    }
}
