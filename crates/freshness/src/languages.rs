//! Accept-Language and Content-Language (RFC 9110 sections 12.5.4 and 8.5), as far as they help to
//! find a stored answer.

use humboldt_http::{FieldName, Fields};

/// Most members of an Accept-Language field that are understood; a field with more counts as it is.
const LANGUAGES_MAX: usize = 32;

/// One accepted language, and how much it is wanted: 0 to 1000.
type Wanted<'a> = (u16, &'a [u8]);

/// Appends `:` and the languages, the most wanted first, and in alphabetical order where several
/// are wanted equally: their order in the field has no meaning (section 12.5.4). A field that
/// cannot be parsed is appended unchanged.
pub(crate) fn append_normal<'a>(
    members: impl Iterator<Item = &'a [u8]> + Clone,
    out: &mut Vec<u8>,
) {
    let mut list = [(0, &b""[..]); LANGUAGES_MAX];
    let start = out.len();
    out.push(b':');
    match read(members.clone(), &mut list) {
        Some(wanted) => {
            wanted
                .sort_unstable_by(|one, two| two.0.cmp(&one.0).then_with(|| compare(one.1, two.1)));
            for (quality, language) in wanted {
                out.extend_from_slice(language);
                out.extend_from_slice(b";q=");
                out.extend_from_slice(itoa::Buffer::new().format(*quality).as_bytes());
                out.push(b',');
            }
        }
        None => members.for_each(|member| {
            out.extend_from_slice(member);
            out.push(b',');
        }),
    }
    out.get_mut(start..).unwrap_or_default().make_ascii_lowercase();
}

fn compare(one: &[u8], two: &[u8]) -> std::cmp::Ordering {
    one.iter().map(u8::to_ascii_lowercase).cmp(two.iter().map(u8::to_ascii_lowercase))
}

/// The one language that a request wants more than any other; `None` if there is no such.
pub fn favourite(request: &Fields) -> Option<&[u8]> {
    if !request.has(FieldName::AcceptLanguage) {
        return None;
    }
    let mut list = [(0, &b""[..]); LANGUAGES_MAX];
    let wanted = read(request.list(FieldName::AcceptLanguage), &mut list)?;
    let best = wanted.iter().map(|(quality, _)| *quality).max().filter(|&quality| quality > 0)?;
    let mut favourites = wanted.iter().filter(|(quality, _)| *quality == best);
    match (favourites.next(), favourites.next()) {
        (Some((_, language)), None) if *language != b"*" => Some(language),
        _ => None,
    }
}

/// The languages that a request wants, the most wanted first, and those that are wanted equally in
/// their order. Empty for a field that cannot be parsed.
pub fn preferred(request: &Fields) -> Vec<&[u8]> {
    let mut list = [(0, &b""[..]); LANGUAGES_MAX];
    let wanted = read(request.list(FieldName::AcceptLanguage), &mut list);
    let mut wanted = wanted.map_or(Vec::new(), |wanted| wanted.to_vec());
    wanted.retain(|(quality, _)| *quality > 0);
    wanted.sort_by_key(|(quality, _)| std::cmp::Reverse(*quality));
    wanted.into_iter().map(|(_, language)| language).collect()
}

/// The one language of an answer; `None` if it names none, or several.
pub fn of_answer(answer: &Fields) -> Option<&[u8]> {
    if !answer.has(FieldName::ContentLanguage) {
        return None;
    }
    let mut languages = answer.list(FieldName::ContentLanguage);
    let first = languages.next()?;
    languages.next().is_none().then_some(first)
}

/// Reads all members into `list`; `None` if one is malformed, or there are too many.
fn read<'a, 'l>(
    members: impl Iterator<Item = &'a [u8]>,
    list: &'l mut [Wanted<'a>; LANGUAGES_MAX],
) -> Option<&'l mut [Wanted<'a>]> {
    let mut count = 0;
    for member in members {
        *list.get_mut(count)? = read_one(member)?;
        count += 1;
    }
    list.get_mut(..count)
}

fn read_one(member: &[u8]) -> Option<Wanted<'_>> {
    let mut parts = member.splitn(2, |&byte| byte == b';').map(<[u8]>::trim_ascii);
    let language = parts.next()?;
    let is_tag = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'*');
    if language.is_empty() || !language.iter().all(is_tag) {
        return None;
    }
    let Some(weight) = parts.next() else { return Some((1000, language)) };
    let [b'q' | b'Q', b'=', digits @ ..] = weight else { return None };
    Some((quality(digits)?, language))
}

/// `0`, `1`, or either with up to three digits behind a point (RFC 9110 section 12.4.2), in
/// thousandths.
fn quality(text: &[u8]) -> Option<u16> {
    let (whole, rest) = text.split_first()?;
    let thousandths = match rest {
        [] | [b'.'] => 0,
        [b'.', digits @ ..] if digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit) => {
            let padded = digits.iter().chain(b"00").take(3);
            padded.fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'))
        }
        _ => return None,
    };
    match (whole, thousandths) {
        (b'0', thousandths) => Some(thousandths),
        (b'1', 0) => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{request, response};

    fn normal(value: &str) -> String {
        let mut out = Vec::new();
        let request = request(&format!("Accept-Language: {value}"));
        append_normal(request.fields.list(FieldName::AcceptLanguage), &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn normal_forms() {
        assert_eq!(normal("en, de"), ":de;q=1000,en;q=1000,");
        assert_eq!(normal("DE , en"), normal("en,de"));
        assert_eq!(normal("en;q=0.5, de;q=0.50"), ":de;q=500,en;q=500,");
        assert_eq!(normal("de;q=1.000, fr;Q=0.123"), ":de;q=1000,fr;q=123,");
        assert_eq!(normal("de ; q=0, *"), ":*;q=1000,de;q=0,");
        assert_eq!(normal("de;q=2, en"), ":de;q=2,en,", "as it is");
        assert_eq!(normal("d e,en"), ":d e,en,");
        let many = vec!["aa"; LANGUAGES_MAX + 1].join(",");
        assert_eq!(normal(&many), format!(":{many},"));
    }

    #[test]
    fn favourites() {
        let rows = [
            ("de", Some("de")),
            ("fr;q=0.5, de;q=1.0", Some("de")),
            ("en-GB, en;q=0.9", Some("en-GB")),
            ("en, de", None),
            ("*, de;q=0.5", None),
            ("de;q=0", None),
            ("de;q=x", None),
            ("", None),
        ];
        for (value, want) in rows {
            let request = request(&format!("Accept-Language: {value}"));
            assert_eq!(favourite(&request.fields), want.map(str::as_bytes), "{value}");
        }
        assert_eq!(favourite(&request("").fields), None);
    }

    #[test]
    fn the_most_wanted_comes_first() {
        for (value, want) in [
            ("de", "de"),
            ("fr;q=0.5, de, it, en;q=0", "de it fr"),
            ("*;q=0.1, pt-BR", "pt-BR *"),
            ("de;q=x", ""),
            ("", ""),
        ] {
            let request = request(&format!("Accept-Language: {value}"));
            let found: Vec<_> = preferred(&request.fields);
            assert_eq!(found.join(&b' '), want.as_bytes(), "{value}");
        }
    }

    #[test]
    fn languages_of_answers() {
        let of = |value: &str| of_answer(&response(200, value).fields).map(<[u8]>::to_vec);
        assert_eq!(of("Content-Language: de"), Some(b"de".to_vec()));
        assert_eq!(of("Content-Language: de, en"), None);
        assert_eq!(of(""), None);
    }
}
