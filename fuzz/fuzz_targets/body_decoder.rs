//! A body decodes alike whether it comes whole, byte by byte, or cut where the first input byte
//! says; and what was decoded, encoded again, decodes to itself.
#![no_main]

use humboldt_http::h1::{BodyDecoder, BodyEncoder, BodyError, DecodeState, Framing};
use libfuzzer_sys::fuzz_target;

/// Data, bytes consumed and whether the body ended; after an error the data only.
#[derive(PartialEq, Debug)]
struct Outcome {
    data: Vec<u8>,
    end: Result<(usize, bool), BodyError>,
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
}

fn decode<'a>(framing: Framing, pieces: impl Iterator<Item = &'a [u8]>) -> Outcome {
    let mut decoder = BodyDecoder::new(framing);
    let mut outcome = Outcome { data: Vec::new(), end: Ok((0, false)), trailers: Vec::new() };
    let mut consumed = 0;
    for mut rest in pieces {
        while !rest.is_empty() && !decoder.is_done() {
            match decoder.decode(rest) {
                Err(error) => {
                    outcome.end = Err(error);
                    return outcome;
                }
                Ok(step) => {
                    assert!(step.consumed > 0 && step.data.end <= step.consumed);
                    assert_eq!(step.state == DecodeState::Done, decoder.is_done());
                    outcome.data.extend_from_slice(&rest[step.data]);
                    consumed += step.consumed;
                    rest = &rest[step.consumed..];
                }
            }
        }
    }
    outcome.end = Ok((consumed, decoder.is_done()));
    if let Some(trailers) = decoder.trailers() {
        outcome.trailers = trailers.iter().map(|(_, name, value)| (name.to_vec(), value.to_vec())).collect();
    }
    outcome
}

fuzz_target!(|input: &[u8]| {
    let Some((&selector, body)) = input.split_first() else { return };
    let framing = match selector >> 6 {
        0 => Framing::Length(u64::from(selector)),
        1 => Framing::UntilClose,
        _ => Framing::Chunked,
    };
    let whole = decode(framing, std::iter::once(body));
    assert_eq!(whole, decode(framing, body.chunks(1)));
    assert_eq!(whole, decode(framing, body.chunks(usize::from(selector & 0x3f) + 1)));
    if whole.end.is_ok_and(|(_, done)| done) {
        let (mut encoder, mut wire) = (BodyEncoder::new(Framing::Chunked), Vec::new());
        encoder.encode(&whole.data, &mut wire).expect("chunks have no limit");
        encoder.finish(None, &mut wire).expect("chunks have no limit");
        let again = decode(Framing::Chunked, std::iter::once(wire.as_slice()));
        assert_eq!((again.data, again.end), (whole.data, Ok((wire.len(), true))));
    }
});
