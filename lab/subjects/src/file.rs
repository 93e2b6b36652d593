//! Subject files: how a cache is configured, started and stopped. `subjects/squid.toml` explains
//! every entry.

use crate::SubjectError;
use crate::builtin;
use crate::stored::StoredPage;
use crate::template::{self, Words};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// The largest subject file, in bytes.
const FILE_BYTES_MAX: usize = 256 * 1024;
/// The most stores a subject may have, in folders.
pub(crate) const STORES_MAX: u32 = 64;

/// Words that every template may use without defining them. `start::words` gives them their values.
pub(crate) const GIVEN_WORDS: [&str; 23] = [
    "address",
    "cache_bytes",
    "cache_mb",
    "cores",
    "descriptors",
    "dir",
    "host",
    "instance",
    "memory_bytes",
    "memory_mb",
    "origin",
    "origin_host",
    "origin_port",
    "port",
    "program",
    "store",
    "store_bytes",
    "store_mb",
    "tls_authority",
    "tls_certificate",
    "tls_intercept",
    "tls_key",
    "user",
];
/// Besides these, lines of `per_store` and `per_origin` know their number, from 0.
pub(crate) const INDEX_WORD: &str = "index";

/// The way from clients to a cache.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Clients send it whole URLs.
    Forward,
    /// It stands before the servers, as if it were one.
    Accelerator,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Accelerator => "accelerator",
        })
    }
}

/// How a subject ends TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectTlsWay {
    /// As the server that its clients ask: with a certificate of its own.
    Accelerator,
    /// In the middle of what its clients take for tunnels: with certificates that it signs itself.
    Intercept,
}

/// Words that count under a condition, over those of the whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Layer {
    pub(crate) words: Words,
    pub(crate) per_store: Words,
    pub(crate) per_origin: Words,
}

/// The contents of `[when.…]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct When {
    pub(crate) forward: Option<Layer>,
    pub(crate) accelerator: Option<Layer>,
    /// The accelerator ends TLS.
    pub(crate) tls: Option<Layer>,
    /// The proxy ends TLS in what its clients take for tunnels.
    pub(crate) intercept: Option<Layer>,
    pub(crate) root: Layer,
    pub(crate) not_root: Layer,
}

impl When {
    pub(crate) fn tls_layer(&self, way: SubjectTlsWay) -> Option<&Layer> {
        match way {
            SubjectTlsWay::Accelerator => self.tls.as_ref(),
            SubjectTlsWay::Intercept => self.intercept.as_ref(),
        }
    }
}

/// One of several ways to run the same program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    description: String,
    mode: Option<Mode>,
    stores_max: Option<u32>,
    excuse_reload_hits: Option<bool>,
    #[serde(default)]
    words: Words,
    #[serde(default)]
    per_store: Words,
    #[serde(default)]
    per_origin: Words,
}

/// Output by which a subject shows that it is not the wanted one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refusal {
    /// The text in its output.
    pub(crate) log: String,
    /// The meaning of that text.
    pub(crate) say: String,
}

/// A file as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Content {
    name: String,
    description: String,
    pub(crate) mode: Mode,
    pub(crate) package: String,
    pub(crate) programs: Vec<String>,
    /// Programs that must be there besides, as a build without them can do less.
    #[serde(default)]
    requires: Vec<String>,
    pub(crate) version: Vec<String>,
    pub(crate) user: Option<String>,
    #[serde(default)]
    pub(crate) excuse_reload_hits: bool,
    #[serde(default)]
    pub(crate) stores_max: u32,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) prepare: Vec<Vec<String>>,
    pub(crate) start: Vec<String>,
    pub(crate) ready_url: Option<String>,
    /// What it says about its stores.
    pub(crate) stored: Option<StoredPage>,
    #[serde(default = "thirty")]
    pub(crate) ready_after_s: u32,
    #[serde(default = "ten")]
    pub(crate) stop_after_s: u32,
    #[serde(default)]
    pub(crate) logs: Vec<String>,
    #[serde(default)]
    pub(crate) leftovers: Vec<String>,
    #[serde(default)]
    pub(crate) refuse: Vec<Refusal>,
    #[serde(default)]
    pub(crate) folders: Vec<String>,
    #[serde(default)]
    pub(crate) files: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) words: Words,
    #[serde(default)]
    pub(crate) per_store: Words,
    #[serde(default)]
    pub(crate) per_origin: Words,
    #[serde(default)]
    pub(crate) when: When,
    default_variant: Option<String>,
    #[serde(default)]
    variants: BTreeMap<String, Variant>,
}

