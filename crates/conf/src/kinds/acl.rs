//! `acl NAME TYPE [flags] values…`

use super::Kind;
use super::acl_values::check_value;
use super::annotations::{is_list_flag, read_annotations, read_delimiters};
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::lists::{List, Need};
use crate::state::KnownAcl;
use crate::suggest::suggest;
use crate::types::{AclDef, AclFlags, AclKind, ServerNameFrom};

/// Definitions of ACLs; lines with the same name add up.
pub(crate) struct Acls;

impl Kind for Acls {
    type Out = Vec<AclDef>;
    const NAME: &'static str = "ACL definition";
    const EXTENDS_DEFAULT: bool = true;

    fn apply(out: &mut Vec<AclDef>, line: &mut Line<'_>) -> Result<(), Problem> {
        let name = line.expect("the name of the ACL")?;
        let type_token = line.expect("the type of the ACL")?;
        if name.text.eq_ignore_ascii_case("manager") && type_token.text == "proto" {
            while line.next()?.is_some() {}
            line.note(
                &name,
                "`manager` is predefined; this old definition is ignored",
                Some("remove the line"),
            );
            return Ok(());
        }
        let kind = read_kind(&type_token, line)?;
        let index = find_or_define(out, &name, kind, &type_token, line)?;
        let mut values = Vec::new();
        let mut flags = read_flags(kind, &mut values, line)?;
        if kind == AclKind::External {
            let is_second = out.get(index).is_some_and(|def| !def.values.is_empty());
            flags.needs_user = read_external(&name, is_second, &mut values, line)?;
        }
        let annotations = match kind.annotates() {
            true => read_annotations(line)?,
            false => Vec::new(),
        };
        read_values(kind, &name, &mut values, line)?;
        // As in Squid the first word only: any other one is the name of a user.
        if is_user_kind(kind) && values.first().is_some_and(|first| first == "REQUIRED") {
            flags.every_user = true;
            values.remove(0);
        }
        if kind == AclKind::Has && values.len() != 1 {
            let why = format!("a line of `{}` has one component, not {}", name.text, values.len());
            return Err(type_token
                .error(why)
                .with_help("write a line for each: one must be there"));
        }
        let Some(def) = out.get_mut(index) else { return Ok(()) };
        merge_flags(&mut def.flags, flags);
        def.annotations.extend(annotations);
        let resets_case = kind.is_regex() && note_case(&name, &values, line);
        append(def, values, &name, resets_case)?;
        if def.flags.every_user && !def.values.is_empty() {
            let why = format!(
                "`{}` has `REQUIRED`, which every user matches: the names mean nothing",
                name.text
            );
            line.warn(&name, why, None);
        }
        if kind == AclKind::ConnectionsEncrypted {
            if !def.values.is_empty() {
                line.warn(&name, format!("`{}` takes no values", name.text), None);
            }
        } else if def.values.is_empty() && def.annotations.is_empty() && !def.flags.every_user {
            line.warn(&name, format!("`{}` has no values: it never matches", name.text), None);
        }
        remember_usability(kind, index, out, line);
        Ok(())
    }
}

fn read_kind(token: &Token, line: &mut Line<'_>) -> Result<AclKind, Problem> {
    let Some(kind) = AclKind::from_name(&token.text) else {
        let problem = token.error(format!("`{}` is not a type of ACL", token.text));
        return Err(match suggest(&token.text, AclKind::ALL.iter().map(|kind| kind.name())) {
            Some(name) => problem.with_help(format!("did you mean `{name}`?")),
            None => problem,
        });
    };
    if kind.name() != token.text {
        let message = format!("`{}` is now called `{}`", token.text, kind.name());
        line.note(token, message, None);
    }
    Ok(kind)
}

