//! The second one of a client's first messages. A server may ask for it (HelloRetryRequest), and it
//! has to be like the first but for what was asked for (RFC 8446 4.1.2): its name is the one that
//! the rules have judged.

use std::pin::pin;

use humboldt_tls::{FlightReader, ServerFlight, read_client_hello, read_second_hello};

use crate::bumped::Steps;
use crate::cut::Cut;
use crate::handshake::HANDSHAKE_TIME;
use crate::special::tunnel::{self, Way};
use crate::transaction::Transaction;

/// The first version in which servers ask for another message.
const TLS13: u16 = 0x0304;

/// Where the first message of the client is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstMessage {
    /// Among the bytes that have come from the client.
    IsHere,
    /// The server has it.
    IsSent,
}

/// Takes the first message, and nothing behind it: what comes next is looked at from its first
/// byte.
pub(super) fn take_first_message(transaction: &mut Transaction<'_>) -> Vec<u8> {
    let client = &mut *transaction.client;
    let end = match read_client_hello(client.early_bytes()) {
        Ok(Some((_, end))) => end,
        _ => client.early_bytes().len(),
    };
    client.take_early_bytes_to(end)
}

/// Looks at the second message of a tunnel that is to pass unread from here on, if there is one.
///
/// # Errors
/// Why the tunnel ends.
pub(super) async fn follow(
    transaction: &mut Transaction<'_>,
    way: &mut Way,
    steps: &Steps,
    first: FirstMessage,
) -> Result<(), Cut> {
    let Some(hello) = steps.newest().and_then(|facts| facts.hello.as_ref()) else { return Ok(()) };
    if hello.newest_version < TLS13 {
        return Ok(());
    }
    if first == FirstMessage::IsHere {
        hear_server(transaction, way).await?;
    }
    match FlightReader::default().read(way.server.early_bytes()) {
        Ok(Some(ServerFlight::AsksAgain { .. })) => {}
        _ => return Ok(()),
    }
    let core = transaction.core;
    let mut client = way.take_client(transaction);
    let asked = way.server.take_early_bytes();
    let talk = async {
        client.send(&asked).await.map_err(|_| Cut::ClientGone)?;
        loop {
            match read_second_hello(client.early_bytes()) {
                Ok(Some(second)) if second.sni == hello.sni => return Ok(()),
                Ok(None) => {}
                Ok(Some(_)) => {
                    tracing::debug!("a client asks for another name in its second message of TLS");
                    return Err(Cut::NotTls);
                }
                Err(why) => {
                    tracing::debug!("no second message of TLS: {why}");
                    return Err(Cut::NotTls);
                }
            }
            match client.read_early(&core.io).await {
                Ok(true) => {}
                Ok(false) | Err(_) => return Err(Cut::ClientGone),
            }
        }
    };
    let deadline = core.io.deadlines.slot();
    deadline.arm(HANDSHAKE_TIME);
    let followed = deadline.guard(pin!(talk)).await.unwrap_or(Err(Cut::NoHandshake));
    way.outcome.bytes_out += asked.len() as u64;
    way.give_client_back(client);
    followed
}

/// Sends the first message on, and waits for the answer. Whatever else the server does is its
/// client's matter.
async fn hear_server(transaction: &mut Transaction<'_>, way: &mut Way) -> Result<(), Cut> {
    let hello = take_first_message(transaction);
    let core = transaction.core;
    let deadline = core.io.deadlines.slot();
    // Nothing else moves.
    deadline.arm(tunnel::idle_time(transaction.request));
    let server = &mut way.server;
    let talk = async {
        if server.send(&hello).await.is_err() {
            return;
        }
        let mut flight = FlightReader::default();
        while let Ok(None) = flight.read(server.early_bytes()) {
            if !matches!(server.read_early(&core.io).await, Ok(true)) {
                return;
            }
        }
    };
    let talk = pin!(talk);
    let heard = pin!(deadline.guard(talk));
    match transaction.while_it_stays(heard).await {
        None => Err(Cut::ClientGone),
        Some(Err(_late)) => Err(Cut::TunnelIdle),
        Some(Ok(())) => Ok(()),
    }
}
