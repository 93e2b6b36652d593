//! The facts of a certificate that rules and logs may ask for.

/// A certificate that the other side of a connection has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// Whom it is for.
    pub subject: Name,
    /// Who has signed it.
    pub issuer: Name,
}

/// The name of a subject or an issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// The whole name in one line, as OpenSSL writes it: `/C=DE/O=Example/CN=alice`.
    pub line: String,
    /// Its attributes in order: short name or dotted number, dotted number, value.
    pub attributes: Vec<(String, String, String)>,
}

impl Name {
    /// The value of an attribute, such as `CN` or `2.5.4.3`; of `DN`, the whole name. As in Squid,
    /// of several it is the first.
    pub fn value(&self, attribute: &str) -> Option<&str> {
        if attribute.eq_ignore_ascii_case("DN") {
            return Some(&self.line);
        }
        let mut named = self.attributes.iter();
        let named = named
            .find(|(name, number, _)| name.eq_ignore_ascii_case(attribute) || number == attribute);
        named.map(|(.., value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_names_and_numbers_and_the_first_counts() {
        let attribute = |value: &str| ("CN".to_owned(), "2.5.4.3".to_owned(), value.to_owned());
        let name = Name {
            line: "/CN=a/CN=b".to_owned(),
            attributes: vec![attribute("a"), attribute("b")],
        };
        for wanted in ["CN", "cn", "2.5.4.3"] {
            assert_eq!(name.value(wanted), Some("a"), "{wanted}");
        }
        assert_eq!((name.value("DN"), name.value("O")), (Some("/CN=a/CN=b"), None));
    }
}