/// The index of the definition that this line starts or extends.
fn find_or_define(
    out: &mut Vec<AclDef>,
    name: &Token,
    kind: AclKind,
    type_token: &Token,
    line: &mut Line<'_>,
) -> Result<usize, Problem> {
    if let Some(known) = line.state.acl(&name.text) {
        if known.kind == kind {
            return Ok(known.index);
        }
        let place = if known.location.line == 0 {
            "it is predefined".to_owned()
        } else {
            format!("it was defined at {}", known.location)
        };
        return Err(type_token
            .error(format!("`{}` is already an ACL of type `{}`", name.text, known.kind.name()))
            .with_help(format!("{place}: choose another name, or group both with `any-of`")));
    }
    let location = line.location(name);
    let index = out.len();
    let known = KnownAcl {
        name: name.text.clone(),
        kind,
        index,
        unusable: None,
        answers: None,
        requests: None,
        only: Vec::new(),
        ignores_case: false,
        needs: Vec::new(),
        location: location.clone(),
    };
    line.state.acls.insert(name.text.to_ascii_lowercase(), known);
    let flags = AclFlags::default();
    let (values, annotations) = (Vec::new(), Vec::new());
    out.push(AclDef { name: name.text.clone(), kind, flags, annotations, values, location });
    Ok(index)
}

/// Reads the flags in front of the values. `-i` and `+i` of regular expressions become values.
fn read_flags(
    kind: AclKind,
    values: &mut Vec<String>,
    line: &mut Line<'_>,
) -> Result<AclFlags, Problem> {
    let mut flags = AclFlags::default();
    while let Some(token) = line.peek() {
        if !token.text.starts_with(['-', '+']) || token.text.len() < 2 || token.quoted {
            break;
        }
        line.next()?;
        if token.text == "--" {
            break;
        }
        let known = |flag: &str| -> bool {
            match flag {
                "-i" | "+i" => kind.is_regex() || is_user_kind(kind),
                "-n" => is_lookup_kind(kind),
                _ if is_list_flag(flag) => kind == AclKind::Note || kind.annotates(),
                "-s" => kind == AclKind::MaxUserIp,
                "-sha1" => kind == AclKind::ServerCertFingerprint,
                _ => is_server_name(kind) && ServerNameFrom::from_flag(flag).is_some(),
            }
        };
        if !known(&token.text) {
            let why = format!("ACLs of type `{}` have no flag `{}`", kind.name(), token.text);
            return Err(token
                .error(why)
                .with_help("write `--` before a value that starts with `-` or `+`"));
        }
        match token.text.as_str() {
            "-i" | "+i" if kind.is_regex() => values.push(token.text),
            "-n" => flags.no_lookup = true,
            "-i" => flags.ignore_case = true,
            "-s" => flags.strict = true,
            flag if is_list_flag(flag) => flags.delimiters = Some(read_delimiters(&token)?),
            // The only digest there is.
            "-sha1" => {}
            flag => {
                let from = ServerNameFrom::from_flag(flag).unwrap_or_default();
                if flags.server_name != ServerNameFrom::Any && flags.server_name != from {
                    let why = "the name of the server can come from one place only";
                    return Err(token.error(why).with_help("write one of these flags"));
                }
                flags.server_name = from;
            }
        }
    }
    Ok(flags)
}

/// Reads the name of the helper; returns whether its questions name a checked user.
fn read_external(
    name: &Token,
    is_second: bool,
    values: &mut Vec<String>,
    line: &mut Line<'_>,
) -> Result<bool, Problem> {
    if is_second {
        return Err(name.error(format!("`{}` can have one line only, as in Squid", name.text)));
    }
    let token = line.expect("the name of an external_acl_type")?;
    let known = &line.state.external_types;
    let Some((_, needs_user)) = known.iter().find(|(known, _)| *known == token.text) else {
        let why = format!("no external_acl_type above is named `{}`", token.text);
        let suggestion = suggest(&token.text, known.iter().map(|(name, _)| name.as_str()));
        return Err(match suggestion {
            Some(name) => token.error(why).with_help(format!("did you mean `{name}`?")),
            None => token.error(why),
        });
    };
    values.push(token.text);
    Ok(*needs_user)
}

fn is_server_name(kind: AclKind) -> bool {
    matches!(kind, AclKind::SslServerName | AclKind::SslServerNameRegex)
}

fn is_user_kind(kind: AclKind) -> bool {
    matches!(kind, AclKind::ProxyAuth | AclKind::ExtUser | AclKind::Ident)
}

fn is_lookup_kind(kind: AclKind) -> bool {
    use AclKind as K;
    let names = matches!(kind, K::DstDomain | K::DstDomRegex);
    names || matches!(kind, K::Src | K::Dst | K::LocalIp | K::SslServerName | K::SslServerNameRegex)
}

