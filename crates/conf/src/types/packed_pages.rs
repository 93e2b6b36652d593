//! The templates of a language, compressed until one is asked for.
//!
//! Squid's packages have pages in 46 languages, of 2.4 MB. That is memory which a small machine
//! needs for its page cache, and hardly any of it is ever read.

use std::io::{Read, Write};
use std::ops::Range;
use std::sync::OnceLock;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

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
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let (mut places, mut at, mut is_whole) = (Vec::new(), 0, true);
        for (name, text) in pages {
            is_whole &= encoder.write_all(text).is_ok();
            places.push((name, at..at + text.len()));
            at += text.len();
        }
        // Writing to memory does not fail. If it did, there would be no pages.
        let packed = encoder.finish().ok().filter(|_| is_whole);
        Self {
            places: places.into(),
            packed: packed.unwrap_or_default().into(),
            texts: OnceLock::new(),
        }
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
        let texts = self.texts.get_or_init(|| self.unpack());
        texts.as_deref()?.get(place.clone())
    }

    fn unpack(&self) -> Option<Box<[u8]>> {
        let len = self.places.last().map_or(0, |(_, place)| place.end);
        let mut texts = vec![0; len];
        DeflateDecoder::new(&*self.packed).read_exact(&mut texts).ok()?;
        Some(texts.into())
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
        assert!(pages.packed.len() < long.len() / 10 && pages.texts.get().is_none());
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
