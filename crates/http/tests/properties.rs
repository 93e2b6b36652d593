//! Properties that hold for every input: reading undoes writing, where the network cuts makes no
//! difference, and nothing panics.

use humboldt_http::h1::{
    BodyDecoder, BodyEncoder, BodyError, DecodeState, Framing, HeadError, may_complete_head,
    parse_request, parse_response, write_end, write_field, write_request_line, write_status_line,
};
use humboldt_http::range::ContentRange;
use humboldt_http::{
    Fields, HeadLimits, RequestHead, ResponseHead, Url, Version, conditional, date, escape, etag,
    range,
};
use proptest::collection::vec;
use proptest::prelude::*;

const TOKEN: &str = "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}";
/// Field values as they are after trimming.
const VALUE: &str = "([!-~\u{80}-\u{ff}]([ \t!-~]{0,20}[!-~])?)?";

/// Names that have no meaning to the parser, so that random values cannot be refused.
fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    vec((TOKEN.prop_map(|name| format!("X{name}")), VALUE), 0..20)
}

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::Http10), Just(Version::Http11)]
}

/// Pieces of requests, valid and not, to reach deeper than random bytes do.
fn request_like() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&str; 24] = [
        "GET ",
        "POST ",
        "CONNECT ",
        "/",
        "http://h/",
        "h:1",
        "*",
        " HTTP/1.1",
        " HTTP/1.0",
        " HTTP/2.0",
        "\r\n",
        "\r\n",
        "\n",
        "\r",
        " ",
        "Host: h\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "a:b\r\n",
        ":",
        "\0",
        "#",
        "0\r\n\r\n",
        "5\r\nhello\r\n",
    ];
    let piece = prop_oneof![
        9 => proptest::sample::select(&PIECES[..]).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 1..3),
    ];
    (any::<bool>(), vec(piece, 0..12)).prop_map(|(good_start, pieces)| {
        let start: &[u8] = if good_start { b"GET / HTTP/1.1\r\nHost: h\r\n" } else { b"" };
        [start, &pieces.concat()].concat()
    })
}

/// Chunked bodies, valid and not.
fn chunked_like() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&str; 14] = [
        "5\r\nhello\r\n",
        "0\r\n",
        "\r\n",
        "a: b\r\n",
        "0\r\n\r\n",
        "3;x=\"y\"\r\nabc\r\n",
        "\n",
        "\r",
        "1",
        ";",
        "\"",
        "X",
        " ",
        "ETag: \"a\"\r\n",
    ];
    vec(proptest::sample::select(&PIECES[..]), 0..10)
        .prop_map(|pieces| pieces.concat().into_bytes())
}

/// Cuts `input` at the given positions.
fn pieces<'a>(input: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| cut % (input.len() + 1)).chain([0, input.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &input[pair[0]..pair[1]]).collect()
}

/// Decodes pieces as they would arrive: data, bytes consumed, whether done, trailers as text.
fn decode(framing: Framing, pieces: &[&[u8]]) -> (Vec<u8>, usize, Result<bool, BodyError>, String) {
    let mut decoder = BodyDecoder::new(framing);
    let (mut data, mut consumed) = (Vec::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && !decoder.is_done() {
            let step = match decoder.decode(rest) {
                Ok(step) => step,
                Err(error) => return (data, 0, Err(error), String::new()),
            };
            assert!(
                step.consumed > 0 && step.data.end <= step.consumed && step.consumed <= rest.len()
            );
            assert_eq!(step.state == DecodeState::Done, decoder.is_done());
            data.extend_from_slice(&rest[step.data]);
            consumed += step.consumed;
            rest = &rest[step.consumed..];
        }
    }
    let trailers = decoder.trailers().map_or(String::new(), |trailers| lines(&trailers));
    (data, consumed, Ok(decoder.is_done()), trailers)
}

fn lines(fields: &Fields) -> String {
    fields
        .iter()
        .map(|(id, name, value)| {
            format!("{id:?} {} {}\n", name.escape_ascii(), value.escape_ascii())
        })
        .collect()
}

fn request(input: &[u8], head: &mut RequestHead) -> Result<Option<usize>, HeadError> {
    parse_request(input, &HeadLimits::default(), head)
}