fn read_values(
    kind: AclKind,
    name: &Token,
    values: &mut Vec<String>,
    line: &mut Line<'_>,
) -> Result<(), Problem> {
    if kind.keeps_lines() {
        let mut words = Vec::new();
        while let Some(token) = line.next()? {
            match file_name(&token).filter(|_| kind == AclKind::Time) {
                Some(path) => read_file(kind, &token, &path, name, values, line)?,
                None => words.push(check_value(kind, &token, name, line)?),
            }
        }
        if !words.is_empty() || kind == AclKind::AllOf {
            values.push(words.join(" "));
        }
        return Ok(());
    }
    let mut first = true;
    loop {
        let regex = kind.is_regex() && !(first && has_leading_name(kind));
        let token = if regex { line.next_regex()? } else { line.next()? };
        let Some(token) = token else { return Ok(()) };
        if first && has_leading_name(kind) {
            first = false;
            check_attribute(kind, &token)?;
            values.insert(0, token.text);
            continue;
        }
        first = false;
        match file_name(&token) {
            Some(path) => read_file(kind, &token, &path, name, values, line)?,
            None if regex && (token.text == "-i" || token.text == "+i") => values.push(token.text),
            None => values.push(check_value(kind, &token, name, line)?),
        }
    }
}

/// The attributes of certificates that Squid knows by name; all others have numbers.
const ATTRIBUTES: [&str; 6] = ["DN", "C", "O", "CN", "L", "ST"];

fn check_attribute(kind: AclKind, name: &Token) -> Result<(), Problem> {
    let text = name.text.as_str();
    let is_number = text.contains('.') && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let is_known = ATTRIBUTES.iter().any(|known| known.eq_ignore_ascii_case(text)) || is_number;
    if is_known || !matches!(kind, AclKind::UserCert | AclKind::CaCert) {
        return Ok(());
    }
    let problem = name.error(format!("`{text}` is not an attribute of certificates"));
    Err(problem
        .with_help("write DN, C, O, CN, L, ST or the number of another one, such as 2.5.4.11"))
}

/// Kinds whose first value is the name of a field or a key.
fn has_leading_name(kind: AclKind) -> bool {
    use AclKind as K;
    matches!(kind, K::ReqHeader | K::RepHeader | K::Note | K::UserCert | K::CaCert)
}

/// The path in a value `"path"`, which is replaced by the lines of that file.
fn file_name(token: &Token) -> Option<String> {
    if token.quoted {
        return None;
    }
    let inner = token.text.strip_prefix(['"', '\''])?;
    let end = inner.find(['"', '\'']).unwrap_or(inner.len());
    inner.get(..end).filter(|path| !path.is_empty()).map(str::to_owned)
}

/// Each line of the file is one value; blanks around it and the text after ` #` are left out.
fn read_file(
    kind: AclKind,
    token: &Token,
    path: &str,
    name: &Token,
    values: &mut Vec<String>,
    line: &mut Line<'_>,
) -> Result<(), Problem> {
    let text = line.state.read_value_file(path).map_err(|why| {
        token.error(why).with_help(
            "a list that cannot be read is never taken as empty: that could open what it closes",
        )
    })?;
    for (index, row) in text.lines().enumerate() {
        let value = strip_comment(row);
        if value.is_empty() {
            continue;
        }
        let word = Token { text: value.to_owned(), at: token.at.clone(), quoted: false };
        if kind.is_regex() && (value == "-i" || value == "+i") {
            values.push(word.text);
            continue;
        }
        let checked = check_value(kind, &word, name, line).map_err(|mut problem| {
            problem.message = format!("{path}:{}: {}", index + 1, problem.message);
            problem
        })?;
        values.push(checked);
    }
    Ok(())
}

fn strip_comment(row: &str) -> &str {
    let row = row.trim_ascii();
    if row.starts_with('#') {
        return "";
    }
    match row.find(" #").or_else(|| row.find("\t#")) {
        Some(at) => row.get(..at).unwrap_or("").trim_ascii_end(),
        None => row,
    }
}

fn merge_flags(into: &mut AclFlags, flags: AclFlags) {
    into.no_lookup |= flags.no_lookup;
    into.ignore_case |= flags.ignore_case;
    into.every_user |= flags.every_user;
    into.strict |= flags.strict;
    into.needs_user |= flags.needs_user;
    if flags.server_name != ServerNameFrom::Any {
        into.server_name = flags.server_name;
    }
    if flags.delimiters.is_some() {
        into.delimiters = flags.delimiters;
    }
}

