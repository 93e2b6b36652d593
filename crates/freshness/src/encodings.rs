//! Accept-Encoding (RFC 9110 section 12.5.3), reduced to the encodings between which servers
//! choose.

use humboldt_http::{FieldName, Fields};

/// The one encoding that represents a request's field: `br`, else `gzip`, else none.
pub fn normal_encoding(request: &Fields) -> Option<&'static [u8]> {
    let accepts = |names: &[&[u8]]| {
        request.list(FieldName::AcceptEncoding).any(|member| {
            let mut parts = member.splitn(2, |&byte| byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let is_meant = names.iter().any(|own| name.eq_ignore_ascii_case(own));
            is_meant && parts.next().is_none_or(|weight| !is_zero(weight))
        })
    };
    if accepts(&[b"br"]) {
        return Some(b"br");
    }
    accepts(&[b"gzip", b"x-gzip"]).then_some(b"gzip")
}

/// `q=0`, also with digits behind a point.
fn is_zero(weight: &[u8]) -> bool {
    match weight {
        [b'q' | b'Q', b'=', digits @ ..] => !digits.iter().any(|byte| matches!(byte, b'1'..=b'9')),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    #[test]
    fn the_best_that_is_accepted() {
        let rows = [
            ("gzip, deflate, br, zstd", Some("br")),
            ("GZIP;q=0.1, deflate", Some("gzip")),
            ("br;q=0, x-gzip", Some("gzip")),
            ("br;q=0.000, gzip; q=0", None),
            ("deflate, *", None),
            ("", None),
        ];
        for (value, want) in rows {
            let request = request(&format!("Accept-Encoding: {value}"));
            assert_eq!(normal_encoding(&request.fields), want.map(str::as_bytes), "{value}");
        }
        assert_eq!(normal_encoding(&request("").fields), None);
    }
}
