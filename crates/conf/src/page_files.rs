//! Reads the templates of error pages: those of `error_directory`, or of the languages that Squid's
//! packages bring, and those that `deny_info` names. A file that is missing or cannot be used is a
//! warning, and the built-in page stays.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostics::Severity;
use crate::state::State;
use crate::table::Config;
use crate::types::{AclKind, DenyInfo, Location, PackedPages, PageTexts};

/// The directory in which Debian's packages have pages in many languages.
const LANGUAGES_DIR: &str = "/usr/share/squid/errors";

/// Its folder with pages in no certain language: English.
const NO_LANGUAGE: &str = "templates";

/// Squid's style sheet, taken if there are templates and no other one is named.
const STYLE_SHEET: &str = "/etc/squid/errorpage.css";

/// Largest template or style sheet; a larger one is not used.
const TEMPLATE_BYTES_MAX: u64 = 256 << 10;

/// Most templates of one directory; further ones are not used.
const TEMPLATES_MAX: usize = 256;

/// Most names of languages; further ones are not used.
const LANGUAGE_NAMES_MAX: usize = 1024;

/// Most bytes of one language, all of which are unpacked at once; a page with which there were more
/// is left out.
const LANGUAGE_BYTES_MAX: usize = 1 << 20;

/// Most bytes of all templates together; what does not fit is not used.
const ALL_TEMPLATES_BYTES_MAX: u64 = 32 << 20;

/// Reads all files about pages. `languages`: also those that the configuration does not name.
pub(crate) fn read(config: &mut Config, state: &mut State, languages: bool) {
    let mut files = Files { state, bytes_left: ALL_TEMPLATES_BYTES_MAX };
    if let Some(directory) = &mut config.error_directory {
        files.read_directory(&directory.path, &directory.location, &mut directory.pages);
    } else if languages || config.error_default_language.default.is_some() {
        files.read_languages(Path::new(LANGUAGES_DIR), config);
    }
    for line in &mut config.deny_info {
        let pages = config.error_directory.as_ref().map(|directory| &directory.pages);
        let own = config.error_directory.as_ref().map(|directory| directory.path.as_str());
        let default = config.error_default_language.default.as_deref();
        files.read_page_of(line, pages, own, default);
    }
    let has_pages = config.error_directory.is_some()
        || !config.error_default_language.pages.is_empty()
        || config.deny_info.iter().any(|line| line.text.is_some());
    let style = &mut config.err_page_stylesheet;
    match style.path.as_deref() {
        Some("none") => {}
        Some(path) => {
            style.text =
                files.read_named(path, &style.location, "it is left out").unwrap_or_default();
        }
        None if has_pages => {
            style.text = files.read_file(Path::new(STYLE_SHEET)).unwrap_or_default()
        }
        None => {}
    }
}

/// The page that a line of `deny_info` names: `None` for a URL or a reset.
fn page_name(page: &str) -> Option<&str> {
    let rest = match page.split_once(':') {
        Some((status, rest)) if status.len() == 3 && status.parse::<u16>().is_ok() => rest,
        _ => page,
    };
    let is_page = rest != "TCP_RESET" && !rest.contains(':') && !rest.starts_with('/');
    (is_page && !rest.is_empty()).then_some(rest)
}

struct Files<'a> {
    state: &'a mut State,
    bytes_left: u64,
}

