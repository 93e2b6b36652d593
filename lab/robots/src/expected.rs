//! The required head of the answer, for this object, this kind of request and this moment.

use humboldt_lab_record::{Fault, FaultKind};
use humboldt_lab_wire::{ResponseHead, http_date, parse_http_date};
use humboldt_lab_workload::{Ask, AskKind, BodyKey, Facts, Version, Workload};

/// HTTP counts time in whole seconds: `Expires`, `Age` and the cache's clock may each be off by
/// one.
const STALE_TOLERANCE_S: u64 = 3;

/// A version may be this new, as origin and robots need not share a clock.
const FUTURE_TOLERANCE_S: u64 = 2;

/// Length of a wrong answer's text that is kept as evidence, in bytes.
const EVIDENCE_TEXT_BYTES: usize = 80;

/// The request, as far as the answer depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    /// An object of the workload.
    Object(AskedObject),
    /// A tunnel: CONNECT.
    Tunnel {
        /// Whether it must be allowed.
        allowed: bool,
    },
    /// A URL of the world outside, of whose answer nothing is known. Only the banger asks for them.
    Foreign {
        /// The field by which it tells that a store gave it.
        hit_mark: Option<HitMark>,
    },
}

/// A field by which answers tell that a store gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitMark {
    /// Its name, in any case.
    pub field: &'static str,
    /// The beginning of its value.
    pub begin: &'static str,
}

impl HitMark {
    /// Whether this head has it.
    pub(crate) fn is_in(self, head: &ResponseHead<'_>) -> bool {
        head.header(self.field).is_some_and(|value| value.starts_with(self.begin.as_bytes()))
    }
}

/// An object of the workload, and when and how it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedObject {
    pub(crate) ask: Ask,
    pub(crate) facts: Facts,
    /// Whether the request went through a tunnel, where no store may answer.
    pub(crate) tunnelled: bool,
    /// Unix time when it was sent, in µs: an answer that was right then or later is right.
    pub(crate) sent_unix_us: u64,
    /// Reload hits are a declared habit of this cache.
    pub(crate) excuse_reload_hits: bool,
}

/// The announcements of a right head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The origin saw this very request.
    pub(crate) from_origin: bool,
    /// A fault, but one that the plan excuses.
    pub(crate) excused: bool,
}

/// A body that is known byte by byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownBody {
    pub(crate) key: BodyKey,
    /// Its first byte in the object.
    pub(crate) first_byte: u64,
    pub(crate) length_bytes: u64,
}

/// The fields of a head that matter here.
#[derive(Default)]
struct Marks<'h> {
    request_id: Option<&'h [u8]>,
    etag: Option<&'h [u8]>,
    last_modified: Option<&'h [u8]>,
    expires: Option<&'h [u8]>,
    content_range: Option<&'h [u8]>,
    squid_error: Option<&'h [u8]>,
}

impl<'h> Marks<'h> {
    fn of(head: &ResponseHead<'h>) -> Self {
        let mut marks = Self::default();
        for (name, value) in head.headers() {
            // Lengths first: this runs for every line of every answer.
            let place = match name.len() {
                4 if name.eq_ignore_ascii_case(b"etag") => &mut marks.etag,
                7 if name.eq_ignore_ascii_case(b"expires") => &mut marks.expires,
                11 if name.eq_ignore_ascii_case(b"lab-request") => &mut marks.request_id,
                13 if name.eq_ignore_ascii_case(b"last-modified") => &mut marks.last_modified,
                13 if name.eq_ignore_ascii_case(b"content-range") => &mut marks.content_range,
                13 if name.eq_ignore_ascii_case(b"x-squid-error") => &mut marks.squid_error,
                _ => continue,
            };
            *place = Some(value);
        }
        marks
    }
}

/// The method that a request of this kind has; the length of its answer depends on it.
pub(crate) fn method(kind: &AskKind) -> &'static [u8] {
    match kind {
        AskKind::Post { .. } => b"POST",
        AskKind::Head => b"HEAD",
        _ => b"GET",
    }
}

