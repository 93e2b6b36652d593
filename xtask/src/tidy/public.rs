//! No public item is unused. The compiler cannot warn of it, because another crate might use it.
//!
//! A heuristic over words: an item counts as used if its name stands anywhere else in code that is
//! not a test, an import or an `impl` header. An exception is written where the item is:
//! `// tidy: public, because …` on the line above it or behind it.

use super::Finding;
use crate::source::{self, Token};
use crate::workspace::File;
use std::collections::HashMap;

const EXCEPTION: &str = "// tidy: public, because ";
const ITEM_WORDS: [&str; 8] = ["fn", "struct", "enum", "trait", "const", "static", "type", "union"];

struct Item<'a> {
    file: &'a File,
    name: String,
    line: usize,
}

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut items = Vec::new();
    let mut uses: HashMap<String, usize> = HashMap::new();
    for file in files.iter().filter(|file| !is_test_file(&file.path)) {
        let text = source::without_tests(&source::mask(&file.text));
        let tokens = source::tokens(&text);
        count_uses(&tokens, &mut uses);
        if file.path.starts_with("crates/") || file.path.starts_with("lab/") {
            items.extend(public_items(file, &text, &tokens));
        }
    }
    let unused =
        items.into_iter().filter(|item| !uses.contains_key(&item.name) && !has_exception(item));
    unused
        .map(|item| {
            Finding::new(
                &item.file.path,
                item.line,
                format!("`{}` is public and unused", item.name),
            )
        })
        .collect()
}

fn is_test_file(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

fn count_uses(tokens: &[Token<'_>], uses: &mut HashMap<String, usize>) {
    let mut in_import = false;
    for (index, token) in tokens.iter().enumerate() {
        let before = index.checked_sub(1).map_or("", |before| tokens[before].text);
        if token.text == "use" && matches!(before, "" | ";" | "}" | "{" | "]" | ")" | "pub") {
            in_import = true;
        } else if token.text == ";" {
            in_import = false;
        }
        let two_before = index.checked_sub(2).map_or("", |before| tokens[before].text);
        let is_header = match before {
            // `&impl Name` and `: impl Name` are uses.
            "impl" => matches!(two_before, "" | ";" | "}" | "{" | "]" | "unsafe"),
            "for" => true,
            _ => false,
        };
        let is_definition = ITEM_WORDS.contains(&before) || is_header;
        if !in_import && !is_definition {
            *uses.entry(token.text.to_owned()).or_default() += 1;
        }
    }
}

/// Items with a plain `pub`; `pub(crate)` is the compiler's to judge, and `$name` a macro's.
fn public_items<'a>(file: &'a File, text: &str, tokens: &[Token<'_>]) -> Vec<Item<'a>> {
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate().filter(|(_, token)| token.text == "pub") {
        let mut next = tokens[index + 1..].iter().map(|token| token.text).peekable();
        while next.peek().is_some_and(|word| matches!(*word, "async" | "unsafe" | "extern" | "\""))
        {
            next.next();
        }
        let (Some(mut word), Some(mut name)) = (next.next(), next.next()) else { continue };
        if word == "const" && name == "fn" {
            (word, name) = ("fn", next.next().unwrap_or_default());
        }
        if ITEM_WORDS.contains(&word) && name != "$" && name != "mut" {
            found.push(Item { file, name: name.to_owned(), line: source::line_of(text, token.at) });
        }
    }
    found
}

fn has_exception(item: &Item<'_>) -> bool {
    let lines: Vec<&str> = item.file.text.lines().collect();
    let own = lines.get(item.line - 1).is_some_and(|line| line.contains(EXCEPTION));
    let above = lines[..item.line - 1].iter().rev().take_while(|line| is_attached(line));
    own || above.into_iter().any(|line| line.contains(EXCEPTION))
}

/// Comments and attributes belong to the item below them.
fn is_attached(line: &str) -> bool {
    line.trim_start().starts_with("//") || line.trim_start().starts_with("#[")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused(text: &str) -> Vec<usize> {
        let file = File { path: "crates/a/src/lib.rs".into(), text: text.into() };
        check(&[file]).into_iter().map(|found| found.line).collect()
    }

    #[test]
    fn an_item_named_only_in_its_definition_an_import_or_a_test_is_unused() {
        assert_eq!(
            unused(
                "pub fn a() {}\npub struct B;\nimpl B {}\nfn main() { let x: C; }\npub type C = u8;"
            ),
            [1, 2]
        );
        assert_eq!(unused("pub use m::a;\nmod m { pub const fn a() {} }"), [2]);
        assert_eq!(unused("pub const A: u8 = 1;\n#[cfg(test)]\nmod tests { fn t() { A; } }"), [1]);
        assert!(unused("pub(crate) fn a() {}\n// pub fn b() {}\n").is_empty());
    }

    #[test]
    fn an_exception_needs_its_reason() {
        let excused =
            "/// Doc.\n// tidy: public, because plugins call it\n#[inline]\npub fn a() {}";
        assert!(unused(excused).is_empty());
        assert_eq!(unused("// tidy: public, because\npub fn a() {}"), [2]);
    }
}
