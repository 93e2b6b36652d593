//! Servers with TLS.

use std::rc::Rc;
use std::time::Duration;

use rustls::ServerConnection;

use crate::bump::line::{Line, Session};
use crate::bump::{Tunnels, speech};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::site::Site;
use crate::trace;

/// How a server lets its client down.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// It closes at once.
    Closes,
    /// It closes when it has the first message.
    ClosesAfterHello,
    /// It never says anything.
    Silent,
    /// What it says is no TLS.
    Garbage,
    /// It breaks off within an answer.
    BreaksOff,
}

/// Longest time that a server waits for its client.
const PATIENCE: Duration = Duration::from_secs(3 * 3600);

/// Serves a connection.
pub(super) async fn serve(
    tunnels: &Tunnels,
    site: &Site,
    plan: &Rc<Plan>,
    number: usize,
    line: Line,
    mut chance: Chance,
) {
    let host = &tunnels.hosts[number];
    let fault = match chance.per_mille(tunnels.plan.fails_per_mille) {
        false => Fault::None,
        true => chance.one(&[
            Fault::Closes,
            Fault::ClosesAfterHello,
            Fault::Silent,
            Fault::Garbage,
            Fault::BreaksOff,
        ]),
    };
    trace::line(|| format!("server {}: {fault:?}", host.name));
    if fault != Fault::None {
        host.is_in_trouble();
        host.troubled.set(host.troubled.get() + 1);
        site.totals.add("servers with TLS that fail", 1);
    }
    let serving = speak(tunnels, plan, number, line, fault, &mut chance);
    if tokio::time::timeout(PATIENCE, serving).await.is_err() {
        site.wrong(format!("a connection to {} has no end", host.name));
    }
    if fault != Fault::None {
        host.is_in_trouble();
        host.troubled.set(host.troubled.get().saturating_sub(1));
    }
    // No line in the course: the pool closes its idle connections in any order.
}

async fn speak(
    tunnels: &Tunnels,
    plan: &Plan,
    number: usize,
    line: Line,
    fault: Fault,
    chance: &mut Chance,
) {
    let host = &tunnels.hosts[number];
    match fault {
        Fault::None | Fault::BreaksOff => {}
        Fault::Closes => return,
        Fault::Silent => return line.drain().await,
        Fault::Garbage => {
            // Each connection has its own.
            let greeting = format!("220 {:016x} ready\r\n", chance.below(u64::MAX));
            _ = line.send(greeting.as_bytes()).await;
            return line.drain().await;
        }
        Fault::ClosesAfterHello => {
            _ = line.receive().await;
            return;
        }
    }
    let tls = ServerConnection::new(std::sync::Arc::clone(&host.certificate.config));
    let Ok(tls) = tls else { return };
    let mut session = Session::new(line, tls);
    tokio::time::sleep(chance.delay(plan.server_ms.min(2_000))).await;
    if session.shake_hands().await.is_err() {
        session.line.shut_down().await;
        return session.line.drain().await;
    }
    let mut kept = Vec::new();
    while let Some(path) = speech::next(&mut session, &mut kept).await {
        tokio::time::sleep(chance.delay(plan.server_ms.min(20_000))).await;
        let body = host.body(path);
        let control = if path.is_multiple_of(2) { "public, max-age=600" } else { "no-store" };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nCache-Control: {control}\r\n\r\n",
            body.bytes
        );
        let ends = if fault == Fault::BreaksOff { body.bytes / 2 } else { body.bytes };
        let mut out = head.into_bytes();
        out.extend(body.part(0, ends));
        if session.write(&out).await.is_err() {
            return;
        }
        if fault == Fault::BreaksOff {
            return session.line.break_off();
        }
    }
    session.end().await;
    // The rest is the end, or what nobody answers.
    session.line.drain().await;
}
