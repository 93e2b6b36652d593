//! Comma-separated lists (RFC 9110 5.6.1).

use memchr::memchr;

use crate::syntax::trim_ows;

/// Iterator over the elements of one list value; see [`split_list`].
#[derive(Clone, Debug)]
pub struct ListItems<'a> {
    rest: &'a [u8],
    /// A quote was not closed: from there on quotes are bytes like others.
    is_unquoted: bool,
}

/// The elements of a comma-separated list: trimmed, empty ones skipped. A comma inside a quoted string does
/// not separate. A quote that is not closed quotes nothing: `x="a, no-store` must not hide what follows.
#[must_use]
pub fn split_list(value: &[u8]) -> ListItems<'_> {
    ListItems { rest: value, is_unquoted: false }
}

impl<'a> Iterator for ListItems<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = match element_end(self.rest, self.is_unquoted) {
                Some(end) => end,
                None => {
                    // Kept in mind, so that a value full of such quotes is not searched again for each.
                    self.is_unquoted = true;
                    memchr(b',', self.rest).unwrap_or(self.rest.len())
                }
            };
            let (element, tail) = self.rest.split_at_checked(end)?;
            self.rest = tail.get(1..).unwrap_or_default();
            let element = trim_ows(element);
            if !element.is_empty() {
                return Some(element);
            }
        }
        None
    }
}

/// Index of the comma that ends the first element, or the length; `None` when a quote is not closed.
fn element_end(value: &[u8], is_unquoted: bool) -> Option<usize> {
    let mut quoted = false;
    let mut escaped = false;
    for (at, &byte) in value.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' if !is_unquoted => quoted = !quoted,
            b',' if !quoted => return Some(at),
            _ => {}
        }
    }
    (!quoted).then_some(value.len())
}

#[cfg(test)]
mod tests {
    use super::split_list;

    #[test]
    fn splits_trims_and_skips_empties() {
        let cases: [(&[u8], &[&[u8]]); 9] = [
            (b"", &[]),
            (b" , ,\t", &[]),
            (b"a", &[b"a"]),
            (b"a, b ,,c", &[b"a", b"b", b"c"]),
            (br#"a="x,\",y", b"#, &[br#"a="x,\",y""#, b"b"]),
            (br#""open, b"#, &[br#""open"#, b"b"]),
            (br#"x="a, no-store, y"#, &[br#"x="a"#, b"no-store", b"y"]),
            (br#"x="a,b", y="c, "d,e"#, &[br#"x="a,b""#, br#"y="c, "d"#, b"e"]),
            (br#""\",\",\",a"#, &[br#""\""#, br#"\""#, br#"\""#, b"a"]),
        ];
        for (value, want) in cases {
            assert_eq!(split_list(value).collect::<Vec<_>>(), want);
        }
    }
}
