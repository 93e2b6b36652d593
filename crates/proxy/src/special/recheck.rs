//! Tunnels that a later configuration refuses (`close_refused_tunnels`).

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use humboldt_conf::{Need, RuleSource};
use tokio::time::Instant;

use crate::config::snapshot::Snapshot;
use crate::core::Core;
use crate::cut::Cut;
use crate::request::Request;
use crate::rules::denial::Refusal;
use crate::rules::permission::{self, MayConnect};
use crate::rules::{access, enforce, upgrades};

/// Longest time for which rules without an answer are asked again, before the tunnel is closed:
/// helpers begin with a configuration, and have to answer for all tunnels at once.
const UNANSWERED_TIME_MAX: Duration = Duration::from_secs(30);

/// The wait before rules without an answer are asked again; it doubles each time.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// A tunnel as it was opened.
pub(crate) struct Tunnel<'a> {
    /// The request that has opened it.
    pub(crate) request: &'a Request,
    /// The same by the name that the client asks for in TLS, if the rules were asked about that.
    pub(crate) named: Option<&'a Request>,
    /// The address of the server at its other end: if the rules ask for addresses, it is the one
    /// that they judge.
    pub(crate) peer: Option<IpAddr>,
    /// The protocols that it switched to, if Upgrade has opened it.
    pub(crate) protocols: Option<&'a [u8]>,
}

/// Why a tunnel is closed.
pub(crate) struct Closing {
    pub(crate) cut: Cut,
    /// The rule that refuses.
    pub(crate) rule: Option<Arc<RuleSource>>,
}

/// What the rules say now.
enum Judged {
    Permitted,
    Refused(Option<Arc<RuleSource>>),
    /// A rule has no answer; it may have one later.
    Unanswered,
}

/// Ends when a reconfiguration has come whose rules refuse the tunnel.
pub(crate) async fn refused(core: &Rc<Core>, tunnel: Tunnel<'_>) -> Closing {
    let mut judged_by = Arc::clone(tunnel.request.snapshot());
    loop {
        // Before the look at the configuration: the next one may come during the check.
        let seen = core.tunnel_checks.get();
        let mut changed = pin!(core.reconfigured.notified());
        let newest = core.snapshot();
        if !Arc::ptr_eq(&newest, &judged_by) {
            if let Some(closing) = Box::pin(insist(core, &tunnel)).await {
                return closing;
            }
            judged_by = newest;
        }
        // A tunnel is polled whenever bytes move: the lock of the notification is for changes only.
        let mut registered: Option<Waker> = None;
        poll_fn(|cx| {
            let is_registered = registered.as_ref().is_some_and(|one| one.will_wake(cx.waker()));
            if is_registered && core.tunnel_checks.get() == seen {
                return Poll::Pending;
            }
            registered = Some(cx.waker().clone());
            changed.as_mut().poll(cx)
        })
        .await;
    }
}

/// Asks the rules in force until they have an answer, or for [`UNANSWERED_TIME_MAX`].
async fn insist(core: &Rc<Core>, tunnel: &Tunnel<'_>) -> Option<Closing> {
    let mut first_asked = None;
    let mut wait = RETRY_AFTER;
    loop {
        let judged = {
            // `None` only if the semaphore were closed, which nobody does.
            let _place = core.tunnel_check_places.acquire().await.ok();
            let newest = core.snapshot();
            if !newest.config.close_refused_tunnels {
                return None;
            }
            first_asked.get_or_insert_with(Instant::now);
            judge(core, tunnel, &newest).await
        };
        match judged {
            Judged::Permitted => return None,
            Judged::Refused(rule) => return Some(Closing { cut: Cut::Refused, rule }),
            Judged::Unanswered => {}
        }
        if first_asked.is_some_and(|first| first.elapsed() >= UNANSWERED_TIME_MAX) {
            return Some(Closing { cut: Cut::Unanswered, rule: None });
        }
        tokio::time::sleep(wait).await;
        wait *= 2;
    }
}

/// Asks what was asked when the tunnel was opened, of this configuration.
async fn judge(core: &Rc<Core>, tunnel: &Tunnel<'_>, snapshot: &Arc<Snapshot>) -> Judged {
    if snapshot.uses_random {
        // What is drawn for the tunnel stays so, however often the rules are asked.
        _ = tunnel.request.random.get_or_init(access::random);
        if let Some(named) = tunnel.named {
            _ = named.random.get_or_init(access::random);
        }
    }
    for asked in [Some(tunnel.request), tunnel.named].into_iter().flatten() {
        match judge_one(core, tunnel, asked, snapshot).await {
            Judged::Permitted => {}
            other => return other,
        }
    }
    Judged::Permitted
}

async fn judge_one(
    core: &Rc<Core>,
    tunnel: &Tunnel<'_>,
    asked: &Request,
    snapshot: &Arc<Snapshot>,
) -> Judged {
    let again = asked.under(snapshot, tunnel.peer);
    let sent = again.as_sent();
    let decided = match &sent {
        None => permission::decide_permission(core, &again).await,
        // The rewriter was asked between the two lists.
        Some(sent) => match permission::decide_http_access(core, sent).await {
            Ok(()) => permission::decide_adapted_access(core, &again).await,
            refused => refused,
        },
    };
    let judged = match decided {
        Err(refusal) => of_refusal(refusal),
        Ok(()) => match tunnel.protocols {
            Some(protocols) => may_switch(core, &again, protocols).await,
            None => Judged::Permitted,
        },
    };
    let reported = sent.as_ref().and_then(|sent| sent.reported.get()).or(again.reported.get());
    if let Some(rule) = reported {
        enforce::note(tunnel.request, rule.clone());
    }
    judged
}

fn of_refusal(refusal: Refusal) -> Judged {
    let Some(unanswered) = refusal.unanswered else { return Judged::Refused(refusal.rule) };
    match unanswered.need {
        // The client's connection was asked when it began, if at all: no later answer will come.
        Need::Hardware | Need::Mark | Need::Notes => {
            tracing::info!(
                "a tunnel goes on, as what acl {} needs was not kept when it was opened",
                unanswered.acl
            );
            Judged::Permitted
        }
        _ => Judged::Unanswered,
    }
}

/// Whether the client may still switch to each of the protocols.
async fn may_switch(core: &Rc<Core>, again: &Request, protocols: &[u8]) -> Judged {
    access::prepare_to_switch(core, again).await;
    for protocol in humboldt_http::split_list(protocols) {
        match upgrades::permits(again, &String::from_utf8_lossy(protocol)) {
            MayConnect::Yes => {}
            MayConnect::No(rule) => return Judged::Refused(rule),
            MayConnect::Unanswered => return Judged::Unanswered,
        }
    }
    Judged::Permitted
}
