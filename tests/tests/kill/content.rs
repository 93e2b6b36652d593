//! Objects whose every byte is a function of path, language and version, and the origin that serves
//! them.
//!
//! The origin knows nothing: a request names in `X-Version` the version of a new answer. An answer
//! names its object in `X-Object`, so that every client that gets it from a cache knows each byte
//! of it.

use humboldt_tests::Origin;
use humboldt_tests::message::Head;
use humboldt_tests::origin::Wire;

/// Lengths around the boundaries of the schemes: pages, slots of `rock`, units of checksums,
/// stripes of `coss`, segments of `ring`.
const LENGTHS: &[usize] = &[
    0, 1, 700, 4_090, 8_100, 16_000, 16_384, 30_000, 65_536, 100_000, 131_072, 262_144, 500_000,
    983_036, 1_048_576, 1_500_000,
];

/// Ways in which objects differ but for their length.
const CLASSES: &[&str] = &["plain", "tag", "vary", "chunked"];

/// Values of Accept-Language.
pub(crate) const LANGUAGES: [&str; 2] = ["de", "en"];

/// Deterministic random numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

/// All paths: every length in two of the classes.
pub(crate) fn paths() -> Vec<String> {
    let classes = |i: usize| [CLASSES[i % 4], CLASSES[(i + 2 + i / 4 % 2) % 4]];
    let all = LENGTHS.iter().enumerate();
    all.flat_map(|(i, length)| classes(i).map(|class| format!("/{class}/{length}"))).collect()
}

pub(crate) fn varies(path: &str) -> bool {
    path.starts_with("/vary/")
}

/// Length that all versions of a path have at least.
pub(crate) fn length_min(path: &str) -> usize {
    path.rsplit('/').next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The object of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) path: String,
    pub(crate) language: String,
    pub(crate) version: u64,
}

impl Object {
    /// From the text of `X-Object`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (path, language, version) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
        Some(Self { path: path.to_owned(), language: language.to_owned(), version })
    }

    pub(crate) fn etag(&self) -> String {
        format!("\"{}-{}\"", self.language, self.version)
    }

    /// Versions of a path differ in length too.
    pub(crate) fn length(&self) -> usize {
        let base = length_min(&self.path);
        if base == 0 { 0 } else { base + (self.version % 9) as usize }
    }

    /// No two objects, and no two places of one, are alike.
    pub(crate) fn body(&self) -> Vec<u8> {
        let name = self.path.bytes().chain(self.language.bytes());
        let seed = name.fold(self.version, |seed, byte| mix(seed ^ u64::from(byte)));
        let mut body = vec![0; self.length()];
        for (at, word) in body.chunks_mut(8).enumerate() {
            let number = (seed ^ at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
            word.copy_from_slice(&number[..word.len()]);
        }
        body
    }
}

/// Lets the origin serve all paths.
pub(crate) fn serve(origin: &Origin) {
    for path in paths() {
        let of = path.clone();
        origin.handle(&path, move |head, wire| answer(&of, head, wire));
    }
}

fn answer(path: &str, head: &Head, wire: &mut Wire) {
    let version = head.field("X-Version").and_then(|text| text.parse().ok()).unwrap_or(0);
    let language = if varies(path) { head.field("Accept-Language").unwrap_or("?") } else { "-" };
    let mut fields = String::from("Cache-Control: max-age=86400\r\n");
    if varies(path) {
        fields += "Vary: Accept-Language\r\n";
    }
    // A head that grows and shrinks when it is renewed.
    fields += &format!("X-Filler: {}\r\n", "f".repeat((version * 37 % 300) as usize));
    if let (Some(known), 1..) = (head.field("If-None-Match"), version % 4) {
        // Without X-Object: that of the stored head stays, and must fit the stored body.
        return wire.send(format!("HTTP/1.1 304 Not Modified\r\nETag: {known}\r\n{fields}\r\n"));
    }
    let object = Object { path: path.to_owned(), language: language.to_owned(), version };
    let body = object.body();
    fields += &format!("X-Object: {path} {language} {version}\r\n");
    if !path.starts_with("/plain/") {
        fields += &format!("ETag: {}\r\n", object.etag());
    }
    if path.starts_with("/chunked/") {
        wire.send(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{fields}\r\n"));
        for part in body.chunks(20_000) {
            wire.send(format!("{:x}\r\n", part.len()));
            wire.send(part);
            wire.send("\r\n");
        }
        return wire.send("0\r\n\r\n");
    }
    wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n", body.len()));
    wire.send(body);
}
