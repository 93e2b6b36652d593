//! Cache-Control directives of a request or a response (RFC 9111 section 5.2, RFC 5861, RFC 8246).

use humboldt_http::{FieldName, Fields, split_list};

/// The largest number of seconds this crate works with: 2^31 (RFC 9111 section 1.2.2). Larger
/// values count as this.
pub const MAX_SECONDS: u32 = 1 << 31;

/// Longest directive name that is known (`stale-while-revalidate`); longer ones are extensions,
/// which are ignored.
const MAX_NAME_BYTES: usize = 22;

/// Bound on the field names kept from `private="…"` and `no-cache="…"`; a longer list counts as the
/// unqualified form.
const MAX_WITHHELD_BYTES: usize = 1024;

/// Fields without which a stored answer would be misread: a list naming one of them counts as the
/// unqualified form.
const ESSENTIAL: [&[u8]; 5] =
    [b"cache-control", b"content-encoding", b"content-length", b"content-type", b"vary"];

/// One known directive; the discriminant is its bit in [`CacheControl`].
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Directive {
    NoStore,
    NoCache,
    Private,
    Public,
    MustRevalidate,
    ProxyRevalidate,
    MustUnderstand,
    NoTransform,
    Immutable,
    OnlyIfCached,
    MaxAge,
    SMaxage,
    MaxStale,
    MinFresh,
    StaleWhileRevalidate,
    StaleIfError,
    /// Not on the wire: the directives came from a targeted field, so that `Expires` is ignored
    /// (RFC 9213).
    Targeted,
    /// Not on the wire: the request has If-Modified-Since, which `refresh-ims` looks at.
    Conditional,
}

impl Directive {
    /// The directive called `name`, without regard to case; `None` for an extension.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        let mut buffer = [0_u8; MAX_NAME_BYTES];
        let lower = buffer.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        Some(match &*lower {
            b"no-store" => Self::NoStore,
            b"no-cache" => Self::NoCache,
            b"private" => Self::Private,
            b"public" => Self::Public,
            b"must-revalidate" => Self::MustRevalidate,
            b"proxy-revalidate" => Self::ProxyRevalidate,
            b"must-understand" => Self::MustUnderstand,
            b"no-transform" => Self::NoTransform,
            b"immutable" => Self::Immutable,
            b"only-if-cached" => Self::OnlyIfCached,
            b"max-age" => Self::MaxAge,
            b"s-maxage" => Self::SMaxage,
            b"max-stale" => Self::MaxStale,
            b"min-fresh" => Self::MinFresh,
            b"stale-while-revalidate" => Self::StaleWhileRevalidate,
            b"stale-if-error" => Self::StaleIfError,
            _ => return None,
        })
    }
}

/// The directives of one message. Parsing a message without the field, and testing for that, cost
/// next to nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheControl {
    present: u32,
    max_age_s: u32,
    s_maxage_s: u32,
    max_stale_s: u32,
    min_fresh_s: u32,
    stale_while_revalidate_s: u32,
    stale_if_error_s: u32,
    /// Lower-case names from `private="…"` and `no-cache="…"`, each followed by a comma.
    withheld: Vec<u8>,
}