impl Files<'_> {
    fn warn(&mut self, message: &str, location: &Location) {
        let help = format!("it is named at {location}; see docs/squid.conf.md");
        self.state.report_general(Severity::Warning, message, &help);
    }

    /// The content of a file, if it can be used; otherwise the reason.
    fn read_file(&mut self, path: &Path) -> Result<Arc<[u8]>, String> {
        let about = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
        let meta = fs::metadata(path).map_err(|error| about(&error))?;
        if !meta.is_file() {
            return Err(about(&"it is no file"));
        }
        if meta.len() > TEMPLATE_BYTES_MAX {
            return Err(about(&format_args!("it has more than {} KB", TEMPLATE_BYTES_MAX >> 10)));
        }
        if meta.len() > self.bytes_left {
            let limit = ALL_TEMPLATES_BYTES_MAX >> 20;
            return Err(about(&format_args!("all pages have more than {limit} MB together")));
        }
        let file = fs::File::open(path).map_err(|error| about(&error))?;
        let mut text = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or_default());
        // The file may grow meanwhile.
        let limit = TEMPLATE_BYTES_MAX.min(self.bytes_left);
        file.take(limit).read_to_end(&mut text).map_err(|error| about(&error))?;
        if text.iter().all(u8::is_ascii_whitespace) {
            return Err(about(&"it is empty"));
        }
        self.bytes_left -= text.len() as u64;
        Ok(text.into())
    }

    /// A file that the configuration names.
    fn read_named(&mut self, path: &str, location: &Location, instead: &str) -> Option<Arc<[u8]>> {
        match self.read_file(Path::new(path)) {
            Ok(text) => Some(text),
            Err(why) => {
                self.warn(&format!("{why}; {instead}"), location);
                None
            }
        }
    }

    /// The templates of `error_directory`.
    fn read_directory(&mut self, path: &str, location: &Location, pages: &mut PageTexts) {
        let names = match template_names(Path::new(path)) {
            Ok(names) => names,
            Err(error) => {
                let message = format!("cannot read {path}: {error}; the built-in pages are shown");
                return self.warn(&message, location);
            }
        };
        if names.is_empty() {
            let message = format!("{path} has no file ERR_…: the built-in pages are shown");
            self.warn(&message, location);
        }
        if names.len() > TEMPLATES_MAX {
            let message =
                format!("{path} has more than {TEMPLATES_MAX} pages: the rest is left out");
            self.warn(&message, location);
        }
        for name in names.into_iter().take(TEMPLATES_MAX) {
            let file = Path::new(path).join(&*name);
            match self.read_file(&file) {
                Ok(text) => drop(pages.insert(name, text)),
                Err(why) => self.warn(&format!("{why}; the built-in page is shown"), location),
            }
        }
    }

    /// The templates in all languages. English is built in, unless it is asked for.
    fn read_languages(&mut self, folder: &Path, config: &mut Config) {
        let languages = &mut config.error_default_language;
        let default = languages.default.clone();
        let mut by_path: HashMap<PathBuf, Arc<PackedPages>> = HashMap::new();
        let mut found: BTreeMap<Box<str>, Arc<PackedPages>> = BTreeMap::new();
        for name in language_names(folder) {
            let Ok(path) = fs::canonicalize(folder.join(&*name)) else {
                continue;
            };
            let is_asked_for = default.as_deref() == Some(&*name);
            let is_english =
                path.file_name().is_some_and(|name| name == "en" || name == NO_LANGUAGE);
            if is_english && !is_asked_for {
                continue;
            }
            let pages = match by_path.get(&path) {
                Some(pages) => Arc::clone(pages),
                None => Arc::new(self.read_language(&path)),
            };
            if !pages.is_empty() {
                by_path.insert(path, Arc::clone(&pages));
                found.insert(name, pages);
            }
        }
        languages.pages = found;
        if let Some(default) = default.filter(|name| !languages.pages.contains_key(name.as_str())) {
            let location = languages.location.clone();
            let message = format!(
                "{LANGUAGES_DIR}/{default} has no pages: the built-in ones, in English, are shown"
            );
            self.warn(&message, &location);
        }
    }

    /// The templates of a language. Those that cannot be read are left out: nobody has named them.
    fn read_language(&mut self, path: &Path) -> PackedPages {
        let names = template_names(path).unwrap_or_default();
        let known = AclKind::SquidError.words().unwrap_or_default();
        let shown = names.iter().filter_map(|name| known.iter().find(|&&known| known == &**name));
        let mut bytes_left = LANGUAGE_BYTES_MAX;
        let mut read = |name: &'static str| {
            let text = self.read_file(&path.join(name)).ok()?;
            bytes_left = bytes_left.checked_sub(text.len())?;
            Some((name, text))
        };
        let texts: Vec<_> = shown.take(TEMPLATES_MAX).filter_map(|&name| read(name)).collect();
        PackedPages::new(texts.iter().map(|(name, text)| (*name, &**text)))
    }

    /// The template of a `deny_info` line, looked for where Squid does.
    fn read_page_of(
        &mut self,
        line: &mut DenyInfo,
        pages: Option<&PageTexts>,
        own: Option<&str>,
        default: Option<&str>,
    ) {
        let Some(name) = page_name(&line.page) else { return };
        if let Some(text) = pages.and_then(|pages| pages.get(name)) {
            line.text = Some(Arc::clone(text));
            return;
        }
        let in_language = |tag: &str| Path::new(LANGUAGES_DIR).join(tag).join(name);
        let places = own
            .map(|own| Path::new(own).join(name))
            .into_iter()
            .chain(default.map(in_language))
            .chain([in_language(NO_LANGUAGE)]);
        let mut reasons = Vec::new();
        for place in places {
            match self.read_file(&place) {
                Ok(text) => return line.text = Some(text),
                Err(why) => reasons.push(why),
            }
        }
        // A page that is built in needs no file.
        let is_known = AclKind::SquidError.words().is_some_and(|words| words.contains(&name));
        if !is_known && let Some(why) = reasons.into_iter().next() {
            let message = format!("deny_info {name}: {why}; the page ERR_ACCESS_DENIED is shown");
            self.warn(&message, &line.location);
        }
    }
}

/// The names of the templates in a directory, sorted.
fn template_names(dir: &Path) -> std::io::Result<Vec<Box<str>>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().into_string();
        names.extend(name.ok().filter(|name| name.starts_with("ERR_")).map(String::into_boxed_str));
    }
    names.sort_unstable();
    Ok(names)
}

