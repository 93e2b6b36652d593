//! Memory of idle connections with TLS.

use super::servers::Server;
use crate::Outcome;
use crate::bench::load::Deadline;
use crate::bench::{Plan, idle, table};
use humboldt_lab_wire::response_head;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const CONNECTIONS: usize = 10_000;
const QUICK_CONNECTIONS: usize = 1_000;

/// Memory of an idle connection, at most, in KB.
const TARGET_KB: f64 = 24.0;

const TIME_LIMIT: Duration = Duration::from_secs(300);

/// A server that takes longer is broken, not slow.
const REPLY_LIMIT: Duration = Duration::from_secs(20);

/// Takes the memory of each server before and after connections that made one request each.
pub(super) fn run(plan: &Plan, all: &[Server], authority: &Path, host: SocketAddr) -> Outcome {
    idle::raise_own_limit()?;
    let count = if plan.quick { QUICK_CONNECTIONS } else { CONNECTIONS };
    let config = settings(authority)?;
    let mut rows = Vec::new();
    for server in all {
        let deadline = Deadline::after(TIME_LIMIT);
        let open = || ask(&config, server.secured, host);
        // First-use costs of the process are not put down to connections.
        drop(open()?);
        let before = server.process.process.resident_bytes()?;
        let mut held = Vec::with_capacity(count);
        for _ in 0..count {
            deadline.check()?;
            held.push(open()?);
        }
        let after = server.process.process.resident_bytes()?;
        let each_kb = idle::each_kb(before, after, count);
        let verdict = match server.name {
            "humboldt" if each_kb <= TARGET_KB => format!("≤ {TARGET_KB}: reached"),
            "humboldt" => format!("≤ {TARGET_KB}: missed"),
            _ => String::new(),
        };
        rows.push(vec![server.name.to_owned(), format!("{each_kb:.1}"), verdict]);
    }
    println!("\nMemory of an idle connection with TLS, of {count} that each made one request\n");
    table::print(&["server", "KB", "target"], &rows);
    Ok(())
}

fn settings(authority: &Path) -> Outcome<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority)?)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Connects, asks for 1 KiB, and reads the answer.
fn ask(
    config: &Arc<ClientConfig>,
    address: SocketAddr,
    host: SocketAddr,
) -> Outcome<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::IpAddress(address.ip().into());
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_LIMIT))?;
    let tls = ClientConnection::new(Arc::clone(config), name)?;
    let mut stream = StreamOwned::new(tls, stream);
    stream.write_all(format!("GET /1024/0 HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())?;
    let (mut answer, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut chunk)? {
            0 => return Err("closed before an answer".into()),
            len => answer.extend_from_slice(&chunk[..len]),
        }
        if let Some(head) = response_head(&answer)?
            && let Some(length) = head.content_length()
            && answer.len() >= head.len_bytes() + usize::try_from(length)?
        {
            return match head.status() {
                200 => Ok(stream),
                status => Err(format!("status {status}").into()),
            };
        }
    }
}
