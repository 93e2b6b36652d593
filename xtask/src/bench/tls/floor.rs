//! The floor of TLS: the bare server of the other benchmarks behind the library that Humboldt uses,
//! with nothing in between. For each answer it makes the same system calls as without TLS.

use crate::Outcome;
use crate::bench::floor::{self, Answers, Connection};
use humboldt_lab_wire::Poller;
use mio::net::TcpStream;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Address to listen on
    listen: SocketAddr,
    /// Its certificate, in PEM
    certificate: PathBuf,
    /// Its key, in PEM
    key: PathBuf,
    /// A file in which it counts connections and requests
    #[arg(long)]
    counts: Option<PathBuf>,
}

struct Secured {
    stream: TcpStream,
    tls: ServerConnection,
    input: Vec<u8>,
}

/// Serves until it is killed.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let chain = vec![CertificateDer::from_pem_file(&arguments.certificate)?];
    let key = PrivateKeyDer::from_pem_file(&arguments.key)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    let config = Arc::new(config);
    let counts = arguments.counts.as_ref().map(File::create).transpose()?;
    floor::serve(arguments.listen, counts.as_ref(), |stream| {
        let mut tls = ServerConnection::new(Arc::clone(&config))?;
        tls.set_buffer_limit(None);
        Ok(Secured { stream, tls, input: Vec::new() })
    })
}

impl Connection for Secured {
    fn progress(
        &mut self,
        answers: &mut Answers,
        chunk: &mut [u8],
        is_closed: bool,
    ) -> std::io::Result<()> {
        loop {
            self.send()?;
            if self.tls.wants_write() {
                return Ok(()); // the socket is full
            }
            let len = match self.stream.read(chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.take(&chunk[..len])?;
            self.answer(answers)?;
            if Poller::drained(len, chunk.len()) && !is_closed {
                return self.send();
            }
        }
    }
}

impl Secured {
    /// Decrypts what has come.
    fn take(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            self.tls.read_tls(&mut bytes)?;
            let state = self.tls.process_new_packets();
            let state = state.map_err(|_| ErrorKind::InvalidData)?;
            let (old, more) = (self.input.len(), state.plaintext_bytes_to_read());
            self.input.resize(old + more, 0);
            self.tls.reader().read_exact(&mut self.input[old..])?;
            if state.peer_has_closed() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Encrypts the answers to all requests that are there.
    fn answer(&mut self, answers: &mut Answers) -> std::io::Result<()> {
        while let Some(body_bytes) = floor::next_request(&mut self.input)? {
            answers.counts.requests += 1;
            let (head, body) = answers.get(body_bytes);
            let parts = [IoSlice::new(head), IoSlice::new(body)];
            let taken = self.tls.writer().write_vectored(&parts)?;
            if taken < head.len() + body.len() {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    fn send(&mut self) -> std::io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
