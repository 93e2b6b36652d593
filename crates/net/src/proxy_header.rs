//! The header of the PROXY protocol, versions 1 and 2, with which a load balancer tells the address
//! of the client.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use crate::Stream;

/// The beginning of version 1.
const V1_SIGNATURE: &[u8] = b"PROXY ";

/// The beginning of version 2.
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Length of the shortest header of version 1; no header of any version ends before that.
const SHORTEST_V1_BYTES: usize = b"PROXY UNKNOWN\r\n".len();

/// Longest header of version 1, by its specification.
const LONGEST_V1_BYTES: usize = 107;

/// Bytes of a header of version 2 before the part whose length they tell.
const FIXED_V2_BYTES: usize = 16;

/// Most bytes of that part: addresses, and facts about TLS that are not used.
pub const V2_BYTES_MAX: usize = 4096;

/// The addresses of a client's connection to the load balancer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The client.
    pub client: SocketAddr,
    /// The address that the client connected to.
    pub local: SocketAddr,
}

/// Why a connection has no usable header.
#[derive(Debug, Error)]
pub enum ProxyHeaderError {
    /// The connection ended or broke.
    #[error("the connection ended in the header: {0}")]
    Lost(#[from] io::Error),
    /// It does not begin with a header of the PROXY protocol.
    #[error("no valid header of the PROXY protocol")]
    Malformed,
    /// The header is longer than [`V2_BYTES_MAX`].
    #[error("the header of the PROXY protocol is longer than {V2_BYTES_MAX} bytes")]
    TooLong,
}

/// Reads the header, and no byte behind it. `None`: it announces nobody; the connection is the load
/// balancer's own, or its client has no address of IP.
///
/// # Errors
/// The connection cannot be used.
pub async fn read(stream: &mut Stream) -> Result<Option<Announced>, ProxyHeaderError> {
    let mut header = vec![0; SHORTEST_V1_BYTES];
    read_exact(stream, &mut header).await?;
    if header.starts_with(V2_SIGNATURE) {
        read_v2(stream, &mut header).await?;
        return of_v2(&header).ok_or(ProxyHeaderError::Malformed);
    }
    if header.starts_with(V1_SIGNATURE) {
        read_v1(stream, &mut header).await?;
        return of_v1(&header).ok_or(ProxyHeaderError::Malformed);
    }
    Err(ProxyHeaderError::Malformed)
}

/// Reads the rest of the line.
async fn read_v1(stream: &mut Stream, header: &mut Vec<u8>) -> Result<(), ProxyHeaderError> {
    while header.last() != Some(&b'\n') {
        let mut ahead = [0; LONGEST_V1_BYTES];
        let room = LONGEST_V1_BYTES.saturating_sub(header.len());
        let ahead = ahead.get_mut(..room).unwrap_or_default();
        if ahead.is_empty() {
            return Err(ProxyHeaderError::Malformed);
        }
        let seen = poll_fn(|cx| stream.poll_peek(cx, ahead)).await?;
        let seen = ahead.get(..seen).unwrap_or_default();
        let end = seen.iter().position(|&byte| byte == b'\n');
        let taken = end.map_or(seen.len(), |end| end + 1);
        if taken == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let begin = header.len();
        header.resize(begin + taken, 0);
        read_exact(stream, header.get_mut(begin..).unwrap_or_default()).await?;
    }
    Ok(())
}

/// Reads the rest of the fixed part, and the part whose length that tells.
async fn read_v2(stream: &mut Stream, header: &mut Vec<u8>) -> Result<(), ProxyHeaderError> {
    let begin = header.len();
    header.resize(FIXED_V2_BYTES, 0);
    read_exact(stream, header.get_mut(begin..).unwrap_or_default()).await?;
    let Some([high, low]) = header.last_chunk().copied() else {
        return Err(ProxyHeaderError::Malformed);
    };
    let rest = usize::from(u16::from_be_bytes([high, low]));
    if rest > V2_BYTES_MAX {
        return Err(ProxyHeaderError::TooLong);
    }
    header.resize(FIXED_V2_BYTES + rest, 0);
    read_exact(stream, header.get_mut(FIXED_V2_BYTES..).unwrap_or_default()).await?;
    Ok(())
}

async fn read_exact(stream: &mut Stream, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
        match poll_fn(|cx| stream.poll_read(cx, room)).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(())
}

/// The addresses in a line `PROXY TCP4 CLIENT LOCAL PORT PORT`. `None`: the line is malformed.
fn of_v1(line: &[u8]) -> Option<Option<Announced>> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix("\r\n")?;
    let mut words = line.split(' ').skip(1);
    let is_v4 = match words.next()? {
        "TCP4" => true,
        "TCP6" => false,
        // Whatever follows is to be ignored.
        "UNKNOWN" => return Some(None),
        _ => return None,
    };
    let mut address = || {
        let ip: IpAddr = words.next()?.parse().ok()?;
        (ip.is_ipv4() == is_v4).then_some(ip)
    };
    let (client, local) = (address()?, address()?);
    is_told(client, local).then_some(())?;
    let mut port = || {
        let digits = words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse::<u16>().ok()
    };
    let (client_port, local_port) = (port()?, port()?);
    let announced = Announced {
        client: SocketAddr::new(client, client_port),
        local: SocketAddr::new(local, local_port),
    };
    words.next().is_none().then_some(Some(announced))
}

