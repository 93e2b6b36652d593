//! access.log: one line for each request, in Squid's native format, in those of other programs, or
//! in any that `logformat` describes.

mod bump;
mod compile;
mod json;
mod native;
mod record;
mod render;
mod tags;
pub(crate) mod time_format;

pub use compile::{LogFormat, LogFormatError};
pub use json::JsonFormat;
pub use record::{AccessRecord, Peer};
pub use tags::{Ending, Hierarchy, ResultTag, Tag};

/// The formats that exist without a `logformat` line, but for `squid`, which is written by hand.
const PREDEFINED: [(&str, &str); 4] = [
    ("common", r#"%>a %[ui %[un [%tl] "%rm %ru HTTP/%rv" %>Hs %<st %Ss:%Sh"#),
    (
        "combined",
        r#"%>a %[ui %[un [%tl] "%rm %ru HTTP/%rv" %>Hs %<st "%{Referer}>h" "%{User-Agent}>h" %Ss:%Sh"#,
    ),
    ("referrer", "%ts.%03tu %>a %{Referer}>h %ru"),
    ("useragent", r#"%>a [%tl] "%{User-Agent}>h""#),
];

/// The format of a record.
#[derive(Clone, Debug)]
pub enum AccessFormat {
    /// `squid`: `%ts.%03tu %6tr %>a %Ss/%03>Hs %<st %rm %ru %[un %Sh/%<a %mt`.
    Squid,
    /// An object in JSON.
    Json(JsonFormat),
    /// Anything else.
    Template(LogFormat),
}

impl AccessFormat {
    /// A format that exists without configuration: `squid`, `common`, `combined`, `referrer`,
    /// `useragent`, `json`.
    pub fn predefined(name: &str) -> Option<Self> {
        if name == "squid" {
            return Some(Self::Squid);
        }
        if name == "json" {
            return JsonFormat::built_in().map(Self::Json);
        }
        let (_, template) = PREDEFINED.iter().find(|(known, _)| *known == name)?;
        LogFormat::compile(template).ok().map(Self::Template)
    }

    /// Whether it wants [`AccessRecord::request`] or [`AccessRecord::response`].
    pub fn needs_fields(&self) -> bool {
        match self {
            Self::Squid => false,
            Self::Json(format) => format.needs_fields(),
            Self::Template(format) => format.needs_fields(),
        }
    }

    /// Whether it may want more of a record than [`AccessFormat::Squid`] shows, which is hand-made:
    /// most programs write that format, and much of a record is never asked for.
    pub fn wants_details(&self) -> bool {
        !matches!(self, Self::Squid)
    }

    /// Appends the record as one line, newline included. `strip_query_terms` cuts the URL at its
    /// first `?`.
    pub fn write(&self, out: &mut Vec<u8>, record: &AccessRecord<'_>, strip_query_terms: bool) {
        self.write_within(out, record, strip_query_terms, usize::MAX);
    }

    /// The same for a log that cuts longer lines off: an object in JSON has its long texts cut
    /// instead. Lines of text may be longer.
    pub fn write_within(
        &self,
        out: &mut Vec<u8>,
        record: &AccessRecord<'_>,
        strip_query_terms: bool,
        bytes_max: usize,
    ) {
        match self {
            Self::Squid => native::write(out, record, strip_query_terms),
            Self::Json(format) => format.write(out, record, strip_query_terms, bytes_max),
            Self::Template(format) => render::write(out, format, record, strip_query_terms),
        }
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests;
