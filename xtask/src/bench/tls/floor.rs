//! The floor of TLS: the bare server of the other benchmarks behind the library that Humboldt uses,
//! with nothing in between.

use crate::Outcome;
use crate::bench::floor::{Answers, LISTENER, MAX_REQUEST_BYTES, requested_bytes};
use humboldt_lab_wire::{Poller, Ready, request_head};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
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
}

struct Connection {
    stream: TcpStream,
    tls: ServerConnection,
    input: Vec<u8>,
}

struct Server {
    config: Arc<ServerConfig>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    answers: Answers,
    chunk: Vec<u8>,
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
    let listener = TcpListener::bind(arguments.listen)?;
    listener.set_nonblocking(true)?;
    let mut poller = Poller::new()?;
    poller.add_listener(&listener, LISTENER)?;
    let mut server = Server {
        config: Arc::new(config),
        connections: Vec::new(),
        free: Vec::new(),
        answers: Answers::new(),
        chunk: vec![0; 4 * MAX_REQUEST_BYTES],
    };
    let mut events = Vec::new();
    loop {
        poller.wait_into(&mut events, None)?;
        server.answers.refresh();
        for event in &events {
            match event.token {
                LISTENER => server.accept(&poller, &listener)?,
                _ => server.serve(*event),
            }
        }
    }
}

impl Server {
    fn accept(&mut self, poller: &Poller, listener: &TcpListener) -> Outcome {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            poller.add_stream(&stream, slot as u64)?;
            let mut tls = ServerConnection::new(Arc::clone(&self.config))?;
            tls.set_buffer_limit(None);
            self.connections[slot] = Some(Connection { stream, tls, input: Vec::new() });
        }
    }

    /// Dropping a connection closes its socket, which takes it out of the poller.
    fn serve(&mut self, event: Ready) {
        let slot = event.token as usize;
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        if connection.progress(&mut self.answers, &mut self.chunk, event.closed).is_err() {
            self.connections[slot] = None;
            self.free.push(slot);
        }
    }
}

impl Connection {
    /// Answers and reads until the kernel has nothing more. An error means: close.
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
        loop {
            let head = request_head(&self.input).map_err(|_| ErrorKind::InvalidData)?;
            let Some(head) = head else {
                let is_full = self.input.len() > MAX_REQUEST_BYTES;
                return if is_full { Err(ErrorKind::InvalidData.into()) } else { Ok(()) };
            };
            let body_bytes = requested_bytes(head.target()).ok_or(ErrorKind::InvalidData)?;
            let len_bytes = head.len_bytes();
            self.input.drain(..len_bytes);
            let (head, body) = answers.get(body_bytes);
            let parts = [IoSlice::new(head), IoSlice::new(body)];
            let taken = self.tls.writer().write_vectored(&parts)?;
            if taken < head.len() + body.len() {
                return Err(ErrorKind::WriteZero.into());
            }
        }
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
