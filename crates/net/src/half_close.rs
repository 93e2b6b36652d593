//! Noticing that the other side has closed its half of a connection, while nothing is being read from it.

use humboldt_sys::tcp::{self, PeerState};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Whether the other side has closed its sending half, or the connection is broken. Bytes that wait to be
/// read hide that. One system call.
pub fn is_read_closed(stream: &TcpStream) -> bool {
    tcp::peer_state(stream) == PeerState::Closed
}

/// Waits until [`is_read_closed`]: for a client that leaves while its answer is being fetched. Reads nothing
/// and, when bytes wait to be read (a pipelined request), never ends: what follows them cannot be known.
/// Cancel-safe.
pub async fn read_closed(stream: &TcpStream) {
    loop {
        match stream.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {}
            _ => return,
        }
        match tcp::peer_state(stream) {
            PeerState::Closed => return,
            PeerState::Sent => std::future::pending().await,
            // Readiness left over from before: clear it, or this loop would spin.
            PeerState::Quiet => {
                let nothing = || Err::<(), _>(std::io::ErrorKind::WouldBlock.into());
                let _ = stream.try_io(Interest::READABLE, nothing);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (ours, theirs) = tokio::join!(connecting, listener.accept());
        (ours.unwrap(), theirs.unwrap().0)
    }

    #[tokio::test]
    async fn a_half_close_is_noticed_and_a_quiet_connection_is_not_one() {
        let (mut ours, mut theirs) = pair().await;
        theirs.write_all(b"request").await.unwrap();
        ours.read_exact(&mut [0_u8; 7]).await.unwrap();
        assert!(timeout(Duration::from_millis(50), read_closed(&ours)).await.is_err());
        theirs.shutdown().await.unwrap();
        read_closed(&ours).await;
        assert!(is_read_closed(&ours));
        ours.write_all(b"still works").await.unwrap();
        assert_eq!(theirs.read(&mut [0_u8; 64]).await.unwrap(), 11);
    }

    #[tokio::test]
    async fn a_pipelined_request_is_neither_a_close_nor_lost() {
        let (mut ours, mut theirs) = pair().await;
        theirs.write_all(b"next").await.unwrap();
        assert!(timeout(Duration::from_millis(50), read_closed(&ours)).await.is_err());
        assert!(!is_read_closed(&ours));
        ours.read_exact(&mut [0_u8; 4]).await.unwrap();
        drop(theirs);
        read_closed(&ours).await;
    }
}
