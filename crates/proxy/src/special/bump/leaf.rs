//! The certificate that a client gets in place of the server's.

use std::rc::Rc;
use std::time::Duration;

use humboldt_base::bump::{ServerIdentity, SignAs};
use humboldt_base::counters::Counter;
use humboldt_conf::CertAdapt;
use humboldt_tls::{BumpAuthority, LeafChanges, LeafFault, LeafWish, ServerSide};

use super::authority;
use crate::core::Core;
use crate::cut::Cut;
use crate::leaf_turns::LEAF_WAIT_MAX;
use crate::request::Request;
use crate::rules::bump;

/// The settings of the connection with the client.
///
/// # Errors
/// Why there is no certificate.
pub(super) async fn leaf(
    core: &Core,
    named: &Request,
    seen: Option<&Rc<ServerIdentity>>,
) -> Result<ServerSide, Cut> {
    let port = &named.facts().port.name;
    let Some(authority) = authority(named) else {
        tracing::error!(
            "port {port}: nothing can be decrypted without `tls-cert=`: the connection is closed"
        );
        return Err(Cut::NoCertificate);
    };
    let host = String::from_utf8_lossy(named.url.host());
    let seen = seen.filter(|server| !server.der.is_empty());
    let has_faults = seen.is_some_and(|server| !server.faults.is_empty());
    let adapted = seen.map(|server| bump::changes(named, server)).unwrap_or_default();
    let mut changes = LeafChanges::default();
    for change in adapted {
        match change {
            CertAdapt::ValidAfter => changes.ends_with_authority = true,
            CertAdapt::ValidBefore => changes.begins_with_authority = true,
            CertAdapt::CommonName(name) => {
                changes.common_name = Some(name.as_deref().unwrap_or(&host));
            }
        }
    }
    let wish = LeafWish {
        names: &[&host],
        mimic: seen.map(|server| &*server.der),
        within_s: seen.and_then(|server| server.chain_time_s),
        has_faults,
        sign: seen.map_or(SignAs::Trusted, |server| bump::sign(named, server)),
        changes,
    };
    let unmade = |fault: LeafFault| {
        tracing::warn!("port {port}: {host}: {fault}");
        Cut::NoCertificate
    };
    let side = match authority.find(&wish, core.now().secs()).map_err(unmade)? {
        Some(side) => {
            core.count(Counter::BumpLeavesFound, 1);
            side
        }
        None => {
            let turn = wait_for_turn(core, named, authority).await;
            // Another connection may have made it meanwhile.
            match (authority.find(&wish, core.now().secs()).map_err(unmade)?, turn) {
                (Some(side), turn) => {
                    if turn.is_ok() {
                        give_turn_back(core, named, authority);
                    }
                    core.count(Counter::BumpLeavesFound, 1);
                    side
                }
                (None, Err(cut)) => return Err(cut),
                (None, Ok(())) => {
                    let leaf = authority.leaf(&wish, core.now().secs()).map_err(unmade)?;
                    let counter = match leaf.was_made {
                        true => Counter::BumpLeavesMade,
                        false => Counter::BumpLeavesFound,
                    };
                    core.count(counter, 1);
                    leaf.side
                }
            }
        }
    };
    if has_faults {
        core.count(Counter::BumpFaultsShown, 1);
    }
    Ok(side)
}

/// Waits until the client may have another new certificate. It is signed on this core: with P-256 a
/// new one takes a fifth of the instructions of the handshake that comes next anyway (273,000,
/// 210,000 of them in the signature), so another thread would gain nothing. RSA takes thirty times
/// as much and more, and a client gets fewer of those in a second.
async fn wait_for_turn(core: &Core, named: &Request, authority: &BumpAuthority) -> Result<(), Cut> {
    let client = named.end_client();
    match core.shared.leaf_turns.take(client, authority.leaves_per_client_s()) {
        Ok(Duration::ZERO) => Ok(()),
        Ok(wait) => {
            core.count(Counter::BumpLeavesWaited, 1);
            tokio::time::sleep(wait).await;
            Ok(())
        }
        Err(_) => {
            // A connection before it may be for the same name.
            tokio::time::sleep(LEAF_WAIT_MAX).await;
            tracing::debug!("{client}: too many new certificates at a time");
            Err(Cut::TooManyCertificates)
        }
    }
}

/// Gives back a turn that nothing was made in.
fn give_turn_back(core: &Core, named: &Request, authority: &BumpAuthority) {
    core.shared.leaf_turns.give_back(named.end_client(), authority.leaves_per_client_s());
}
