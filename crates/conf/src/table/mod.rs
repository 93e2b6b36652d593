//! The table of directives: the single source of truth for names, types, defaults, status and
//! documentation.
//!
//! Each section file holds two lists: the directives that work, each with the field of [`Config`]
//! that it fills, and those that are only known. The parser, [`Config`], `-k parse` and
//! `docs/squid.conf.md` come from them.

mod access;
mod admin;
mod bump;
mod cache;
mod delays;
mod directive;
mod logs;
mod network;
mod obsolete;
mod other;
mod pages;
mod peers;
mod rewriting;
mod timeouts;

use std::net::IpAddr;
use std::time::Duration;

use humboldt_policy::Policy;

use crate::diagnostics::Problem;
use crate::kinds::{self, Kind};
use crate::line::Line;
use crate::types::*;

pub use directive::{Directive, Status};

/// Makes [`Config`], the list of its directives and the dispatcher from the lists of all sections.
macro_rules! emit {
    (=> $([$section:literal { $(
        $(#[doc = $doc:literal])+
        $name:ident $(| $alias:ident)* : $out:ty = $kind:ident ($default:literal), $syntax:literal;
    )* }])*) => {
        /// The typed configuration: one field for each directive that works, named like it.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Config { $($(
            $(#[doc = $doc])+
            ///
            #[doc = concat!("`", $syntax, "`")]
            pub $name: $out,
        )*)* }

        /// The directives that fill a field of [`Config`].
        pub(crate) const WORKING: &[Directive] = &[$($(Directive {
            name: stringify!($name),
            aliases: &[$(stringify!($alias)),*],
            section: $section,
            status: Status::Works,
            value: <kinds::$kind as Kind>::NAME,
            default: $default,
            syntax: $syntax,
            doc: concat!($($doc),+),
        },)*)*];

        /// Reads one line into the field of the directive `name` (its first name, not an alias).
        /// With `replace` the field's value so far is dropped.
        pub(crate) fn apply(
            config: &mut Config,
            name: &str,
            replace: bool,
            line: &mut Line<'_>,
        ) -> Result<(), Problem> {
            match name {
                $($(stringify!($name) => {
                    if replace && !<kinds::$kind as Kind>::EXTENDS_DEFAULT {
                        config.$name = <$out>::default();
                    }
                    kinds::$kind::apply(&mut config.$name, line)
                })*)*
                _ => Ok(()),
            }
        }
    };
}

access::working! { pages_working rewriting_working network_working bump_working peers_working delays_working cache_working logs_working timeouts_working admin_working emit => }

use admin::working as admin_working;
use bump::working as bump_working;
use cache::working as cache_working;
use delays::working as delays_working;
use logs::working as logs_working;
use network::working as network_working;
use pages::working as pages_working;
use peers::working as peers_working;
use rewriting::working as rewriting_working;
use timeouts::working as timeouts_working;

/// Lists of directives that are only known.
const KNOWN: [&[Directive]; 9] = [
    access::KNOWN,
    network::KNOWN,
    bump::KNOWN,
    peers::KNOWN,
    cache::KNOWN,
    logs::KNOWN,
    timeouts::KNOWN,
    other::KNOWN,
    obsolete::KNOWN,
];

/// Every directive, those that work first within each section.
pub fn directives() -> impl Iterator<Item = &'static Directive> {
    WORKING.iter().chain(KNOWN.iter().copied().flatten())
}

/// The directive with this name or alias.
pub(crate) fn find(name: &str) -> Option<&'static Directive> {
    directives().find(|directive| directive.name == name || directive.aliases.contains(&name))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_name_occurs_once() {
        let mut seen = HashSet::new();
        for directive in directives() {
            for name in std::iter::once(&directive.name).chain(directive.aliases) {
                assert!(seen.insert(*name), "{name} occurs twice");
            }
        }
        assert!(seen.len() > 430, "only {} names", seen.len());
    }

    #[test]
    fn every_entry_is_documented() {
        for directive in directives() {
            let doc = directive.doc.trim();
            assert!(doc.ends_with('.') && doc.len() > 8, "{}: {doc:?}", directive.name);
            let name_first = directive.syntax.split(' ').next();
            let obsolete = matches!(directive.status, Status::Obsolete(_));
            assert!(
                obsolete || name_first == Some(directive.name),
                "{}: {}",
                directive.name,
                directive.syntax
            );
        }
    }
}