/// Notes whether this line has `-i`; gives back whether one before it has. The values so far are
/// not looked through for that: a list may come line by line.
fn note_case(name: &Token, values: &[String], line: &mut Line<'_>) -> bool {
    let Some(known) = line.state.acls.get_mut(&name.text.to_ascii_lowercase()) else {
        return false;
    };
    let before = known.ignores_case;
    known.ignores_case |= values.iter().any(|value| value == "-i");
    before
}

/// Adds one line's values. Case sensitivity is reset on each line; the leading name must stay the
/// same.
fn append(
    def: &mut AclDef,
    mut values: Vec<String>,
    name: &Token,
    resets_case: bool,
) -> Result<(), Problem> {
    if def.values.is_empty() {
        def.values = values;
        return Ok(());
    }
    if has_leading_name(def.kind) && !values.is_empty() {
        let lead = values.remove(0);
        let is_same = |first: &&String| match def.kind {
            AclKind::Note => **first == lead,
            _ => first.eq_ignore_ascii_case(&lead),
        };
        if let Some(first) = def.values.first().filter(|first| !is_same(first)) {
            return Err(name
                .error(format!("`{}` already looks at `{first}`, not `{lead}`", def.name))
                .with_help("use one ACL for each, and group them with `any-of`"));
        }
    }
    if resets_case {
        def.values.push("+i".to_owned());
    }
    def.values.append(&mut values);
    Ok(())
}

/// Notes why rules that use this ACL cannot be evaluated, if so: at all, before there is an answer,
/// or where nothing can be waited for.
fn remember_usability(kind: AclKind, index: usize, out: &[AclDef], line: &mut Line<'_>) {
    let Some(def) = out.get(index) else { return };
    let is_group = matches!(kind, AclKind::AnyOf | AclKind::AllOf);
    // Not even looked at otherwise: a list may come line by line.
    let groups = if is_group { def.values.as_slice() } else { &[] };
    let names = groups.iter().flat_map(|value| value.split(' '));
    let members: Vec<_> =
        names.filter_map(|name| line.state.acl(name.trim_start_matches('!'))).collect();
    let own = format!("`{}` is of type `{}`", def.name, kind.name());
    let unusable = kind.unsupported().map(|why| format!("{own}, and {why}"));
    let unusable = unusable.or_else(|| members.iter().find_map(|member| member.unusable.clone()));
    let needs = needs_of(&own, def, &members);
    let only = only_of(&own, kind, &members);
    let requests = kind.is_about_requests().then(|| own.clone());
    let requests = requests.or_else(|| members.iter().find_map(|member| member.requests.clone()));
    let answers = kind.is_about_answers().then_some((own, kind));
    let answers = answers.or_else(|| members.iter().find_map(|member| member.answers.clone()));
    if let Some(known) = line.state.acls.get_mut(&def.name.to_ascii_lowercase()) {
        known.requests = requests;
        known.unusable = unusable;
        known.answers = answers;
        known.only = only;
        known.needs = needs;
    }
}

/// The needs of an ACL and its members, each need once, with the first ACL that has it in words.
fn needs_of(own: &str, def: &AclDef, members: &[&KnownAcl]) -> Vec<(String, Need)> {
    let mut needs: Vec<_> = def.need().map(|need| (own.to_owned(), need)).into_iter().collect();
    for (what, need) in members.iter().flat_map(|member| &member.needs) {
        if needs.iter().all(|(_, known)| known != need) {
            needs.push((what.clone(), *need));
        }
    }
    needs
}

/// The lists that alone can decide about an ACL or its members, each choice once, with the first
/// such ACL in words.
fn only_of(own: &str, kind: AclKind, members: &[&KnownAcl]) -> Vec<(String, &'static [List])> {
    let mut only = match kind.only_lists() {
        [] => Vec::new(),
        lists => vec![(own.to_owned(), lists)],
    };
    for (what, lists) in members.iter().flat_map(|member| &member.only) {
        if only.iter().all(|(_, known)| known != lists) {
            only.push((what.clone(), *lists));
        }
    }
    only
}

#[cfg(test)]
mod tests {
    use crate::types::AclKind;
    use crate::{Config, parse_str};

    fn parse(text: &str) -> (Config, String, bool) {
        let (config, diagnostics) = parse_str("t", &format!("http_port 1\n{text}\n"));
        (config, diagnostics.render(false), diagnostics.has_errors())
    }

