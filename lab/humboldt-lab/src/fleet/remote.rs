//! The laboratory's end of a connection to an agent.

use super::protocol::{LINE_BYTES_MAX, Order, Reply};
use super::{FleetError, Party};
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Longer than anything that an agent does for one order.
const REPLY_LIMIT: Duration = Duration::from_secs(30);

pub(super) struct Remote {
    address: String,
    stream: BufReader<TcpStream>,
}

impl Remote {
    pub(super) fn connect(address: &str) -> Result<Self, FleetError> {
        let agent_error = |error| FleetError::Agent { address: address.to_owned(), error };
        let stream = connect(address).map_err(agent_error)?;
        Ok(Self { address: address.to_owned(), stream: BufReader::new(stream) })
    }

    fn error(&self, error: Error) -> FleetError {
        FleetError::Agent { address: self.address.clone(), error }
    }
}

fn connect(address: &str) -> std::io::Result<TcpStream> {
    let mut last = Error::new(ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(REPLY_LIMIT))?;
                stream.set_write_timeout(Some(REPLY_LIMIT))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Party for Remote {
    fn name(&self) -> &str {
        &self.address
    }

    fn send(&mut self, order: Order) -> Result<(), FleetError> {
        write_line(self.stream.get_mut(), &order).map_err(|error| self.error(error))
    }

    fn receive(&mut self) -> Result<Reply, FleetError> {
        let reply = read_line(&mut self.stream).map_err(|error| self.error(error))?;
        reply.ok_or_else(|| self.error(Error::new(ErrorKind::UnexpectedEof, "the agent has gone")))
    }
}

/// Writes one message.
pub(super) fn write_line<T: serde::Serialize>(
    stream: &mut impl Write,
    message: &T,
) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message).map_err(Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    stream.flush()
}

/// Reads one message; `None` at the end of the stream.
pub(super) fn read_line<T: serde::de::DeserializeOwned>(
    stream: &mut impl BufRead,
) -> std::io::Result<Option<T>> {
    let mut line = Vec::new();
    stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&line)
        .map(Some)
        .map_err(|error| Error::new(ErrorKind::InvalidData, error))
}
