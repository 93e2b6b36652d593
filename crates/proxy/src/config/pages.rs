//! Templates of error pages: the operator's own, and those in other languages.

use std::collections::BTreeMap;
use std::sync::Arc;

use humboldt_conf::{Config, PackedPages, PageTexts};

use crate::errors::ErrorPage;

/// Templates in place of built-in pages.
pub(crate) struct Pages {
    /// Those of `error_directory`.
    own: Option<PageTexts>,
    /// By language.
    languages: BTreeMap<Box<str>, Arc<PackedPages>>,
    /// `error_default_language`
    default: Option<Box<str>>,
    /// `err_page_stylesheet`, for `%l`.
    pub(crate) style: Arc<[u8]>,
}

/// A template for a client.
pub(crate) struct Template<'a> {
    /// Its text.
    pub(crate) text: &'a [u8],
    /// Its language, if that was chosen.
    pub(crate) language: Option<&'a str>,
}

impl Pages {
    /// Takes the templates out of a configuration.
    pub(crate) fn take(config: &mut Config) -> Self {
        let languages = std::mem::take(&mut config.error_default_language);
        Self {
            own: config.error_directory.take().map(|directory| directory.pages),
            languages: languages.pages,
            default: languages.default.map(String::into_boxed_str),
            style: std::mem::take(&mut config.err_page_stylesheet.text),
        }
    }

    /// Whether the language of a page depends on the client.
    pub(crate) fn have_languages(&self) -> bool {
        !self.languages.is_empty()
    }

    /// The template of a page for a client that wants these languages, the most wanted first;
    /// `None` for the built-in page. Pages in other languages are for `browser`s only, as they are
    /// HTML.
    pub(crate) fn find<'a>(
        &'a self,
        page: ErrorPage,
        is_browser: bool,
        wanted: &[&[u8]],
    ) -> Option<Template<'a>> {
        if let Some(own) = &self.own {
            return own.get(page.name()).map(|text| Template { text, language: None });
        }
        if self.languages.is_empty() || !is_browser {
            return None;
        }
        let named = |tag: &str| {
            let (tag, pages) = self.languages.get_key_value(tag)?;
            let text = pages.get(page.name())?;
            Some(Template { text, language: Some(&**tag) })
        };
        for tag in wanted {
            // A tag is short, and longer ones are none.
            let Ok(tag) = std::str::from_utf8(tag) else { continue };
            let tag = tag.to_ascii_lowercase();
            if tag == "*" {
                break;
            }
            let primary = tag.split('-').next().unwrap_or_default();
            if let Some(template) = named(&tag).or_else(|| named(primary)) {
                return Some(template);
            }
            if primary == "en" {
                return None;
            }
        }
        self.default.as_deref().and_then(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> PageTexts {
        PageTexts::from([("ERR_DNS_FAIL".into(), text.as_bytes().into())])
    }

    fn chosen(pages: &Pages, wanted: &str) -> Option<String> {
        let wanted: Vec<_> = wanted.split(' ').map(str::as_bytes).collect();
        let found = pages.find(ErrorPage::DnsFailure, true, &wanted)?;
        assert_eq!(found.language.unwrap_or("own").as_bytes(), found.text);
        Some(String::from_utf8_lossy(found.text).into_owned())
    }

    #[test]
    fn the_first_wanted_language_that_is_there() {
        let language = |tag: &str| {
            let texts = [("ERR_DNS_FAIL", tag.as_bytes())];
            (tag.into(), Arc::new(PackedPages::new(texts)))
        };
        let mut pages = Pages {
            own: None,
            languages: BTreeMap::from(["de", "pt", "pt-br"].map(language)),
            default: None,
            style: Arc::default(),
        };
        for (wanted, found) in [
            ("de", Some("de")),
            ("pt-BR de", Some("pt-br")),
            ("pt-pt", Some("pt")),
            ("xx DE-ch", Some("de")),
            ("en de", None),
            ("en-GB de", None),
            ("* de", None),
            ("xx", None),
            ("", None),
        ] {
            assert_eq!(chosen(&pages, wanted).as_deref(), found, "{wanted}");
        }
        assert!(pages.find(ErrorPage::AccessDenied, true, &[b"de"]).is_none());
        assert!(pages.find(ErrorPage::DnsFailure, false, &[b"de"]).is_none());
        pages.default = Some("de".into());
        assert_eq!(chosen(&pages, "xx").as_deref(), Some("de"));
        assert_eq!(chosen(&pages, "* pt").as_deref(), Some("de"));
        assert_eq!(chosen(&pages, "en"), None);
        pages.own = Some(texts("own"));
        assert_eq!(chosen(&pages, "pt").as_deref(), Some("own"));
    }
}
