//! The modules of a crate, and which of its files import which.
//!
//! A file imports another where it names one of its items: in `use`, or by a path anywhere, that
//! begins with `crate`, `super`, `self` or the name of a module inside of the own one. Names that a
//! module has from others lead on to the file that has the item, and to none if it is of another
//! crate. A `pub use` that only passes an item on is no import.

use super::Finding;
use crate::source::{self, Token};
use crate::workspace::File;
use std::collections::{BTreeMap, BTreeSet};

/// Most `use` items that one name leads through.
const STEPS_MAX: usize = 8;

/// A source file of a crate, without comments, literals and tests.
pub(super) struct Source<'a> {
    pub(super) path: &'a str,
    /// The folder of its crate's source, with a `/` at its end.
    pub(super) root: &'a str,
    pub(super) text: String,
    /// Modules that it declares for tests only.
    test_modules: BTreeSet<String>,
}

impl<'a> Source<'a> {
    /// `None` for a file that is no part of a crate of the program, or a test.
    pub(super) fn read(file: &'a File) -> Option<Self> {
        let path = file.path.as_str();
        let src = path.strip_prefix("crates/")?.find("/src/")? + "crates/".len() + "/src/".len();
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        let masked = source::mask(&file.text);
        let text = source::without_tests(&masked);
        let test_modules = &declared_modules(&masked) - &declared_modules(&text);
        (!is_test).then_some(Self { path, root: &path[..src], text, test_modules })
    }

    /// The path below the source folder.
    pub(super) fn name(&self) -> &'a str {
        &self.path[self.root.len()..]
    }

    /// The module as its segments; none for the crate's root.
    fn module(&self) -> Vec<&'a str> {
        let name = self.name().trim_end_matches(".rs");
        let mut segments: Vec<&str> = name.split('/').collect();
        if matches!(segments.last(), Some(&("mod" | "lib" | "main"))) {
            segments.pop();
        }
        segments
    }

    /// Its modules that are for tests only, as segments.
    fn modules_for_tests(&self) -> Vec<Vec<&str>> {
        let of = |name| [self.module(), vec![name]].concat();
        self.test_modules.iter().map(|name| of(name.as_str())).collect()
    }

    pub(super) fn finding(&self, at: usize, message: String) -> Finding {
        Finding::new(self.path, source::line_of(&self.text, at), message)
    }
}

/// The names in `mod NAME;`.
fn declared_modules(text: &str) -> BTreeSet<String> {
    let tokens = source::tokens(text);
    let declared = tokens.windows(3).filter(|three| three[0].text == "mod" && three[2].text == ";");
    declared.map(|three| three[1].text.to_owned()).collect()
}

/// The sources of each crate by its source folder, without modules that are for tests only.
pub(super) fn by_crate<'s>(sources: &'s [Source<'s>]) -> BTreeMap<&'s str, Vec<&'s Source<'s>>> {
    let mut crates = BTreeMap::<_, Vec<_>>::new();
    for source in sources {
        crates.entry(source.root).or_default().push(source);
    }
    for members in crates.values_mut() {
        let tests: Vec<Vec<&str>> =
            members.iter().flat_map(|file| file.modules_for_tests()).collect();
        members.retain(|file| !tests.iter().any(|test| file.module().starts_with(test)));
    }
    crates
}

/// A path in the source.
pub(super) struct PathUse<'t> {
    /// The first one is empty where the path begins with `::`.
    pub(super) segments: Vec<&'t str>,
    /// Where its last segment is.
    pub(super) at: usize,
    /// The name that it gets by `use`.
    pub(super) name: Option<&'t str>,
    /// It is of a `pub use`.
    is_public: bool,
}

/// The paths in a text, with groups in braces taken apart, and the words beside them.
pub(super) struct Paths<'t> {
    tokens: Vec<Token<'t>>,
    at: usize,
    pub(super) found: Vec<PathUse<'t>>,
    /// All words that are not in `use`.
    words: BTreeSet<&'t str>,
}