/// The directives' values.
impl CacheControl {
    /// Nothing here affects a judgement: the case of almost every request.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.present == 0
    }

    /// `no-store` (RFC 9111 sections 5.2.1.5 and 5.2.2.5).
    pub fn no_store(&self) -> bool {
        self.has(Directive::NoStore)
    }

    /// `no-cache` without a field list (sections 5.2.1.4 and 5.2.2.4).
    pub fn no_cache(&self) -> bool {
        self.has(Directive::NoCache)
    }

    /// `private` without a field list (section 5.2.2.7).
    pub fn private(&self) -> bool {
        self.has(Directive::Private)
    }

    /// `public` (section 5.2.2.9).
    pub fn public(&self) -> bool {
        self.has(Directive::Public)
    }

    /// `must-revalidate` (section 5.2.2.2).
    pub fn must_revalidate(&self) -> bool {
        self.has(Directive::MustRevalidate)
    }

    /// `proxy-revalidate` (section 5.2.2.8).
    pub fn proxy_revalidate(&self) -> bool {
        self.has(Directive::ProxyRevalidate)
    }

    /// `must-understand` (section 5.2.2.3).
    pub fn must_understand(&self) -> bool {
        self.has(Directive::MustUnderstand)
    }

    /// `immutable` (RFC 8246).
    pub fn immutable(&self) -> bool {
        self.has(Directive::Immutable)
    }

    /// `only-if-cached` (RFC 9111 section 5.2.1.7).
    pub fn only_if_cached(&self) -> bool {
        self.has(Directive::OnlyIfCached)
    }

    /// `max-age`, seconds; 0 when its argument is missing or malformed (sections 5.2.1.1, 5.2.2.1
    /// and 4.2.1).
    pub fn max_age_s(&self) -> Option<u32> {
        self.value(Directive::MaxAge, self.max_age_s)
    }

    /// `s-maxage`, seconds; 0 when its argument is missing or malformed (section 5.2.2.10).
    pub fn s_maxage_s(&self) -> Option<u32> {
        self.value(Directive::SMaxage, self.s_maxage_s)
    }

    /// `max-stale`, seconds; `u32::MAX` without an argument: any staleness (section 5.2.1.2).
    pub fn max_stale_s(&self) -> Option<u32> {
        self.value(Directive::MaxStale, self.max_stale_s)
    }

    /// `min-fresh`, seconds (section 5.2.1.3).
    pub fn min_fresh_s(&self) -> Option<u32> {
        self.value(Directive::MinFresh, self.min_fresh_s)
    }

    /// `stale-while-revalidate`, seconds (RFC 5861 section 3).
    pub fn stale_while_revalidate_s(&self) -> Option<u32> {
        self.value(Directive::StaleWhileRevalidate, self.stale_while_revalidate_s)
    }

    /// `stale-if-error`, seconds (RFC 5861 section 4), in a response or a request.
    pub fn stale_if_error_s(&self) -> Option<u32> {
        self.value(Directive::StaleIfError, self.stale_if_error_s)
    }

    /// The directives came from a targeted field such as CDN-Cache-Control: `Expires` does not
    /// count (RFC 9213 2.2).
    pub fn is_targeted(&self) -> bool {
        self.has(Directive::Targeted)
    }

    /// The request has If-Modified-Since.
    pub(crate) fn is_conditional(&self) -> bool {
        self.has(Directive::Conditional)
    }

    /// Lower-case names of the fields that `private="…"` and `no-cache="…"` keep out of the stored
    /// head (RFC 9111 sections 5.2.2.4 and 5.2.2.7). The answer being forwarded keeps them.
    pub fn withheld_fields(&self) -> impl Iterator<Item = &[u8]> {
        self.withheld.split(|&byte| byte == b',').filter(|name| !name.is_empty())
    }

    fn has(&self, directive: Directive) -> bool {
        self.present & (1 << directive as u32) != 0
    }

    fn value(&self, directive: Directive, value_s: u32) -> Option<u32> {
        self.has(directive).then_some(value_s)
    }
}

/// Reading them.
impl CacheControl {
    /// The directives of a request, with `Pragma: no-cache` standing in for a missing Cache-Control
    /// (RFC 9111 section 5.4).
    pub fn of_request(fields: &Fields) -> Self {
        let mut parsed = match fields.has(FieldName::CacheControl) {
            true => Self::parse(fields.get_all(FieldName::CacheControl)),
            false => Self::default(),
        };
        if fields.has(FieldName::Pragma)
            && !fields.has(FieldName::CacheControl)
            && fields.list(FieldName::Pragma).any(|item| item.eq_ignore_ascii_case(b"no-cache"))
        {
            parsed.mark(Directive::NoCache);
        }
        if fields.has(FieldName::IfModifiedSince) {
            parsed.mark(Directive::Conditional);
        }
        parsed
    }

    /// The directives of a response for a cache whose target list (RFC 9213 section 2.2, most
    /// specific name first) is `target_list`: the first of those fields that is present,
    /// well-formed and not empty replaces Cache-Control.
    pub fn of_response(fields: &Fields, target_list: &[Box<[u8]>]) -> Self {
        target_list
            .iter()
            .find_map(|name| crate::targeted::parse(fields, name))
            .unwrap_or_else(|| Self::parse(fields.get_all(FieldName::CacheControl)))
    }