/// The tags of the languages that have a folder, sorted. Folders with names in capitals are those
/// of old versions of Squid.
fn language_names(dir: &Path) -> Vec<Box<str>> {
    let is_tag = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let tags = names.filter(|name| name.bytes().all(is_tag)).take(LANGUAGE_NAMES_MAX);
    let mut tags: Vec<Box<str>> = tags.map(String::into_boxed_str).collect();
    tags.sort_unstable();
    tags
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Diagnostics, parse_str};

    fn parse(lines: &str) -> (Config, Diagnostics) {
        parse_str(
            "t",
            &format!("http_port 1\nhttp_access allow all\nacl a src 10.0.0.1\n{lines}\n"),
        )
    }

    #[test]
    fn the_templates_of_a_directory_and_of_deny_info() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().display();
        fs::write(dir.path().join("ERR_DNS_FAIL"), "no name").unwrap();
        fs::write(dir.path().join("ERR_OWN"), "own").unwrap();
        fs::write(dir.path().join("other.html"), "other").unwrap();
        let text = format!(
            "deny_info 404:ERR_OWN a\ndeny_info other.html a\nerror_directory {place}\n\
             deny_info http://x.test/ a\ndeny_info TCP_RESET a"
        );
        let (config, found) = parse(&text);
        assert_eq!(found.count(Severity::Warning), 0, "{}", found.render(false));
        let pages = &config.error_directory.as_ref().unwrap().pages;
        assert_eq!(
            pages.keys().map(|name| &**name).collect::<Vec<_>>(),
            ["ERR_DNS_FAIL", "ERR_OWN"]
        );
        let texts: Vec<_> = config.deny_info.iter().map(|line| line.text.as_deref()).collect();
        assert_eq!(texts, [Some(&b"own"[..]), Some(b"other"), None, None]);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_a_warning_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().display();
        let warning = |lines: &str| {
            let (_, found) = parse(lines);
            assert!(!found.has_errors());
            found.render(false)
        };
        let text = warning(&format!("error_directory {place}/none"));
        assert!(text.contains("t:4:17") && text.contains("built-in pages"), "{text}");
        assert!(warning(&format!("error_directory {place}")).contains("has no file ERR_"));
        let text = warning("deny_info ERR_NO_SUCH_PAGE a");
        assert!(text.contains("t:4:11") && text.contains("ERR_ACCESS_DENIED is shown"), "{text}");
        assert!(!warning("deny_info ERR_DNS_FAIL a").contains("ERR_DNS_FAIL"));
        assert!(warning("err_page_stylesheet /nonexistent.css").contains("left out"));
        fs::write(dir.path().join("ERR_EMPTY"), "\n").unwrap();
        fs::create_dir(dir.path().join("ERR_DIR")).unwrap();
        fs::write(dir.path().join("ERR_LONG"), vec![b'x'; 300 << 10]).unwrap();
        let text = warning(&format!("error_directory {place}"));
        for why in ["it is empty", "it is no file", "more than 256 KB"] {
            assert!(text.contains(why), "{why}: {text}");
        }
    }

    #[test]
    fn the_languages_of_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let write = |tag: &str, name: &str, text: &[u8]| {
            fs::create_dir_all(dir.path().join(tag)).unwrap();
            fs::write(dir.path().join(tag).join(name), text).unwrap();
        };
        for tag in ["de", "fr", "en", NO_LANGUAGE, "German"] {
            write(tag, "ERR_DNS_FAIL", format!("{tag}: dns").as_bytes());
            write(tag, "ERR_ACCESS_DENIED", format!("{tag}: denied").as_bytes());
        }
        write("de", "ERR_OWN", b"own");
        fs::create_dir(dir.path().join("it")).unwrap();
        std::os::unix::fs::symlink("de", dir.path().join("de-at")).unwrap();
        // Five of the longest are more than a language may have.
        for name in
            ["ACCESS_DENIED", "CACHE_ACCESS_DENIED", "CANNOT_FORWARD", "CONNECT_FAIL", "DNS_FAIL"]
        {
            write("xx", &format!("ERR_{name}"), &vec![b'x'; 250 << 10]);
        }
        let (mut config, mut state) = (Config::default(), State::default());
        let mut files = Files { state: &mut state, bytes_left: ALL_TEMPLATES_BYTES_MAX };
        files.read_languages(dir.path(), &mut config);
        let languages = config.error_default_language.pages;
        let tags: Vec<&str> = languages.keys().map(|tag| &**tag).collect();
        assert_eq!(tags, ["de", "de-at", "fr", "xx"]);
        assert!(Arc::ptr_eq(&languages["de"], &languages["de-at"]));
        for (tag, page, text) in [
            ("de", "ERR_DNS_FAIL", Some("de: dns")),
            ("de", "ERR_ACCESS_DENIED", Some("de: denied")),
            ("fr", "ERR_DNS_FAIL", Some("fr: dns")),
            ("de", "ERR_OWN", None),
            ("xx", "ERR_DNS_FAIL", None),
        ] {
            assert_eq!(languages[tag].get(page), text.map(str::as_bytes), "{tag} {page}");
        }
        assert!(languages["xx"].get("ERR_CONNECT_FAIL").is_some());
    }
}
