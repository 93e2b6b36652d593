//! The bytes of the messages that a script sends.

use crate::script::{Outgoing, Piece, Start};
use crate::text::{Context, Text, imf_date};

/// The form of a message on the wire.
pub(crate) struct Sender<'a> {
    pub(crate) context: &'a Context,
    /// The authority that clients ask for.
    pub(crate) host: &'a str,
    pub(crate) is_accelerator: bool,
}

impl Sender<'_> {
    /// A message: its first line, its fields, those that are added by themselves, and its body as
    /// far as it is given.
    pub(crate) fn message(&self, message: &Outgoing) -> Vec<u8> {
        let mut out = self.start(&message.start).into_bytes();
        for (name, value) in &message.fields {
            line(&mut out, name, &value.expand(self.context));
        }
        for (name, value) in self.added(message) {
            let is_given = message.fields.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
            if !is_given && !message.without.iter().any(|own| own.eq_ignore_ascii_case(name)) {
                line(&mut out, name, value.as_bytes());
            }
        }
        out.extend_from_slice(b"\r\n");
        out.extend(self.pieces(&message.pieces));
        out
    }

    fn start(&self, start: &Start) -> String {
        match start {
            Start::Request { method, target, version } => {
                let target = self.latin1(target);
                let version = version.as_deref().unwrap_or("HTTP/1.1");
                let site = if target.starts_with('/') && !self.is_accelerator {
                    format!("http://{}", self.host)
                } else {
                    String::new()
                };
                format!("{method} {site}{target} {version}\r\n")
            }
            Start::Status { version, code, reason } => {
                let version = version.as_deref().unwrap_or("HTTP/1.1");
                let reason = reason.as_deref().unwrap_or(usual_reason(code));
                format!("{version} {code} {reason}\r\n")
            }
        }
    }

    fn latin1(&self, text: &Text) -> String {
        String::from_utf8_lossy(&text.expand(self.context)).into_owned()
    }

    /// The fields that a message has by default.
    fn added(&self, message: &Outgoing) -> Vec<(&'static str, String)> {
        let is_chunked = message.pieces.iter().any(|piece| !matches!(piece, Piece::Plain(_)));
        let has_coding = is_chunked
            || message
                .fields
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case("Transfer-Encoding"));
        let len = self.pieces(&message.pieces).len();
        let mut added = Vec::new();
        let has_length = match message.start {
            Start::Request { .. } => {
                added.push(("Host", self.host.to_owned()));
                len > 0
            }
            Start::Status { ref code, .. } => {
                let is_final = !code.starts_with('1');
                if is_final {
                    added.push(("Date", imf_date(self.context.now_s)));
                }
                is_final && !matches!(code.as_str(), "204" | "304")
            }
        };
        if is_chunked {
            added.push(("Transfer-Encoding", "chunked".to_owned()));
        }
        if has_length && !has_coding {
            added.push(("Content-Length", len.to_string()));
        }
        added
    }

    /// Parts of a body.
    pub(crate) fn pieces(&self, pieces: &[Piece]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut is_last_chunk = false;
        for piece in pieces {
            match piece {
                Piece::Plain(text) => out.extend(text.expand(self.context)),
                Piece::Chunk(text) => {
                    let bytes = text.expand(self.context);
                    out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
                    out.extend(bytes);
                    out.extend_from_slice(b"\r\n");
                }
                Piece::LastChunk => {
                    out.extend_from_slice(b"0\r\n");
                    is_last_chunk = true;
                }
                Piece::Trailer(name, value) => line(&mut out, name, &value.expand(self.context)),
            }
        }
        if is_last_chunk {
            out.extend_from_slice(b"\r\n");
        }
        out
    }
}

fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn usual_reason(code: &str) -> &'static str {
    match code {
        "100" => "Continue",
        "101" => "Switching Protocols",
        "103" => "Early Hints",
        "200" => "OK",
        "201" => "Created",
        "204" => "No Content",
        "206" => "Partial Content",
        "301" => "Moved Permanently",
        "302" => "Found",
        "304" => "Not Modified",
        "404" => "Not Found",
        "412" => "Precondition Failed",
        "416" => "Range Not Satisfiable",
        "500" => "Internal Server Error",
        "503" => "Service Unavailable",
        _ => "Other",
    }
}