impl AskedObject {
    /// Checks a head; `rest` is the text after it, for evidence. Returns the body that must follow,
    /// if there is one.
    pub(crate) fn check_head(
        &self,
        head: &ResponseHead<'_>,
        rest: &[u8],
        scratch: &mut Vec<u8>,
        now_unix_us: u64,
    ) -> Result<(Verdict, Option<KnownBody>), Fault> {
        let marks = Marks::of(head);
        self.check_status(head.status(), &marks, rest)?;
        let id = match marks.request_id {
            Some(id) => Some(
                parse_id(id).ok_or_else(|| wrong_head("Lab-Request of 16 hex digits", text(id)))?,
            ),
            // A cache makes a 304 itself, with the few fields that it must have (Squid does), or
            // passes only those on (Traffic Server does).
            None if head.status() == 304 => None,
            None => return Err(wrong_head("Lab-Request", "no such field")),
        };
        let version = self.check_version(head.status(), &marks, scratch, now_unix_us)?;
        let length_bytes = self.check_length(head, &marks)?;
        let verdict = self.check_origin(id)?;
        let first_byte = match self.ask.kind {
            AskKind::Range { first, .. } if head.status() == 206 => first,
            _ => 0,
        };
        let has_body = head.status() != 304 && self.ask.kind != AskKind::Head;
        let key = self.facts.body(version.number);
        Ok((verdict, has_body.then_some(KnownBody { key, first_byte, length_bytes })))
    }

    fn check_status(&self, status: u16, marks: &Marks<'_>, rest: &[u8]) -> Result<(), Fault> {
        let (right, expected) = match self.ask.kind {
            AskKind::Ims304 => (status == 304 || status == 200, "304, or 200"),
            AskKind::Range { .. } => (status == 206 || status == 200, "206, or 200"),
            _ => (status == 200, "200"),
        };
        if right { Ok(()) } else { Err(wrong_status(expected, status, marks, rest)) }
    }

    /// The entity tag names key and version; the dates must be that version's, and its time must
    /// not be over.
    fn check_version(
        &self,
        status: u16,
        marks: &Marks<'_>,
        scratch: &mut Vec<u8>,
        now_unix_us: u64,
    ) -> Result<Version, Fault> {
        let now_s = now_unix_us / 1_000_000;
        let number = self.version_number(status, marks, scratch, now_unix_us)?;
        let version = self.facts.version(number);
        if version.modified_s > now_s + FUTURE_TOLERANCE_S {
            let newest = self.facts.version_at(now_unix_us).number;
            return Err(wrong_head(
                &format!("version {newest} or older"),
                format!("version {number}"),
            ));
        }
        // A 304 may leave out fields that the client knows.
        let must_have = |field: Option<&[u8]>| field.is_some() || status != 304;
        if must_have(marks.last_modified) {
            check_date("Last-Modified", version.modified_s, marks.last_modified, scratch)?;
        }
        let expires = self.facts.cachable && !matches!(self.ask.kind, AskKind::Post { .. });
        if expires && must_have(marks.expires) {
            check_date("Expires", version.expires_s, marks.expires, scratch)?;
        }
        let sent_s = self.sent_unix_us / 1_000_000;
        if version.expires_s + STALE_TOLERANCE_S < sent_s {
            let newest = self.facts.version_at(self.sent_unix_us).number;
            let late_s = sent_s - version.expires_s;
            return Err(fault(
                FaultKind::Stale,
                None,
                format!("version {newest}"),
                format!("version {number}, which ended {late_s} s before the request"),
            ));
        }
        Ok(version)
    }

    /// The version that the entity tag names.
    fn version_number(
        &self,
        status: u16,
        marks: &Marks<'_>,
        scratch: &mut Vec<u8>,
        now_unix_us: u64,
    ) -> Result<u64, Fault> {
        let Some(etag) = marks.etag else {
            // Squid leaves the tag out of the 304s that it makes itself. RFC 9110 15.4.5 forbids
            // it, but no client gets a wrong byte: then the date identifies the version.
            let dated = marks.last_modified.filter(|_| status == 304).and_then(parse_http_date);
            let dated = dated.ok_or_else(|| wrong_head("ETag", "no such field"))?;
            return Ok(self.facts.version_at(dated.saturating_mul(1_000_000)).number);
        };
        match Workload::parse_etag(etag) {
            Some((key, number)) if key == self.facts.key => Ok(number),
            _ => {
                scratch.clear();
                Workload::etag(&self.facts, self.facts.version_at(now_unix_us).number, scratch);
                Err(wrong_head(&format!("ETag {}", text(scratch)), text(etag)))
            }
        }
    }

