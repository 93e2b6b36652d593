//! Every value of squid.conf has a reader: every directive that works and every `pub` field of the
//! types in `crates/conf/src/types` and `crates/options` is read elsewhere. An option that is
//! parsed and then forgotten would have no effect, and no message would tell.
//!
//! A heuristic over words. A field is read by `.field` that is neither assigned nor called, in code
//! that is not a test. Where other structs or functions have the same name, only files count that
//! name its type, a type that holds it or a directive that has it; of the directives, which are
//! fields of `Config`, only `config.field`.

use super::Finding;
use crate::source;
use crate::workspace::File;
use std::collections::{HashMap, HashSet};

const TYPES: [&str; 2] = ["crates/conf/src/types/", OPTIONS];
/// The options of `cache_dir` are in a crate of their own. They are for the schemes, which call
/// them by other names than their types: any read of a field of that name counts there.
const OPTIONS: &str = "crates/options/";
const SCHEMES: &str = "crates/schemes/";
/// Of `crates/options`, the file with the documentation of options.
const OPTIONS_DOC: &str = "crates/options/src/option.rs";
const TABLE: &str = "crates/conf/src/table/";
const CONF: &str = "crates/conf/";

/// Fields that need no other reader, with the reason.
const EXCEPTIONS: [(&str, &str, &str); 6] = [
    ("CossOptions", "maxfullbufs", "`full_stripes_max` is made of it"),
    ("Config", "run_without", "it decides while the file is read"),
    ("Config", "configuration_includes_quoted_values", "it decides how the file is read"),
    ("Location", "file", "others show it by `Display`"),
    ("Location", "line", "others show it by `Display`"),
    ("Location", "column", "others show it by `Display`"),
];

/// A parsed value.
struct Field<'a> {
    file: &'a str,
    line: usize,
    /// The struct it is in.
    of: String,
    name: String,
}

/// A file of another crate, without tests.
struct Code {
    is_scheme: bool,
    /// All its words, and the directives it reads as `config.name`.
    words: HashSet<String>,
    /// Reads: the word before the point, and the field.
    reads: Vec<(String, String)>,
}

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut fields = Vec::new();
    let mut holders: HashMap<String, HashSet<String>> = HashMap::new();
    for file in files {
        let has_types = TYPES.iter().any(|types| file.path.starts_with(types));
        if has_types && file.path != OPTIONS_DOC {
            struct_fields(file, &mut fields, &mut holders);
        } else if file.path.starts_with(TABLE) {
            directives(file, &mut fields, &mut holders);
        }
    }
    let is_other = |file: &&File| {
        file.path.starts_with("crates/")
            && !file.path.starts_with(CONF)
            && !file.path.starts_with(OPTIONS)
            && !file.path.contains("tests")
    };
    let mut elsewhere: HashSet<String> = HashSet::new();
    let others: Vec<Code> =
        files.iter().filter(is_other).map(|file| code(file, &mut elsewhere)).collect();
    let names = |name: &str| fields.iter().filter(|field| field.name == name).count();
    let is_read = |field: &&Field<'_>| {
        let excused = EXCEPTIONS.iter().any(|(of, name, _)| *of == field.of && *name == field.name);
        let is_unique = names(&field.name) == 1 && !elsewhere.contains(&field.name);
        let held = holders.get(&field.of);
        excused
            || others.iter().any(|code| {
                let names_it = code.words.contains(&field.of)
                    || held.is_some_and(|held| held.iter().any(|of| code.words.contains(of)));
                code.reads.iter().filter(|(_, name)| *name == field.name).any(|(before, _)| {
                    is_unique
                        || code.is_scheme && field.file.starts_with(OPTIONS)
                        || if field.of == "Config" { before.ends_with("config") } else { names_it }
                })
            })
    };
    let forgotten = fields.iter().filter(|field| !is_read(field));
    let message = |field: &Field<'_>| {
        format!("`{}` of `{}` is parsed, and nothing outside `conf` reads it", field.name, field.of)
    };
    forgotten.map(|field| Finding::new(field.file, field.line, message(field))).collect()
}

/// The `pub` fields of the structs in a file; `holders` gets the holders of each type.
fn struct_fields<'a>(
    file: &'a File,
    fields: &mut Vec<Field<'a>>,
    holders: &mut HashMap<String, HashSet<String>>,
) {
    let text = source::without_tests(&source::mask(&file.text));
    let tokens = source::tokens(&text);
    let word = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let mut of = None;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "struct" => of = Some(word(at + 1).to_owned()),
            "enum" | "impl" | "fn" | "macro_rules" => of = None,
            "pub" if word(at + 2) == ":" => {
                let Some(of) = &of else { continue };
                let line = source::line_of(&text, token.at);
                fields.push(Field {
                    file: &file.path,
                    line,
                    of: of.clone(),
                    name: word(at + 1).to_owned(),
                });
                let types =
                    (at + 3..).map(word).take_while(|word| !matches!(*word, "," | "}" | ""));
                for held in types {
                    holders.entry(held.to_owned()).or_default().insert(of.clone());
                }
            }
            _ => {}
        }
    }
}