/// The addresses in a header of version 2. `None`: it is malformed.
fn of_v2(header: &[u8]) -> Option<Option<Announced>> {
    const LOCAL: u8 = 0x20;
    const PROXY: u8 = 0x21;
    const TCP4: u8 = 0x11;
    const TCP6: u8 = 0x21;
    let (fixed, rest) = header.split_at_checked(FIXED_V2_BYTES)?;
    let &[command, family, ..] = fixed.get(V2_SIGNATURE.len()..)? else { return None };
    match (command, family) {
        (PROXY, TCP4) => {
            let (client, rest) = rest.split_first_chunk::<4>()?;
            let (local, ports) = rest.split_first_chunk::<4>()?;
            ends(Ipv4Addr::from(*client).into(), Ipv4Addr::from(*local).into(), ports)
        }
        (PROXY, TCP6) => {
            let (client, rest) = rest.split_first_chunk::<16>()?;
            let (local, ports) = rest.split_first_chunk::<16>()?;
            ends(Ipv6Addr::from(*client).into(), Ipv6Addr::from(*local).into(), ports)
        }
        // The load balancer's own connection, or a client without an address of TCP.
        (LOCAL | PROXY, _) => Some(None),
        _ => None,
    }
}

/// Whether both ends have an address. For rules, one without it is that of a Unix socket.
fn is_told(client: IpAddr, local: IpAddr) -> bool {
    [client, local].iter().all(|ip| !ip.to_canonical().is_unspecified())
}