    fn values(config: &Config, name: &str) -> Vec<String> {
        config
            .acl
            .iter()
            .find(|acl| acl.name == name)
            .map(|acl| acl.values.clone())
            .unwrap_or_default()
    }

    #[test]
    fn lines_with_the_same_name_and_type_add_up() {
        let (config, text, errors) = parse("acl a src 10.0.0.1\nacl A src 10.0.0.2 # note\n");
        assert!(!errors, "{text}");
        assert_eq!(values(&config, "a"), ["10.0.0.1", "10.0.0.2"]);
        let (_, text, errors) = parse("acl a src 10.0.0.1\nacl a port 80\n");
        assert!(
            errors && text.contains("already an ACL of type `src`") && text.contains("t:2:5"),
            "{text}"
        );
    }

    #[test]
    fn predefined_acls_can_be_extended_and_the_old_manager_is_ignored() {
        let (config, text, errors) =
            parse("acl manager proto cache_object\nacl CONNECT method CONNECT");
        assert!(!errors, "{text}");
        assert_eq!(values(&config, "CONNECT"), ["CONNECT", "CONNECT"]);
        assert!(
            config.acl.iter().any(|acl| acl.name == "manager" && acl.kind == AclKind::UrlRegex)
        );
    }

    #[test]
    fn case_flags_stay_with_the_expressions_they_precede() {
        let (config, text, errors) =
            parse("acl u url_regex -i ads\\ and +i Banner\nacl u url_regex Case");
        assert!(!errors, "{text}");
        assert_eq!(values(&config, "u"), ["-i", "ads\\ and", "+i", "Banner", "+i", "Case"]);
        assert!(parse("acl p port -i 80").2);
        assert!(parse("acl p srcdomain -n .a.test").2, "without the look-up it means nothing");
    }

    #[test]
    fn header_acls_keep_the_field_first() {
        let (config, text, errors) = parse("acl h req_header X-A -i one\nacl h req_header x-a two");
        assert!(!errors, "{text}");
        assert_eq!(values(&config, "h"), ["X-A", "-i", "one", "+i", "two"]);
        assert!(parse("acl h req_header X-A one\nacl h req_header X-B two").2);
    }

    #[test]
    fn values_come_from_files() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("list");
        std::fs::write(&path, "# head\n.example.com # why\n\n  .example.net\r\n").expect("write");
        let (config, text, errors) =
            parse(&format!("acl d dstdomain \"{}\" .last", path.display()));
        assert!(!errors, "{text}");
        assert_eq!(values(&config, "d"), [".example.com", ".example.net", ".last"]);
        let (_, text, errors) = parse("acl d dstdomain \"/nonexistent/list\"");
        assert!(errors && text.contains("/nonexistent/list"), "{text}");
        std::fs::write(&path, "80\nhttp\n").expect("write");
        let (_, text, _) = parse(&format!("acl p port \"{}\"", path.display()));
        assert!(text.contains("list:2:"), "{text}");
    }

    #[test]
    fn all_of_keeps_lines_apart() {
        let (config, text, errors) =
            parse("acl both all-of localhost !CONNECT\nacl both all-of all");
        assert!(!errors, "{text}");
        assert_eq!(values(&config, "both"), ["localhost !CONNECT", "all"]);
    }

    #[test]
    fn times_keep_lines_apart() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("list");
        std::fs::write(&path, "S 08:00-09:00\nA\n").expect("write");
        let text =
            format!("acl w time A\nacl w time 10:00-11:00\nacl w time \"{}\"", path.display());
        let (config, text, errors) = parse(&text);
        assert!(!errors, "{text}");
        assert_eq!(values(&config, "w"), ["A", "10:00-11:00", "S 08:00-09:00", "A"]);
    }

    #[test]
    fn each_line_names_one_component() {
        let (config, text, errors) = parse("acl h has request\nacl h has response");
        assert!(!errors, "{text}");
        assert_eq!(values(&config, "h"), ["request", "response"]);
        for bad in ["acl h has", "acl h has request response", "acl h has answer"] {
            assert!(parse(bad).2, "{bad}");
        }
    }

    #[test]
    fn an_unknown_type_is_an_error_with_a_suggestion() {
        let (_, text, errors) = parse("acl a dstdomian .example.com");
        assert!(errors && text.contains("did you mean `dstdomain`?"), "{text}");
    }
}