/// The directives that work: rows `name | alias: Type = Kind("default"), …` of the table.
fn directives<'a>(
    file: &'a File,
    fields: &mut Vec<Field<'a>>,
    holders: &mut HashMap<String, HashSet<String>>,
) {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    for (index, line) in file.text.lines().enumerate() {
        let row = line.strip_prefix("    ").and_then(|row| row.split_once(": "));
        let Some((names, Some((types, kind)))) =
            row.map(|(names, rest)| (names, rest.split_once(" = ")))
        else {
            continue;
        };
        let name = names.split(" | ").next().unwrap_or_default();
        if !kind.contains("(\"") || !name.chars().all(is_name) {
            continue;
        }
        fields.push(Field {
            file: &file.path,
            line: index + 1,
            of: "Config".into(),
            name: name.into(),
        });
        for held in types.split(['<', '>', ' ']).filter(|held| !held.is_empty()) {
            holders.entry(held.to_owned()).or_default().insert(format!("config.{name}"));
        }
    }
}

/// The fields that a file reads; `elsewhere` gets the names of its own fields and functions.
fn code(file: &File, elsewhere: &mut HashSet<String>) -> Code {
    let text = source::without_tests(&source::mask(&file.text));
    let tokens = source::tokens(&text);
    let word = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let mut reads = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let name = || word(at + 1).to_owned();
        match token.text {
            "fn" => {
                elsewhere.insert(name());
            }
            // A field of a struct or of its literal, or an argument.
            ":" if at > 0 && word(at + 1) != ":" && word(at - 1) != ":" => {
                elsewhere.insert(word(at - 1).to_owned());
            }
            "." if at > 0 => {
                let is_assigned = word(at + 2) == "=" && !matches!(word(at + 3), "=" | ">");
                if word(at + 2) != "(" && !is_assigned {
                    reads.push((word(at - 1).to_owned(), name()));
                }
            }
            _ => {}
        }
    }
    let mut words: HashSet<String> = tokens.iter().map(|token| token.text.to_owned()).collect();
    let configured = reads.iter().filter(|(before, _)| before.ends_with("config"));
    words.extend(configured.map(|(_, name)| format!("config.{name}")));
    Code { is_scheme: file.path.starts_with(SCHEMES), words, reads }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forgotten(program: &str) -> Vec<usize> {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let types = "/// A peer.\npub struct Peer {\n    pub weight: u32,\n    pub standby: u32,\n}\n\
                     pub struct Rule {\n    pub allow: bool,\n    pub peer: Option<Peer>,\n}\n";
        let table = "        [\"Section\" {\n    /// Doc.\n    via | old_via: bool = OnOff(\"on\"), \"via on|off\";\n";
        let files = [
            file("crates/conf/src/types/a.rs", types),
            file("crates/conf/src/table/b.rs", table),
            file("crates/conf/src/kinds/c.rs", "fn x() { peer.standby; rule.allow; config.via; }"),
            file("crates/proxy/src/d.rs", program),
        ];
        let mut lines: Vec<_> = check(&files).iter().map(|finding| finding.line).collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn what_is_parsed_and_forgotten_is_found() {
        assert_eq!(forgotten(""), [3, 3, 4, 7, 8]);
        let all = "fn a() { p.weight + p.standby; r.allow; r.peer; config.via }";
        assert!(forgotten(all).is_empty());
        assert_eq!(forgotten(&all.replace("p.standby", "p.standby()")), [4]);
        assert_eq!(forgotten(&all.replace("r.allow;", "r.allow = true;")), [7]);
        assert!(forgotten(&all.replace("r.allow;", "r.allow == true;")).is_empty());
        let in_a_test = format!("#[cfg(test)]\nmod tests {{ {all} }}");
        assert_eq!(forgotten(&in_a_test).len(), 5);
    }

    #[test]
    fn an_option_of_a_scheme_needs_a_scheme_that_reads_it() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let options = "pub struct RockOptions {\n    pub knob: u32,\n    pub io: u32,\n}\n";
        let scheme = "fn a(own: u32) { own.io }";
        let read_by = |path: &str| {
            let files = [file("crates/options/src/rock.rs", options), file(path, scheme)];
            check(&files).iter().map(|finding| finding.line).collect::<Vec<_>>()
        };
        assert_eq!(read_by("crates/schemes/src/rock/mod.rs"), [2]);
        assert_eq!(read_by("crates/options/src/other.rs"), [2, 3]);
    }

    #[test]
    fn a_field_of_another_struct_with_the_same_name_is_no_reader() {
        let other = "struct Mine { weight: u32, via: bool } fn a() { p.standby; r.allow; r.peer; m.weight; m.via; config.x }";
        assert_eq!(forgotten(other), [3, 3]);
        assert_eq!(forgotten(&format!("use Peer; {other} fn b() {{ config.via }}")), [0; 0]);
        assert_eq!(
            forgotten(&format!("use Rule; {other} fn b() {{ config.via }}")),
            [0; 0],
            "it holds a Peer"
        );
    }
}