    /// Parses field lines of Cache-Control. Names have no case. An argument may be a token or a
    /// quoted string. The first of repeated directives counts. Malformed ones are read in the way
    /// that caches less.
    pub fn parse<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut parsed = Self::default();
        for value in values {
            for member in split_list(value) {
                parsed.add(member);
            }
        }
        parsed
    }

    fn add(&mut self, member: &[u8]) {
        let (name, argument) = match member.iter().position(|&byte| byte == b'=') {
            Some(at) => (&member[..at], Some(&member[at + 1..])),
            None => (member, None),
        };
        // "max-age =1" is malformed; its name is still recognised so that it caches less, not more.
        let Some(directive) = Directive::named(name.trim_ascii_end()) else { return };
        let spaced = name.last().is_some_and(u8::is_ascii_whitespace);
        let argument = argument.map(|argument| if spaced { &b"?"[..] } else { argument });
        match directive {
            Directive::NoCache | Directive::Private => {
                self.add_listing(directive, argument.unwrap_or_default())
            }
            _ => self
                .set_seconds(directive, argument.map(|argument| delta_seconds(unquoted(argument)))),
        }
    }

    /// Adds `directive` with its argument: absent (`None`), malformed (`Some(None)`) or a number of
    /// seconds.
    pub(crate) fn set_seconds(&mut self, directive: Directive, argument: Option<Option<u32>>) {
        if self.has(directive) {
            return; // RFC 9111 section 4.2.1: the first occurrence counts
        }
        let seconds = argument.flatten();
        match directive {
            // Invalid freshness information makes the answer stale (section 4.2.1).
            Directive::MaxAge => self.max_age_s = seconds.unwrap_or(0),
            Directive::SMaxage => self.s_maxage_s = seconds.unwrap_or(0),
            Directive::MaxStale => match (argument, seconds) {
                (None, _) => self.max_stale_s = u32::MAX,
                (_, Some(seconds)) => self.max_stale_s = seconds,
                (Some(_), None) => return,
            },
            Directive::MinFresh => match seconds {
                Some(seconds) => self.min_fresh_s = seconds,
                None => return,
            },
            Directive::StaleWhileRevalidate => match seconds {
                Some(seconds) => self.stale_while_revalidate_s = seconds,
                None => return,
            },
            Directive::StaleIfError => match seconds {
                Some(seconds) => self.stale_if_error_s = seconds,
                None => return,
            },
            _ => {}
        }
        self.mark(directive);
    }

    /// Adds `no-cache` or `private`. Their argument is a (quoted) list of field names; without one,
    /// or with a malformed list, they apply to everything: the author of `private="a, b" c` may
    /// have meant more than `a`.
    pub(crate) fn add_listing(&mut self, directive: Directive, argument: &[u8]) {
        let is_open =
            argument.starts_with(b"\"") && (argument.len() < 2 || !argument.ends_with(b"\""));
        let names = if is_open { Vec::new() } else { unquoted(argument).to_ascii_lowercase() };
        let before = self.withheld.len();
        let mut usable = false;
        for name in names
            .split(|&byte| byte == b',')
            .map(<[u8]>::trim_ascii)
            .filter(|name| !name.is_empty())
        {
            usable = true;
            if !is_token(name)
                || ESSENTIAL.contains(&name)
                || self.withheld.len() + name.len() >= MAX_WITHHELD_BYTES
            {
                usable = false;
                break;
            }
            self.withheld.extend_from_slice(name);
            self.withheld.push(b',');
        }
        if !usable {
            self.withheld.truncate(before);
            self.mark(directive);
        }
    }

    pub(crate) fn mark(&mut self, directive: Directive) {
        self.present |= 1 << directive as u32;
    }
}