/// Something that stands in the head of a careless server's answer.
fn response_piece() -> impl Strategy<Value = &'static str> {
    const PIECES: [&str; 16] = [
        "\r\n",
        "\n",
        "\r",
        " ",
        "\t",
        "A: b",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        ":",
        "x",
        "\0",
        "B :c",
        "\r\n\r\n",
        "\n\n",
        "\r\nA: b\r\n",
        "\nA: b\n",
    ];
    (0..PIECES.len()).prop_map(|at| PIECES[at])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_written_request_reads_back(
        method in "[A-Z]{1,8}[a-z]",
        path in "/[!-\"$-~]{0,30}",
        version in version(),
        fields in fields(),
    ) {
        let mut text = Vec::new();
        write_request_line(&mut text, method.as_bytes(), path.as_bytes(), version);
        write_field(&mut text, b"Host", b"h.example:81");
        for (name, value) in &fields {
            write_field(&mut text, name.as_bytes(), value.as_bytes());
        }
        write_end(&mut text);
        let mut head = RequestHead::default();
        prop_assert_eq!(request(&text, &mut head), Ok(Some(text.len())));
        prop_assert_eq!((head.method_bytes(), head.target_bytes()), (method.as_bytes(), path.as_bytes()));
        prop_assert_eq!((head.version, head.fields.len()), (version, fields.len() + 1));
        for ((_, name, value), (want_name, want_value)) in head.fields.iter().skip(1).zip(&fields) {
            prop_assert_eq!((name, value), (want_name.as_bytes(), want_value.as_bytes()));
        }
    }

    #[test]
    fn a_written_response_reads_back(
        status in 100u16..1000,
        reason in VALUE,
        version in version(),
        fields in fields(),
    ) {
        let mut text = Vec::new();
        write_status_line(&mut text, version, status, reason.as_bytes());
        for (name, value) in &fields {
            write_field(&mut text, name.as_bytes(), value.as_bytes());
        }
        write_end(&mut text);
        let mut head = ResponseHead::default();
        prop_assert_eq!(parse_response(&text, &HeadLimits::default(), &mut head), Ok(Some(text.len())));
        prop_assert_eq!((head.status, head.reason(), head.version), (status, reason.as_bytes(), version));
        prop_assert_eq!(head.fields.len(), fields.len());
        for ((_, name, value), (want_name, want_value)) in head.fields.iter().zip(&fields) {
            prop_assert_eq!((name, value), (want_name.as_bytes(), want_value.as_bytes()));
        }
    }

    #[test]
    fn a_cut_head_is_the_same_head(input in request_like()) {
        let mut head = RequestHead::default();
        let whole = request(&input, &mut head);
        for cut in 0..input.len() {
            match request(&input[..cut], &mut RequestHead::default()) {
                Ok(None) => {}
                Ok(Some(head_len)) => prop_assert_eq!(whole, Ok(Some(head_len)), "cut at {}", cut),
                Err(error) => prop_assert_eq!(whole, Err(error), "cut at {}", cut),
            }
            if let Ok(Some(head_len)) = whole {
                let cut_off = request(&input[..cut], &mut RequestHead::default());
                prop_assert!(cut >= head_len || cut_off == Ok(None));
            }
        }
        // Skipping the calls that cannot complete a head misses none.
        let mut outcomes = (0..=input.len()).map(|end| request(&input[..end], &mut RequestHead::default()));
        if let Some(complete) = outcomes.position(|outcome| matches!(outcome, Ok(Some(_)))) {
            prop_assert!(may_complete_head(&input[..complete], complete - 1, &HeadLimits::default()));
        }
        // A head that was used before reads the same as a new one.
        let mut used = RequestHead::default();
        let _ = request(b"POST http://x/ HTTP/1.0\r\nHost: x\r\nContent-Length: 1\r\n\r\n", &mut used);
        prop_assert_eq!(request(&input, &mut used), whole);
        if whole.is_ok_and(|head_len| head_len.is_some()) {
            prop_assert_eq!((lines(&used.fields), used.target), (lines(&head.fields), head.target));
        }
    }

    /// A relaxed reader consumes a repaired head completely, reads it as a strict one reads the
    /// repaired head, and does so wherever the input is cut.
    #[test]
    fn a_relaxed_reader_differs_in_what_it_repairs_only(pieces in vec(response_piece(), 0..12)) {
        let input = ["HTTP/1.1 200 OK", &pieces.concat()].concat().into_bytes();
        let strict = HeadLimits::default();
        let relaxed = HeadLimits { relaxed: true, ..strict };
        let (mut head, mut strictly) = (ResponseHead::default(), ResponseHead::default());
        let whole = parse_response(&input, &relaxed, &mut head);
        let by_the_book = parse_response(&input, &strict, &mut strictly);
        for cut in 0..input.len() {
            match parse_response(&input[..cut], &relaxed, &mut ResponseHead::default()) {
                Ok(None) => {}
                other => prop_assert_eq!(other, whole, "cut at {}", cut),
            }
        }
        if let Ok(Some(_)) = by_the_book {
            prop_assert_eq!((whole, head.repaired), (by_the_book, false));
            prop_assert_eq!(lines(&head.fields), lines(&strictly.fields));
        }
        if let Ok(Some(_)) = whole {
            let mut text = Vec::new();
            write_status_line(&mut text, head.version, head.status, head.reason());
            for (_, name, value) in head.fields.iter() {
                write_field(&mut text, name, value);
            }
            write_end(&mut text);
            let mut again = ResponseHead::default();
            prop_assert_eq!(parse_response(&text, &strict, &mut again), Ok(Some(text.len())));
            prop_assert_eq!(lines(&head.fields), lines(&again.fields));
        }
    }

    #[test]
    fn cuts_do_not_change_a_body(input in chunked_like(), cuts in vec(any::<usize>(), 0..8)) {
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        let whole = decode(Framing::Chunked, &[&input]);
        prop_assert_eq!(&decode(Framing::Chunked, &pieces(&input, &cuts)), &whole);
        prop_assert_eq!(&decode(Framing::Chunked, &bytes), &whole);
    }

    #[test]
    fn decoding_undoes_encoding(
        parts in vec(vec(any::<u8>(), 0..300), 0..10),
        cuts in vec(any::<usize>(), 0..8),
        chunked: bool,
    ) {
        let body = parts.concat();
        let framing = if chunked { Framing::Chunked } else { Framing::Length(body.len() as u64) };
        let (mut encoder, mut wire) = (BodyEncoder::new(framing), Vec::new());
        for part in &parts {
            prop_assert_eq!(encoder.encode(part, &mut wire), Ok(()));
        }
        let mut trailers = Fields::new();
        trailers.push_named(b"X-Sum", b"1");
        prop_assert_eq!(encoder.finish(Some(&trailers), &mut wire), Ok(()));
        let wire_bytes = wire.len();
        wire.extend_from_slice(b"next");
        let (data, consumed, done, read) = decode(framing, &pieces(&wire, &cuts));
        prop_assert_eq!((data, consumed, done), (body, wire_bytes, Ok(true)));
        prop_assert_eq!(read, if chunked { lines(&trailers) } else { String::new() });
    }

    #[test]
    fn nothing_panics(input in vec(any::<u8>(), 0..200), text in "[ -~]{0,40}", number: i64) {
        let _ = request(&input, &mut RequestHead::default());
        let _ = parse_response(&input, &HeadLimits::default(), &mut ResponseHead::default());
        let _ = decode(Framing::Chunked, &[&input]);
        for text in [input.as_slice(), text.as_bytes()] {
            let _ = (date::parse(text), ContentRange::parse(text), Url::default().set_absolute(text));
            let _ = range::parse_range(text).map(|set| range::resolve(&set, number as u64));
            let _ = (etag::list(text).count(), humboldt_http::split_list(text).count());
            let mut fields = Fields::new();
            fields.push_named(b"If-None-Match", text);
            fields.push_named(b"If-Modified-Since", text);
            let validators = conditional::Validators { etag: Some(text), last_modified: Some(number) };
            let _ = conditional::evaluate(humboldt_http::Method::Get, &fields, validators);
            escape::write_html(&mut String::new(), text);
            let _ = escape::percent_decode(text);
        }
        prop_assert!(date::parse(&date::format(number)).is_some());
    }

    #[test]
    fn a_canonical_url_is_its_own_canonical_form(
        text in "(http|https|ftp|HTTP)://[a-zA-Z0-9.-]{1,12}(:[0-9]{0,5})?(/[!-~]{0,12})?",
    ) {
        let (mut url, mut again) = (Url::default(), Url::default());
        if url.set_absolute(text.as_bytes()).is_ok() {
            prop_assert_eq!(again.set_absolute(url.as_bytes()), Ok(()));
            prop_assert_eq!(url.as_bytes(), again.as_bytes());
            prop_assert_eq!((url.host(), url.port()), (again.host(), again.port()));
            prop_assert_eq!(url.path_and_query(), again.path_and_query());
        }
    }
}
