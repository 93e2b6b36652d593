//! Annotations: the directive `note`, and the pairs of `annotate_transaction` and
//! `annotate_client`.

use super::Kind;
use super::access::read_terms;
use super::logs::{check_early_log_format, check_log_format};
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::types::{Annotation, NoteRule};

/// Names that helpers give a meaning of their own, as in Squid.
const RESERVED: [&str; 11] = [
    "group",
    "ha1",
    "log",
    "message",
    "password",
    "rewrite-url",
    "status",
    "tag",
    "ttl",
    "url",
    "user",
];

/// The characters that divide a list if `-m` names none.
const DEFAULT_DELIMITERS: &str = ",";

/// `NAME VALUE [ACL…]`
pub(crate) struct NoteRules;

impl Kind for NoteRules {
    type Out = Vec<NoteRule>;
    const NAME: &'static str = "name, value and ACLs";

    fn apply(out: &mut Vec<NoteRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        let name = line.expect("the name of the annotation")?;
        check_name(&name, &name.text, line)?;
        let value = line.next_quoted()?.ok_or_else(|| line.missing("a value"))?;
        if value.quoted {
            check_log_format(&value, line);
        }
        let terms = read_terms(line)?;
        out.push(NoteRule { name: name.text, formatted: value.quoted, value: value.text, terms });
        Ok(())
    }
}

/// Reads `NAME=VALUE` and `NAME+=VALUE` up to the end of the line.
pub(super) fn read_annotations(line: &mut Line<'_>) -> Result<Vec<Annotation>, Problem> {
    let mut pairs = Vec::new();
    while let Some((key, value)) = line.next_pair()? {
        let bare = key.text.strip_suffix('+');
        let name = bare.unwrap_or(&key.text).to_owned();
        check_name(&key, &name, line)?;
        if value.quoted {
            check_early_log_format(&value, line);
        }
        let appends = bare.is_some();
        pairs.push(Annotation { name, appends, value: value.text, formatted: value.quoted });
    }
    if pairs.is_empty() {
        return Err(line.missing("a pair such as `name=value`"));
    }
    Ok(pairs)
}

/// A name has letters, digits, `-` and `_`. Squid takes others with a warning.
fn check_name(token: &Token, name: &str, line: &mut Line<'_>) -> Result<(), Problem> {
    if name.is_empty() {
        return Err(token.error("the name of the annotation is missing"));
    }
    if RESERVED.contains(&name) {
        let why = format!("`{name}` has a meaning of its own in the answers of helpers");
        return Err(token.error(why).with_help("choose another name"));
    }
    let is_usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if let Some(other) = name.chars().find(|c| !is_usual(*c)) {
        let help = "use letters, digits, `-` and `_`";
        line.warn(token, format!("`{other}` is unusual in the name of an annotation"), Some(help));
    }
    Ok(())
}

/// Whether the flag says that values are lists.
pub(super) fn is_list_flag(flag: &str) -> bool {
    flag == "-m" || flag.starts_with("-m=")
}

/// The delimiters of `-m` or `-m=DELIMITERS`.
pub(super) fn read_delimiters(token: &Token) -> Result<String, Problem> {
    let Some(given) = token.text.strip_prefix("-m=") else {
        return Ok(DEFAULT_DELIMITERS.to_owned());
    };
    let is_delimiter = |c: char| c.is_ascii() && !c.is_ascii_alphanumeric();
    if given.is_empty() || !given.chars().all(is_delimiter) {
        let why = format!("`{given}` are not delimiters");
        return Err(token.error(why).with_help("write characters that are no letters or digits"));
    }
    Ok(given.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::types::AclDef;
    use crate::{Config, Severity, parse_str};

    fn parse(text: &str) -> (Config, String, bool, usize) {
        let (config, found) =
            parse_str("t", &format!("http_port 1\nhttp_access allow all\n{text}\n"));
        let warnings = found.count(Severity::Warning);
        (config, found.render(false), found.has_errors(), warnings)
    }

    fn pairs(def: &AclDef) -> Vec<(&str, bool, &str, bool)> {
        let pairs = def.annotations.iter();
        pairs.map(|a| (&*a.name, a.appends, &*a.value, a.formatted)).collect()
    }

    #[test]
    fn pairs_have_values_that_may_be_quoted() {
        let text =
            "acl m annotate_client -m=;| a=1 b+=\"x %>a; y\" # c=1\nacl m annotate_client a+=2";
        let (config, said, errors, warnings) = parse(text);
        assert!(!errors && warnings == 0, "{said}");
        let def = config.acl.iter().find(|acl| acl.name == "m").expect("the ACL");
        assert_eq!(
            pairs(def),
            [("a", false, "1", false), ("b", true, "x %>a; y", true), ("a", true, "2", false)]
        );
        assert_eq!(def.flags.delimiters.as_deref(), Some(";|"));
    }

    #[test]
    fn what_is_no_pair_is_an_error() {
        for bad in ["", "a", "=1", "a=", "a= 1", "a=1 b", "user=x", "+=x", "a=\"x", "-m=a a=1"] {
            let (_, said, errors, _) = parse(&format!("acl m annotate_transaction {bad}"));
            assert!(errors, "{bad}: {said}");
        }
        assert_eq!(parse("acl m annotate_transaction a.b=1").3, 1);
    }

    #[test]
    fn a_code_that_is_known_only_at_the_end_is_a_warning_for_a_rule_that_comes_before() {
        assert_eq!(parse("acl m annotate_transaction a=\"%>Hs %ru\"").3, 1);
        assert_eq!(parse("note a \"%>Hs %ru\"").3, 0);
        assert!(parse("note a \"%zz\"").2);
    }

    #[test]
    fn a_note_may_have_conditions() {
        let (config, said, errors, _) =
            parse("acl l src 10.0.0.1\nnote team \"red %>a\" l !localhost\nnote plain %>a");
        assert!(!errors, "{said}");
        let shown: Vec<_> =
            config.note.iter().map(|n| (&*n.value, n.formatted, n.terms.len())).collect();
        assert_eq!(shown, [("red %>a", true, 2), ("%>a", false, 0)]);
        assert!(parse("note ttl 1").2 && parse("note a").2 && parse("note").2);
    }

    #[test]
    fn the_acl_note_keeps_its_name_first() {
        let (config, said, errors, _) = parse("acl n note -m team red blue\nacl n note team green");
        assert!(!errors, "{said}");
        let def = config.acl.iter().find(|acl| acl.name == "n").expect("the ACL");
        assert_eq!(def.values, ["team", "red", "blue", "green"]);
        assert_eq!(def.flags.delimiters.as_deref(), Some(","));
        assert!(parse("acl n note team red\nacl n note Team red").2, "names have case");
        assert!(parse("acl n note -i team red").2);
    }
}