fn thirty() -> u32 {
    30
}

fn ten() -> u32 {
    10
}

/// One subject: a parsed and validated subject file, and one of its variants.
#[derive(Clone, Debug)]
pub struct SubjectFile {
    name: String,
    description: String,
    pub(crate) content: Content,
}

impl SubjectFile {
    /// Names of all built-in subjects with their descriptions: `squid:null`, `squid:ufs`, …,
    /// `nginx`, …
    #[must_use]
    pub fn builtin_names() -> Vec<(String, String)> {
        builtin::FAMILIES
            .iter()
            .filter_map(|(family, text)| Content::parse(text, family).ok())
            .flat_map(|content| content.subjects())
            .collect()
    }

    /// A built-in subject, `FAMILY` or `FAMILY:VARIANT`; `None` if there is no such family.
    ///
    /// # Errors
    /// If the family has no such variant: names those it has.
    #[must_use]
    pub fn builtin(name: &str) -> Option<Result<Self, SubjectError>> {
        let (family, variant) = match name.split_once(':') {
            Some((family, variant)) => (family, Some(variant)),
            None => (name, None),
        };
        Self::builtin_text(family).map(|text| Self::parse(text, family, variant))
    }

    /// The text of a family's built-in file, to be copied and changed.
    #[must_use]
    pub fn builtin_text(family: &str) -> Option<&'static str> {
        builtin::FAMILIES.iter().find(|(name, _)| *name == family).map(|(_, text)| *text)
    }

    /// A user's name for a subject: a built-in one, or a file of the user's own as `PATH.toml` or
    /// `PATH.toml:VARIANT`.
    ///
    /// # Errors
    /// If there is no such subject (names the families), or the file cannot be read, or it is
    /// wrong.
    pub fn load(name: &str) -> Result<Self, SubjectError> {
        let (path, variant) = match name.rsplit_once(".toml:") {
            Some((stem, variant)) => (format!("{stem}.toml"), Some(variant)),
            None => (name.to_owned(), None),
        };
        if path.ends_with(".toml") {
            let wrong = |what: String| SubjectError::File { file: path.clone(), what };
            let file = std::fs::File::open(&path).map_err(|error| wrong(error.to_string()))?;
            let mut text = String::new();
            // One byte more than allowed is enough to see that it is too long.
            std::io::Read::take(file, FILE_BYTES_MAX as u64 + 1)
                .read_to_string(&mut text)
                .map_err(|error| wrong(error.to_string()))?;
            return Self::parse(&text, &path, variant);
        }
        Self::builtin(name).unwrap_or_else(|| {
            let families: Vec<&str> = builtin::FAMILIES.iter().map(|(family, _)| *family).collect();
            let what = format!(
                "there is no such subject; there are: {}; or name a file.toml",
                families.join(", ")
            );
            Err(SubjectError::File { file: name.to_owned(), what })
        })
    }

    /// Parses a file and chooses a variant (`None`: the file's default).
    ///
    /// # Errors
    /// File, line, problem, remedy.
    pub fn parse(
        text: &str,
        source_name: &str,
        variant: Option<&str>,
    ) -> Result<Self, SubjectError> {
        let wrong = |what: String| SubjectError::File { file: source_name.to_owned(), what };
        let mut content = Content::parse(text, source_name)?;
        content.check().map_err(wrong)?;
        let chosen = match variant.or(content.default_variant.as_deref()) {
            None => None,
            Some(name) => {
                let name = name.to_owned();
                let variant = content
                    .variants
                    .remove(&name)
                    .ok_or_else(|| wrong(content.no_variant(&name)))?;
                Some((name, variant))
            }
        };
        let mut file =
            Self { name: content.name.clone(), description: content.description.clone(), content };
        if let Some((name, variant)) = chosen {
            file.choose(&name, variant);
        }
        Ok(file)
    }

    fn choose(&mut self, name: &str, variant: Variant) {
        let content = &mut self.content;
        self.name = format!("{}:{name}", content.name);
        self.description = variant.description;
        content.mode = variant.mode.unwrap_or(content.mode);
        content.stores_max = variant.stores_max.unwrap_or(content.stores_max);
        content.excuse_reload_hits =
            variant.excuse_reload_hits.unwrap_or(content.excuse_reload_hits);
        content.words.extend(variant.words);
        content.per_store.extend(variant.per_store);
        content.per_origin.extend(variant.per_origin);
    }

    /// `FAMILY:VARIANT`, or `FAMILY` if the file has no variants.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A line for people.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The way from clients to it unless the plan has another.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.content.mode
    }

    /// Whether it can be reached in this way.
    #[must_use]
    pub fn has_mode(&self, mode: Mode) -> bool {
        let when = &self.content.when;
        let layer = match mode {
            Mode::Forward => &when.forward,
            Mode::Accelerator => &when.accelerator,
        };
        layer.is_some() || mode == self.content.mode
    }

    /// Whether its file says how it ends TLS in this way.
    #[must_use]
    pub fn has_tls(&self, way: SubjectTlsWay) -> bool {
        self.content.when.tls_layer(way).is_some()
    }

    /// Whether it answers reloads from its store by habit.
    #[must_use]
    pub fn excuse_reload_hits(&self) -> bool {
        self.content.excuse_reload_hits
    }

    /// Most stores that it can use; 0: it stores nothing on disk.
    #[must_use]
    pub fn stores_max(&self) -> u32 {
        self.content.stores_max
    }

    /// The same with another program: another build of it, for instance.
    #[must_use]
    pub fn with_program(mut self, program: &std::path::Path) -> Self {
        self.content.programs = vec![program.display().to_string()];
        self.content.requires.clear();
        self
    }

    /// Whether its program is installed here.
    ///
    /// # Errors
    /// If not: names the package.
    pub fn find(&self) -> Result<std::path::PathBuf, SubjectError> {
        let missing = |program: String| SubjectError::ProgramMissing {
            program,
            package: self.content.package.clone(),
        };
        let is_missing = |name: &&String| crate::host::find_program(&[name]).is_none();
        if let Some(name) = self.content.requires.iter().find(is_missing) {
            return Err(missing(name.clone()));
        }
        crate::host::find_program(&self.content.programs)
            .ok_or_else(|| missing(self.content.programs.join(" or ")))
    }
}