/// The addresses with the two ports that follow them.
fn ends(client: IpAddr, local: IpAddr, ports: &[u8]) -> Option<Option<Announced>> {
    is_told(client, local).then_some(())?;
    let (client_port, rest) = ports.split_first_chunk::<2>()?;
    let (local_port, _more) = rest.split_first_chunk::<2>()?;
    Some(Some(Announced {
        client: SocketAddr::new(client, u16::from_be_bytes(*client_port)),
        local: SocketAddr::new(local, u16::from_be_bytes(*local_port)),
    }))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use tokio::net::TcpListener;

    use super::*;

    /// Reads the header of a connection on which `bytes` come in pieces of `step`; gives what it
    /// says, and the bytes that are left.
    fn read_in_steps(
        bytes: &[u8],
        step: usize,
    ) -> (Result<Option<Announced>, ProxyHeaderError>, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("its address");
            let (bytes, step) = (bytes.to_vec(), step.max(1));
            let writer = std::thread::spawn(move || {
                let mut socket = std::net::TcpStream::connect(address).expect("a connection");
                socket.set_nodelay(true).expect("no delay");
                bytes.chunks(step).for_each(|piece| _ = socket.write_all(piece));
                _ = socket.shutdown(std::net::Shutdown::Write);
                _ = socket.read_to_end(&mut Vec::new());
            });
            let (socket, _) = listener.accept().await.expect("a connection");
            let mut stream = Stream::Tcp(socket);
            let result = read(&mut stream).await;
            let mut rest = Vec::new();
            let mut buffer = [0; 64];
            while let Ok(n @ 1..) = poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await {
                rest.extend_from_slice(&buffer[..n]);
            }
            drop(stream);
            writer.join().expect("the writer ends");
            (result, rest)
        })
    }

    fn announced(client: &str, local: &str) -> Option<Announced> {
        let address = |text: &str| text.parse().expect("an address");
        Some(Announced { client: address(client), local: address(local) })
    }

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut header = V2_SIGNATURE.to_vec();
        header.extend([0x20 | command, family]);
        header.extend(u16::try_from(rest.len()).expect("a short part").to_be_bytes());
        header.extend(rest);
        header
    }

    #[test]
    fn both_versions_are_read_and_nothing_behind_them() {
        let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0xc3, 0x50, 0, 80];
        let mut v6 = [0; 36];
        (v6[15], v6[31], v6[33], v6[35]) = (1, 2, 7, 80);
        let with_tlv = [&v4[..], &[4, 0, 1, 42]].concat();
        let client = announced("192.0.2.1:50000", "198.51.100.2:80");
        for (header, says) in [
            (b"PROXY TCP4 192.0.2.1 198.51.100.2 50000 80\r\n".to_vec(), client),
            (
                b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n".to_vec(),
                announced("[2001:db8::1]:1", "[::1]:2"),
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n".to_vec(), None),
            (binary(1, 0x11, &v4), client),
            (binary(1, 0x11, &with_tlv), client),
            (binary(1, 0x21, &v6), announced("[::1]:7", "[::2]:80")),
            (binary(0, 0x11, &v4), None),
            (binary(0, 0, &[]), None),
            (binary(1, 0, &[]), None),
        ] {
            for step in [1, 7, 4000] {
                let bytes = [&header[..], b"GET / HTTP/1.1\r\n\r\n"].concat();
                let (result, rest) = read_in_steps(&bytes, step);
                assert_eq!(result.expect("a header"), says, "{header:?}");
                assert_eq!(rest, b"GET / HTTP/1.1\r\n\r\n", "{header:?}");
            }
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let long = [&b"PROXY TCP4 "[..], &[b'1'; 200], b"\r\n"].concat();
        let huge = binary(1, 0x11, &vec![0; V2_BYTES_MAX + 1]);
        for wrong in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"PROXY",
            b"PROXY TCP4 192.0.2.1",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 50000 80\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 50000\r\n",
            b"PROXY TCP4 ::1 ::1 50000 80\r\n",
            b"PROXY TCP4  192.0.2.1 198.51.100.2 50000 80\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 50000 80 1\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 +5000 80\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 65536 80\r\n",
            b"PROXY UDP4 192.0.2.1 198.51.100.2 50000 80\r\n",
            b"PROXY UNKNOWN \xff\r\n",
            b"PROXY TCP4 0.0.0.0 198.51.100.2 50000 80\r\n",
            b"PROXY TCP4 192.0.2.1 0.0.0.0 50000 80\r\n",
            b"PROXY TCP6 ::ffff:0.0.0.0 ::1 50000 80\r\n",
            &binary(1, 0x11, &[0; 12]),
            &binary(1, 0x21, &[0; 36]),
            b"",
            &long,
            &huge,
            &binary(2, 0x11, &[0; 12]),
            &binary(1, 0x11, &[0; 5]),
        ] {
            assert!(read_in_steps(wrong, 4000).0.is_err(), "{wrong:?}");
        }
    }
}
