//! Comma-separated lists (RFC 9110 5.6.1).

use crate::syntax::trim_ows;

/// Iterator over the elements of one list value; see [`split_list`].
#[derive(Clone, Debug)]
pub struct ListItems<'a> {
    rest: &'a [u8],
}

/// The elements of a comma-separated list: trimmed, empty ones skipped. A comma inside a quoted string does
/// not separate; an unterminated quoted string runs to the end of the value.
#[must_use]
pub fn split_list(value: &[u8]) -> ListItems<'_> {
    ListItems { rest: value }
}

impl<'a> Iterator for ListItems<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = element_end(self.rest);
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

/// Index of the comma that ends the first element, or the length.
fn element_end(value: &[u8]) -> usize {
    let mut quoted = false;
    let mut escaped = false;
    for (at, &byte) in value.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => return at,
            _ => {}
        }
    }
    value.len()
}

#[cfg(test)]
mod tests {
    use super::split_list;

    #[test]
    fn splits_trims_and_skips_empties() {
        let cases: [(&[u8], &[&[u8]]); 6] = [
            (b"", &[]),
            (b" , ,\t", &[]),
            (b"a", &[b"a"]),
            (b"a, b ,,c", &[b"a", b"b", b"c"]),
            (br#"a="x,\",y", b"#, &[br#"a="x,\",y""#, b"b"]),
            (br#""open, b"#, &[br#""open, b"#]),
        ];
        for (value, want) in cases {
            assert_eq!(split_list(value).collect::<Vec<_>>(), want);
        }
    }
}