impl<'t> Paths<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let tokens = source::tokens(text);
        let mut paths = Self { tokens, at: 0, found: Vec::new(), words: BTreeSet::new() };
        while paths.at < paths.tokens.len() {
            paths.item();
        }
        paths
    }

    fn word(&self, ahead: usize) -> &'t str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text)
    }

    fn before(&self, back: usize) -> &'t str {
        self.at.checked_sub(back).map_or("", |at| self.tokens[at].text)
    }

    fn is_colons(&self, ahead: usize) -> bool {
        self.word(ahead) == ":" && self.word(ahead + 1) == ":"
    }

    /// Whether `::` here is behind a segment, and no beginning.
    fn goes_on(&self) -> bool {
        let Some(before) = self.at.checked_sub(1).map(|at| self.tokens[at]) else { return false };
        let is_close = before.at + before.text.len() == self.tokens[self.at].at;
        is_close && (is_name(before.text) || before.text == ">")
    }

    /// A `use`, a path, or a word.
    fn item(&mut self) {
        let word = self.word(0);
        // The other one is of a type: `impl Trait + use<T>`.
        if word == "use" && self.word(1) != "<" {
            let is_public = matches!(self.before(1), "pub" | ")");
            self.at += 1;
            return self.tree(&mut Vec::new(), is_public);
        }
        self.words.insert(word);
        let is_inside = self.before(1) == "." || self.before(1) == ":" && self.before(2) == ":";
        let is_leading = self.is_colons(0) && is_name(self.word(2)) && !self.goes_on();
        if is_leading || !is_inside && is_name(word) && self.is_colons(1) {
            let mut segments = vec![if is_leading { "" } else { word }];
            let mut ahead = usize::from(!is_leading);
            while self.is_colons(ahead) && is_name(self.word(ahead + 2)) {
                self.at += ahead + 2;
                ahead = 1;
                segments.push(self.word(0));
                self.words.insert(self.word(0));
            }
            let at = self.tokens[self.at].at;
            self.found.push(PathUse { segments, at, name: None, is_public: false });
        }
        self.at += 1;
    }

    /// What follows `path` in a `use`.
    fn tree(&mut self, path: &mut Vec<&'t str>, is_public: bool) {
        let (word, at) = (self.word(0), self.tokens.get(self.at).map_or(0, |token| token.at));
        self.at += 1;
        match word {
            "{" => {
                while !matches!(self.word(0), "}" | "") {
                    if self.word(0) == "," { self.at += 1 } else { self.tree(path, is_public) }
                }
                self.at += 1;
            }
            "*" => {
                self.found.push(PathUse { segments: path.clone(), at, name: None, is_public });
            }
            // `use ::name` begins with a crate.
            ":" => {
                self.at += 1;
                path.push("");
                self.tree(path, is_public);
                path.pop();
            }
            "$" => self.tree(path, is_public),
            "self" if !path.is_empty() => self.end(path, at, is_public),
            _ => {
                path.push(word);
                if self.is_colons(0) {
                    self.at += 2;
                    self.tree(path, is_public);
                } else {
                    self.end(path, at, is_public);
                }
                path.pop();
            }
        }
    }

    /// A path of a `use` is complete; a new name may follow.
    fn end(&mut self, path: &[&'t str], at: usize, is_public: bool) {
        let is_renamed = self.word(0) == "as";
        let name = if is_renamed { Some(self.word(1)) } else { path.last().copied() };
        self.at += if is_renamed { 2 } else { 0 };
        self.found.push(PathUse { segments: path.to_vec(), at, name, is_public });
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Whether a path that is not of this crate begins with the name of another one.
fn is_of_other_crate(segments: &[&str]) -> bool {
    segments.first().is_some_and(|first| !first.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// An import of one file of a crate by another.
#[derive(Copy, Clone)]
pub(super) struct Import {
    /// Index of the file that is imported.
    pub(super) to: usize,
    pub(super) at: usize,
}

/// Finds the files that paths lead to.
pub(super) struct Modules<'a> {
    /// By module.
    files: BTreeMap<Vec<&'a str>, usize>,
    modules: Vec<Vec<&'a str>>,
    paths: Vec<Paths<'a>>,
    /// The names that each file has by `use`, with their paths from the crate's root. `None`: the
    /// item is of another crate.
    names: Vec<BTreeMap<&'a str, Option<Vec<&'a str>>>>,
}

impl<'a> Modules<'a> {
    pub(super) fn of(members: &[&'a Source<'a>]) -> Self {
        let modules: Vec<_> = members.iter().map(|file| file.module()).collect();
        let files = modules.iter().cloned().enumerate().map(|(index, module)| (module, index));
        let paths = members.iter().map(|file| Paths::of(&file.text)).collect();
        let mut all = Self { files: files.collect(), modules, paths, names: Vec::new() };
        all.names = (0..members.len()).map(|file| all.names_in(file)).collect();
        all
    }

    fn names_in(&self, file: usize) -> BTreeMap<&'a str, Option<Vec<&'a str>>> {
        let name = |path: &PathUse<'a>| {
            let absolute = self.absolute(file, &path.segments);
            // A path that begins with a type is of this file.
            let is_known = absolute.is_some() || is_of_other_crate(&path.segments);
            Some((path.name?, absolute)).filter(|_| is_known)
        };
        self.paths[file].found.iter().filter_map(name).collect()
    }

    /// A path as it would be from the crate's root; `None` if it leads out of the crate.
    fn absolute(&self, file: usize, path: &[&'a str]) -> Option<Vec<&'a str>> {
        let (first, mut rest) = path.split_first()?;
        let mut base = self.modules[file].clone();
        match *first {
            "crate" => base.clear(),
            "self" => {}
            "super" => _ = base.pop(),
            child => {
                base.push(child);
                self.files.get(&base)?;
            }
        }
        while let ["super", inner @ ..] = rest {
            base.pop();
            rest = inner;
        }
        base.extend(rest);
        Some(base)
    }

    /// The file with the item that a path from the crate's root names; `None` for an item of
    /// another crate.
    fn file(&self, path: &[&'a str], steps: usize) -> Option<usize> {
        let len = (0..=path.len()).rev().find(|len| self.files.contains_key(&path[..*len]))?;
        let file = *self.files.get(&path[..len])?;
        match path.get(len).and_then(|name| self.names[file].get(name)) {
            Some(None) => None,
            Some(Some(known)) if steps > 0 => {
                self.file(&[known, &path[len + 1..]].concat(), steps - 1)
            }
            _ => Some(file),
        }
    }

    /// The imports of a file.
    pub(super) fn imports(&self, file: usize) -> Vec<Import> {
        let Paths { found, words, .. } = &self.paths[file];
        let is_passed_on = |path: &&PathUse<'_>| {
            path.is_public && path.name.is_some_and(|name| !words.contains(name))
        };
        let own = found.iter().filter(|path| !is_passed_on(path));
        let import = |path: &PathUse<'a>| {
            let to = self.file(&self.absolute(file, &path.segments)?, STEPS_MAX)?;
            (to != file).then_some(Import { to, at: path.at })
        };
        own.filter_map(import).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_through_groups_aliases_and_expressions() {
        let text = "use crate::a::{self, b::{C, D as E}, f::*};\nlet x: crate::g::H = y { crate: 1 };
            pub(crate) fn i() { $crate::j::k!(crate::l::<u8>) }\nuse ::m; fn n() -> impl O + use<> {}
            pub use self::p::q; r.s::<t::U>(::v::W, <X>::Y, u::<Z>::z::A)";
        let found: Vec<String> =
            Paths::of(text).found.iter().map(|path| path.segments.join("::")).collect();
        let expected = "crate::a crate::a::b::C crate::a::b::D crate::a::f crate::g::H \
            crate::j::k crate::l ::m self::p::q t::U ::v::W u";
        assert_eq!(found.join(" "), expected);
    }

    /// The files that one file imports.
    fn imports(files: &[(&str, &str)], of: &str) -> Vec<String> {
        let file = |(name, text): &(&str, &str)| File {
            path: format!("crates/a/src/{name}"),
            text: (*text).into(),
        };
        let files: Vec<File> = files.iter().map(file).collect();
        let sources: Vec<Source<'_>> = files.iter().filter_map(Source::read).collect();
        let members: Vec<&Source<'_>> = sources.iter().collect();
        let index = members.iter().position(|file| file.name() == of).unwrap();
        let imports = Modules::of(&members).imports(index);
        imports.iter().map(|import| members[import.to].name().to_owned()).collect()
    }

    #[test]
    fn relative_paths_and_names_that_are_passed_on_lead_to_the_file_of_the_item() {
        let others = [
            ("lib.rs", "mod b;\npub use b::{Own, c::Deep as D};\npub use z::Far;\npub use T::V;"),
            ("b/mod.rs", "mod c;\npub(crate) use c::C;\nuse d::E;\npub use d::F;\nfn f(f: F) {}"),
            ("b/c.rs", ""),
            ("b/d.rs", ""),
        ];
        let of = |text| imports(&[&others[..], &[("b/e.rs", text)]].concat(), "b/e.rs");
        assert_eq!(of("use super::C;"), ["b/c.rs"]);
        assert_eq!(of("fn f() { super::E::new(); super::other() }"), ["b/d.rs", "b/mod.rs"]);
        assert_eq!(of("use super::super::D;"), ["b/c.rs"]);
        assert_eq!(of("use crate::Own;"), ["b/mod.rs"]);
        assert_eq!(of("use crate::{Far, V};"), ["lib.rs"]);
        assert_eq!(of("use super::{c::{self, C}, d};"), ["b/c.rs", "b/c.rs", "b/d.rs"]);
        assert_eq!(of("use std::super_fast;\nfn f() { c::f() }"), [""; 0]);
        // It passes `C` on, and uses the other two.
        assert_eq!(imports(&others, "b/mod.rs"), ["b/d.rs", "b/d.rs"]);
    }
}