/// Whether a field may be called this (RFC 9110 5.6.2).
fn is_token(name: &[u8]) -> bool {
    name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

/// The inside of a quoted string, or the argument itself. Escapes are left alone: no number or
/// field name has any.
fn unquoted(argument: &[u8]) -> &[u8] {
    match argument.strip_prefix(b"\"") {
        Some(inside) => inside.strip_suffix(b"\"").unwrap_or(inside),
        None => argument,
    }
}

/// Delta-seconds (RFC 9111 section 1.2.2): digits only, capped at [`MAX_SECONDS`].
pub(crate) fn delta_seconds(text: &[u8]) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u32, |total, byte| {
        let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'))?;
        Some(total.saturating_mul(10).saturating_add(digit).min(MAX_SECONDS))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cc(text: &str) -> CacheControl {
        CacheControl::parse(text.split('\n').map(str::as_bytes))
    }

    #[test]
    fn numbers() {
        let rows: [(&str, Option<u32>); 22] = [
            ("max-age=60", Some(60)),
            ("MAX-AGE=60", Some(60)),
            ("max-age=\"60\"", Some(60)),
            ("max-age=\"60", Some(60)),
            ("max-age=0", Some(0)),
            ("max-age=0060", Some(60)),
            ("max-age", Some(0)),
            ("max-age=", Some(0)),
            ("max-age=-1", Some(0)),
            ("max-age=+1", Some(0)),
            ("max-age=1.5", Some(0)),
            ("max-age=60s", Some(0)),
            ("max-age='60'", Some(0)),
            ("max-age= 60", Some(0)),
            ("max-age =60", Some(0)),
            ("max-age=2147483648", Some(MAX_SECONDS)),
            ("max-age=99999999999999999999999", Some(MAX_SECONDS)),
            ("max-age=60, max-age=3600", Some(60)),
            ("max-age=3600\nmax-age=60", Some(3600)),
            ("max-age=abc, max-age=60", Some(0)),
            ("x-max-age=60", None),
            ("ext=\"a, max-age=60, b\", public", None),
        ];
        for (text, want) in rows {
            assert_eq!(cc(text).max_age_s(), want, "{text}");
        }
    }

    #[test]
    fn malformed_extensions_of_freshness_do_not_extend_it() {
        assert_eq!(cc("max-stale").max_stale_s(), Some(u32::MAX));
        assert_eq!(cc("max-stale=5").max_stale_s(), Some(5));
        assert_eq!(cc("max-stale=x").max_stale_s(), None);
        assert_eq!(cc("stale-while-revalidate").stale_while_revalidate_s(), None);
        assert_eq!(cc("stale-while-revalidate=x").stale_while_revalidate_s(), None);
        assert_eq!(cc("stale-if-error=9").stale_if_error_s(), Some(9));
        assert_eq!(cc("min-fresh=7").min_fresh_s(), Some(7));
        assert_eq!(cc("s-maxage=x").s_maxage_s(), Some(0));
    }

    #[test]
    fn flags() {
        let all = cc(
            "no-store,no-cache, private ,public,must-revalidate,,proxy-revalidate, must-understand;\n\
                      must-understand,no-transform,immutable,only-if-cached",
        );
        assert!(
            all.no_store()
                && all.no_cache()
                && all.private()
                && all.public()
                && all.must_revalidate()
        );
        assert!(all.proxy_revalidate() && all.must_understand());
        assert!(all.immutable() && all.only_if_cached() && !all.is_targeted());
        assert!(cc("").is_empty() && cc(", ,").is_empty() && cc("nostore, no_store").is_empty());
        assert!(cc("no-store=1").no_store(), "an unexpected argument is ignored");
    }

    #[test]
    fn field_lists() {
        let listed = cc("private=\"Set-Cookie, X-User\", no-cache=\"Foo\"");
        assert!(!listed.private() && !listed.no_cache());
        let names: Vec<&[u8]> = listed.withheld_fields().collect();
        assert_eq!(names, [&b"set-cookie"[..], b"x-user", b"foo"]);
        assert!(cc("private=Set-Cookie").withheld_fields().eq([b"set-cookie"]));
        let malformed = [
            "private=\"x",
            "private=x\"",
            "private=\"x, y\" z",
            "private=\"x y\"",
            "private=\"x\"y\"",
            "private=\"x\\\"\"",
        ];
        let nothing =
            ["private=\"\"", "private=\", ,\"", "private=", "private=\"x, Vary\"", "private"];
        for unqualified in nothing.into_iter().chain(malformed) {
            let parsed = cc(unqualified);
            assert!(parsed.private() && parsed.withheld_fields().next().is_none(), "{unqualified}");
        }
        let long = format!("no-cache=\"{}\"", "abcdefgh,".repeat(200));
        assert!(cc(&long).no_cache());
    }
}