impl Content {
    fn parse(text: &str, source_name: &str) -> Result<Self, SubjectError> {
        let wrong = |what: String| SubjectError::File { file: source_name.to_owned(), what };
        if text.len() > FILE_BYTES_MAX {
            return Err(wrong(format!("longer than {FILE_BYTES_MAX} bytes")));
        }
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1;
            wrong(format!("line {line}: {}", error.message().replace('\n', "; ")))
        })
    }

    fn subjects(&self) -> Vec<(String, String)> {
        if self.variants.is_empty() {
            return vec![(self.name.clone(), self.description.clone())];
        }
        let name = |variant: &String| format!("{}:{variant}", self.name);
        self.variants
            .iter()
            .map(|(key, variant)| (name(key), variant.description.clone()))
            .collect()
    }

    fn no_variant(&self, name: &str) -> String {
        if self.variants.is_empty() {
            return format!("there is no variant `{name}`: leave out `:{name}`");
        }
        let names: Vec<&str> = self.variants.keys().map(String::as_str).collect();
        format!("there is no variant `{name}`; there are: {}", names.join(", "))
    }

    /// Everything that can be wrong apart from the file's form.
    fn check(&self) -> Result<(), String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        for name in std::iter::once(&self.name).chain(self.variants.keys()) {
            if name.is_empty() || !name.chars().all(is_plain) {
                return Err(format!("name `{name}`: use letters, digits, `-` and `_`"));
            }
        }
        for (what, list) in
            [("programs", &self.programs), ("start", &self.start), ("version", &self.version)]
        {
            if list.is_empty() {
                return Err(format!("`{what}` is empty"));
            }
        }
        if self.prepare.iter().any(Vec::is_empty) {
            return Err("a command of `prepare` is empty".to_owned());
        }
        if self.stores_max > STORES_MAX {
            return Err(format!("`stores_max` is more than {STORES_MAX}"));
        }
        if let Some(name) =
            self.default_variant.as_ref().filter(|name| !self.variants.contains_key(*name))
        {
            return Err(format!(
                "`default_variant` names `{name}`, and there is no [variants.{name}]"
            ));
        }
        if self.default_variant.is_none() && !self.variants.is_empty() {
            return Err("say which variant is meant without one: `default_variant = …`".to_owned());
        }
        self.check_paths()?;
        self.check_words()
    }

    /// Files stay in the run folder, and leftovers are recognisably ours.
    fn check_paths(&self) -> Result<(), String> {
        for name in self.files.keys().chain(&self.logs).chain(&self.folders) {
            let is_inside = std::path::Path::new(name)
                .components()
                .all(|part| matches!(part, std::path::Component::Normal(_)));
            if !is_inside || name.is_empty() {
                return Err(format!(
                    "`{name}`: names of files are relative to the run folder, without `..`"
                ));
            }
        }
        for pattern in &self.leftovers {
            let rest = pattern.rsplit_once('/').map_or("", |(_, name)| name);
            if !(pattern.starts_with('/') && rest.starts_with("{instance}") && rest.ends_with('*'))
            {
                return Err(format!(
                    "leftovers `{pattern}`: must look like `/FOLDER/{{instance}}…*`"
                ));
            }
        }
        Ok(())
    }

    fn check_words(&self) -> Result<(), String> {
        if let Some(stored) = &self.stored {
            stored.check().map_err(|what| format!("stored, {what}"))?;
        }
        let known = self.known_words();
        let check = |place: &str, text: &str| {
            template::check(text, known.iter()).map_err(|what| format!("{place}, {what}"))
        };
        for (name, text) in &self.files {
            check(&format!("files.\"{name}\""), text)?;
        }
        let commands = self.prepare.iter().chain([&self.start, &self.version]);
        for text in commands
            .flatten()
            .chain(self.environment.values())
            .chain(&self.ready_url)
            .chain(&self.leftovers)
            .chain(self.stored.iter().flat_map(StoredPage::command))
        {
            check(&format!("`{text}`"), text)?;
        }
        for (name, text) in self.all_words() {
            check(&format!("word `{name}`"), text)?;
            if GIVEN_WORDS.contains(&name.as_str()) || name == INDEX_WORD {
                return Err(format!("word `{name}`: this name is taken by the laboratory"));
            }
        }
        Ok(())
    }

    /// Every word of every layer.
    fn all_words(&self) -> impl Iterator<Item = (&String, &String)> {
        let when =
            [&self.when.forward, &self.when.accelerator, &self.when.tls, &self.when.intercept];
        let layers = when.into_iter().flatten().chain([&self.when.root, &self.when.not_root]);
        let tables = layers.flat_map(|layer| [&layer.words, &layer.per_store, &layer.per_origin]);
        let variants = self
            .variants
            .values()
            .flat_map(|variant| [&variant.words, &variant.per_store, &variant.per_origin]);
        tables.chain(variants).chain([&self.words, &self.per_store, &self.per_origin]).flatten()
    }

    fn known_words(&self) -> BTreeSet<String> {
        let given = GIVEN_WORDS.iter().chain([&INDEX_WORD]).map(|word| (*word).to_owned());
        given.chain(self.all_words().map(|(name, _)| name.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
name = "small"
description = "A small one."
mode = "forward"
package = "small"
programs = ["small"]
version = ["{program}", "-v"]
start = ["{program}", "-p", "{port}"]
stores_max = 2
default_variant = "a"
[files]
"small.conf" = "listen {address}\n{lines}\n"
[per_store]
lines = ""
[variants.a]
description = "With a."
per_store.lines = "a {store} {index}"
[variants.b]
description = "With b."
mode = "accelerator"
stores_max = 0
"#;

    fn error(text: &str, variant: Option<&str>) -> String {
        SubjectFile::parse(text, "small.toml", variant).expect_err("it is wrong").to_string()
    }

    #[test]
    fn variants_change_what_they_say_and_nothing_else() {
        let a = SubjectFile::parse(SMALL, "small.toml", None).expect("it is right");
        assert_eq!((a.name(), a.description(), a.mode()), ("small:a", "With a.", Mode::Forward));
        assert_eq!(
            (a.stores_max(), a.content.per_store["lines"].as_str()),
            (2, "a {store} {index}")
        );
        let b = SubjectFile::parse(SMALL, "small.toml", Some("b")).expect("it is right");
        assert_eq!((b.name(), b.mode(), b.stores_max()), ("small:b", Mode::Accelerator, 0));
        assert!(!a.has_mode(Mode::Accelerator) && b.has_mode(Mode::Accelerator));
    }

    #[test]
    fn every_mistake_is_one_clear_line() {
        for (from, to, expected) in [
            ("mode = \"forward\"", "mode = \"backward\"", "line 4"),
            ("stores_max = 2", "stores = 2", "unknown field `stores`"),
            ("stores_max = 2", "stores_max = 65", "more than 64"),
            (
                "listen {address}",
                "listen {adress}",
                "files.\"small.conf\", line 1: unknown word {adress}",
            ),
            ("\"-p\", \"{port}\"", "\"{prot}\"", "unknown word {prot}"),
            ("default_variant = \"a\"", "default_variant = \"c\"", "no [variants.c]"),
            ("default_variant = \"a\"", "", "default_variant"),
            ("\"small.conf\"", "\"../small.conf\"", "without `..`"),
            ("lines = \"\"", "lines = \"\"\nport = \"1\"", "taken by the laboratory"),
            ("name = \"small\"", "name = \"sm:all\"", "use letters"),
            ("stores_max = 2", "leftovers = [\"/dev/shm/*\"]", "must look like"),
            ("programs = [\"small\"]", "programs = []", "`programs` is empty"),
        ] {
            assert!(SMALL.contains(from), "{from}");
            let message = error(&SMALL.replacen(from, to, 1), None);
            assert!(message.contains(expected), "{to}: {message}");
            assert!(
                message.starts_with("subject file small.toml: ") && message.lines().count() == 1
            );
        }
        assert!(error(SMALL, Some("c")).contains("there are: a, b"));
        assert!(error(&"#".repeat(FILE_BYTES_MAX + 1), None).contains("longer"));
    }

    #[test]
    fn files_and_built_in_subjects_are_named_alike() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine.toml").display().to_string();
        std::fs::write(&path, SMALL).expect("a file");
        let name = |name: &str| SubjectFile::load(name).map(|file| file.name().to_owned());
        assert_eq!(name(&path).expect("a right file"), "small:a");
        assert_eq!(name(&format!("{path}:b")).expect("a right file"), "small:b");
        assert_eq!(name("squid:rock").expect("built in"), "squid:rock");
        assert!(
            name(&format!("{path}:c"))
                .expect_err("no variant")
                .to_string()
                .contains("there are: a, b")
        );
        assert!(
            name("squit")
                .expect_err("no family")
                .to_string()
                .contains("squid, squid-bump, humboldt, nginx")
        );
        let error = name("/no/such.toml").expect_err("no file").to_string();
        assert!(error.contains("/no/such.toml: No such file"), "{error}");
    }

    #[test]
    fn built_in_files_are_right() {
        let names: Vec<String> =
            SubjectFile::builtin_names().into_iter().map(|(name, _)| name).collect();
        for family in builtin::FAMILIES.iter().map(|(family, _)| family) {
            let subject = SubjectFile::builtin(family).expect("a family").expect("a right file");
            assert!(names.contains(&subject.name().to_owned()), "{} in {names:?}", subject.name());
        }
        for name in &names {
            let subject = SubjectFile::builtin(name).expect("a family").expect("a right file");
            assert_eq!(subject.name(), name);
        }
        for name in ["squid:null", "squid:aufs", "squid:rock", "humboldt:ring", "nginx", "varnish"]
        {
            assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
        }
        assert!(SubjectFile::builtin("no-such-cache").is_none());
        let error =
            SubjectFile::builtin("squid:aufz").expect("a family").expect_err("no such variant");
        assert!(error.to_string().contains("aufs, diskd"), "{error}");
    }

    #[test]
    fn a_program_without_its_companion_is_not_installed() {
        let text = SMALL.replacen("programs", "requires = [\"/no/such\"]\nprograms", 1);
        let file = SubjectFile::parse(&text, "t", Some("a")).expect("a right file");
        assert!(file.find().expect_err("missing").to_string().contains("/no/such"));
    }
}
