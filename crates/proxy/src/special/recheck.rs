//! Tunnels that a later configuration refuses (`close_refused_tunnels`).

use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use humboldt_conf::RuleSource;

use crate::core::Core;
use crate::request::Request;
use crate::rules::permission;

/// Ends when a reconfiguration has come whose rules refuse the request of a tunnel, with the rule.
/// `peer` is the address of the server at the other end: if the rules ask for addresses, it is the
/// one that they judge.
pub(crate) async fn refused(
    core: &Rc<Core>,
    request: &Request,
    peer: Option<IpAddr>,
) -> Option<Arc<RuleSource>> {
    let mut judged_by = Arc::clone(request.snapshot());
    loop {
        // Before the look at the configuration: the next one may come during the check.
        let changed = pin!(core.reconfigured.notified());
        let newest = core.snapshot();
        if !Arc::ptr_eq(&newest, &judged_by) {
            if newest.config.close_refused_tunnels {
                let again = request.under(&newest, peer);
                // A rule that has no answer refuses.
                if let Err(refusal) = Box::pin(permission::decide_permission(core, &again)).await {
                    return refusal.rule;
                }
            }
            judged_by = newest;
        }
        changed.await;
    }
}
