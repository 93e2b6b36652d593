//! Error pages that files have: templates with Squid's `%` codes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Location, PackedPages};

/// Templates by the names of their pages.
pub type PageTexts = BTreeMap<Box<str>, Arc<[u8]>>;

/// `error_directory`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageDirectory {
    /// The directory.
    pub(crate) path: String,
    /// The line that names it.
    pub(crate) location: Location,
    /// The templates found there.
    pub pages: PageTexts,
}

/// `error_default_language`, and the languages in which there are pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageLanguages {
    /// The language for clients that ask for none of the others, in lower case.
    pub default: Option<String>,
    /// The line that names it.
    pub(crate) location: Location,
    /// The templates of each language, by its tag in lower case. Tags of one directory share them.
    pub pages: BTreeMap<Box<str>, Arc<PackedPages>>,
}

/// `err_page_stylesheet`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StyleSheet {
    /// The file; `None` for Squid's, if it is there.
    pub(crate) path: Option<String>,
    /// The line that names it.
    pub(crate) location: Location,
    /// Its content.
    pub text: Arc<[u8]>,
}
