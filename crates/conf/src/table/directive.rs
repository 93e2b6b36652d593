//! A row of the table of directives.

/// Humboldt's treatment of a directive.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is obeyed.
    Works,
    /// It is accepted and changes nothing, for this reason.
    Ignored(&'static str),
    /// It is known and not implemented; the reason names the missing part.
    Unsupported(&'static str),
    /// It no longer exists; the text names the replacement.
    Obsolete(&'static str),
}

/// One directive.
#[derive(Copy, Clone, Debug)]
pub struct Directive {
    /// Its name.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// The section of the reference it belongs to.
    pub section: &'static str,
    /// Humboldt's treatment of it.
    pub status: Status,
    /// Type of its value; empty when the value is not read.
    pub value: &'static str,
    /// Default as it would be written after the name; empty for none.
    pub default: &'static str,
    /// Its syntax; empty for obsolete ones.
    pub syntax: &'static str,
    /// One or a few sentences.
    pub doc: &'static str,
}

/// Declares directives that are known and not obeyed, grouped by status.
macro_rules! known {
    ($section:literal: $($status:ident $why:tt {
        $($name:literal $(| $alias:literal)*, $syntax:literal, $doc:literal;)*
    })*) => {
        &[$($(crate::table::directive::Directive {
            name: $name,
            aliases: &[$($alias),*],
            section: $section,
            status: crate::table::directive::Status::$status $why,
            value: "",
            default: "",
            syntax: $syntax,
            doc: $doc,
        },)*)*]
    };
}
pub(super) use known;