    /// The required length of the answer's body; the head must announce the same.
    fn check_length(&self, head: &ResponseHead<'_>, marks: &Marks<'_>) -> Result<u64, Fault> {
        let size_bytes = self.facts.size_bytes;
        let length_bytes = match (self.ask.kind, head.status()) {
            (AskKind::Range { first, last }, 206) => {
                let expected = format!("bytes {first}-{last}/{size_bytes}");
                let got = marks.content_range.unwrap_or(b"no such field");
                if got != expected.as_bytes() {
                    return Err(wrong_head(&format!("Content-Range {expected}"), text(got)));
                }
                last - first + 1
            }
            _ => size_bytes,
        };
        // The length announced by a 304 is of no use, and some caches send 0.
        match head.content_length() {
            Some(got) if got != length_bytes && head.status() != 304 => {
                Err(wrong_head(&format!("Content-Length {length_bytes}"), got.to_string()))
            }
            _ => Ok(length_bytes),
        }
    }

    /// The source of the answer, and whether a store was allowed to give it.
    fn check_origin(&self, id: Option<u64>) -> Result<Verdict, Fault> {
        let Some(id) = id else {
            // Nothing shows that it came from a store, so for an object that may not be stored it
            // is taken for the origin's.
            return Ok(Verdict { from_origin: !self.facts.cachable, excused: false });
        };
        if id == self.ask.id {
            return Ok(Verdict { from_origin: true, excused: false });
        }
        let expected = || format!("the origin's answer to request {:016x}", self.ask.id);
        let got = || format!("an answer to request {id:016x}");
        if self.tunnelled {
            return Err(fault(FaultKind::WrongHead, None, expected(), got()));
        }
        if !self.facts.cachable || matches!(self.ask.kind, AskKind::Post { .. }) {
            return Err(fault(FaultKind::UncachableHit, None, expected(), got()));
        }
        if self.ask.kind == AskKind::Reload {
            if !self.excuse_reload_hits {
                return Err(fault(FaultKind::ReloadHit, None, expected(), got()));
            }
            return Ok(Verdict { from_origin: false, excused: true });
        }
        Ok(Verdict { from_origin: false, excused: false })
    }
}

/// Checks the answer to a CONNECT.
pub(crate) fn check_tunnel(
    allowed: bool,
    head: &ResponseHead<'_>,
    rest: &[u8],
) -> Result<(), Fault> {
    let status = head.status();
    let (right, expected) = match allowed {
        true => ((200..300).contains(&status), "200 for an allowed tunnel"),
        false => (status == 403, "403 for a denied tunnel"),
    };
    if right { Ok(()) } else { Err(wrong_status(expected, status, &Marks::of(head), rest)) }
}

fn check_date(
    name: &str,
    unix_s: u64,
    got: Option<&[u8]>,
    scratch: &mut Vec<u8>,
) -> Result<(), Fault> {
    scratch.clear();
    http_date(unix_s, scratch);
    if got == Some(scratch.as_slice()) {
        return Ok(());
    }
    let expected = format!("{name} {}", text(scratch));
    Err(match got {
        None => wrong_head(&expected, "no such field"),
        Some(got) if parse_http_date(got).is_none() => {
            wrong_head(&expected, format!("no date: {}", text(got)))
        }
        Some(got) => wrong_head(&expected, text(got)),
    })
}

fn wrong_status(expected: &str, status: u16, marks: &Marks<'_>, rest: &[u8]) -> Fault {
    let mut got = status.to_string();
    if let Some(reason) = marks.squid_error {
        got += &format!(" {}", text(reason));
    } else if !rest.is_empty() {
        got += &format!(" {}", text(rest));
    }
    fault(FaultKind::WrongStatus, None, expected.to_string(), got)
}

fn wrong_head(expected: &str, got: impl Into<String>) -> Fault {
    fault(FaultKind::WrongHead, None, expected.to_string(), got.into())
}

pub(crate) fn fault(kind: FaultKind, offset: Option<u64>, expected: String, got: String) -> Fault {
    Fault { kind, offset, expected, got }
}

fn parse_id(digits: &[u8]) -> Option<u64> {
    if digits.len() != 16 {
        return None;
    }
    digits.iter().try_fold(0, |id, digit| {
        let value = (*digit as char).to_digit(16)?;
        Some(id << 4 | u64::from(value))
    })
}

/// The first words of foreign bytes, fit for one line of a report.
pub(crate) fn text(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(EVIDENCE_TEXT_BYTES)];
    let printable = |byte: &u8| if (b' '..=b'~').contains(byte) { *byte as char } else { ' ' };
    let line: String = start.iter().map(printable).collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
