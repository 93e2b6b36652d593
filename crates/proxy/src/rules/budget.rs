//! What a request takes from the budget of its client (`client_budget`).

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;

use humboldt_acl::Question;
use humboldt_base::client_network::network;
use humboldt_base::counters::Counter;
use humboldt_conf::{BudgetKey, BudgetLimits};
use humboldt_exchange::Meter;

use crate::budgets::{Exhausted, Over, Spending, TunnelPlace};
use crate::config::budgets::BudgetLine;
use crate::core::Core;
use crate::helped::Facts;
use crate::request::Request;
use crate::rules::denial::Refusal;
use crate::rules::{access, login, own};

/// Takes a request from the budget of its client, once. Call it when the rules have let it in.
///
/// # Errors
/// The client is over budget, or a line has no answer.
pub(crate) fn admit(core: &Core, request: &Request) -> Result<(), Refusal> {
    let lines = &request.snapshot().budgets;
    if lines.is_empty() || request.spending.get().is_asked {
        return Ok(());
    }
    let mut spending = Spending { is_asked: true, ..request.spending.get() };
    request.spending.set(spending);
    if own::is_internal(request) {
        return Ok(());
    }
    let Some((index, line)) = line(request, lines)? else { return Ok(()) };
    let Some(limits) = &line.limits else { return Ok(()) };
    let (kind, client) = client(request, limits);
    let key = core.shared.budgets.key(line.id, kind, client.bytes());
    let taken = core.shared.budgets.take_request((key, line.id), limits, || client.name());
    taken.map_err(|over| refusal(core, line, over))?;
    // The page of one that is refused is not taken from it, or who asks again and again would never
    // come back.
    spending.account = Some((key, index));
    request.spending.set(spending);
    Ok(())
}

/// The first line that holds for the request.
fn line<'l>(
    request: &Request,
    lines: &'l [BudgetLine],
) -> Result<Option<(usize, &'l BudgetLine)>, Refusal> {
    for (index, line) in lines.iter().enumerate() {
        match access::ask(&line.condition, request, None).answered() {
            Ok(true) => return Ok(Some((index, line))),
            Ok(false) => {}
            // A client that has not logged in is none of the users. One whose login could not be
            // checked may be any.
            Err(Question::User { .. }) if !matches!(request.login.get(), Some(Err(_))) => {}
            Err(question) => return Err(Refusal::unanswered(question)),
        }
    }
    Ok(None)
}

fn refusal(core: &Core, line: &BudgetLine, over: Over) -> Refusal {
    core.count(Counter::ClientOverBudget, 1);
    let nanos = over.retry_after.as_nanos();
    // A client that comes a little too early is refused once more.
    let seconds = u64::try_from(nanos.div_ceil(1_000_000_000)).unwrap_or(u64::MAX).max(1);
    Refusal::of_budget(over.limit.words(), seconds).by(Some(&line.source))
}

/// Whose budget it is.
enum Client<'r> {
    /// With the length of its prefix.
    Address(IpAddr, u32, [u8; 16]),
    User(&'r str),
    Told(Rc<Facts>),
}

impl Client<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Address(.., bytes) => bytes,
            Self::User(name) => name.as_bytes(),
            Self::Told(facts) => facts.user.as_deref().unwrap_or_default(),
        }
    }

    /// For people.
    fn name(&self) -> Box<str> {
        match self {
            Self::Address(ip @ IpAddr::V4(_), Ipv4Addr::BITS, _) => ip.to_string().into(),
            Self::Address(ip, bits, _) => format!("{ip}/{bits}").into(),
            Self::User(name) => (*name).into(),
            Self::Told(_) => String::from_utf8_lossy(self.bytes()).into(),
        }
    }
}

/// The client of the request, and the kind of its account.
fn client<'r>(request: &'r Request, limits: &BudgetLimits) -> (u8, Client<'r>) {
    if limits.key == BudgetKey::User {
        if let Some(user) = login::user(request) {
            return (1, Client::User(user));
        }
        if let Some(facts) = request.helped.facts().filter(|facts| facts.user.is_some()) {
            return (1, Client::Told(facts));
        }
    }
    of_address(request.end_client(), limits)
}

fn of_address<'r>(ip: IpAddr, limits: &BudgetLimits) -> (u8, Client<'r>) {
    let (v4_bits, v6_bits) = limits.prefix_bits;
    let ip = network(ip, v4_bits, v6_bits);
    let (kind, bits, value) = match ip {
        IpAddr::V4(ip) => (2, v4_bits, ip.to_bits().into()),
        IpAddr::V6(ip) => (0, v6_bits, ip.to_bits()),
    };
    (kind, Client::Address(ip, bits, value.to_be_bytes()))
}

/// Takes bytes that have been sent to the client, or have come from it. `false`: the budget is
/// used up.
pub(crate) fn take_bytes(core: &Core, request: &Request, bytes: u64) -> bool {
    let mut spending = request.spending.get();
    let Some((key, index)) = spending.account else { return true };
    spending.taken_bytes += bytes;
    request.spending.set(spending);
    let line = request.snapshot().budgets.get(index);
    let limits = line.and_then(|line| Some((line, line.limits.as_ref()?)));
    let Some((line, limits)) = limits.filter(|_| bytes > 0) else { return true };
    let name = || client(request, limits).1.name();
    core.shared.budgets.take_bytes((key, line.id), limits, bytes, name)
}

/// Takes what has come of the request's body since the last time. `false`: the budget is used up.
pub(crate) fn take_upload(core: &Core, request: &Request, uploaded_bytes: u64) -> bool {
    let spending = request.spending.get();
    if spending.account.is_none() {
        return true;
    }
    request.spending.set(Spending { uploaded_bytes, ..spending });
    take_bytes(core, request, uploaded_bytes.saturating_sub(spending.uploaded_bytes))
}

/// The refusal of a request whose body uses the budget up.
pub(crate) fn refuse_upload(core: &Core, request: &Request) -> Refusal {
    let unknown = Over { limit: Exhausted::Bytes, retry_after: Duration::from_secs(1) };
    let account = request.spending.get().account;
    let line = account.and_then(|(_, index)| request.snapshot().budgets.get(index));
    let over = account.zip(line.and_then(|line| line.limits.as_ref()));
    let over = over.and_then(|((key, _), limits)| core.shared.budgets.over_bytes(key, limits));
    let over = over.unwrap_or(unknown);
    // The page is not taken from the budget.
    request.spending.set(Spending { account: None, ..request.spending.get() });
    match line {
        Some(line) => refusal(core, line, over),
        None => Refusal::of_budget(over.limit.words(), over.retry_after.as_secs().max(1)),
    }
}

/// Takes the bytes that have not been taken yet, when the request has ended.
pub(crate) fn settle(core: &Core, request: &Request, bytes_out: u64) {
    let spending = request.spending.get();
    if spending.account.is_some() {
        let bytes = bytes_out.saturating_add(spending.uploaded_bytes);
        take_bytes(core, request, bytes.saturating_sub(spending.taken_bytes));
    }
}

/// Takes a place for a tunnel, if there is a budget. One inside of another, as a WebSocket that is
/// decrypted, has the place of that one.
///
/// # Errors
/// The client has as many as it may.
pub(crate) fn begin_tunnel(core: &Core, request: &Request) -> Result<Option<TunnelPlace>, Refusal> {
    if request.inside().is_some() {
        return Ok(None);
    }
    let Some((key, index)) = request.spending.get().account else { return Ok(None) };
    let line = request.snapshot().budgets.get(index);
    let limits = line.and_then(|line| Some((line, line.limits.as_ref()?)));
    let Some((line, limits)) = limits else { return Ok(None) };
    let name = || client(request, limits).1.name();
    match core.shared.budgets.begin_tunnel((key, line.id), limits, name) {
        Ok(()) => Ok(Some(TunnelPlace::new(&core.shared.budgets, key))),
        Err(over) => Err(refusal(core, line, over)),
    }
}

/// Takes the bytes of a tunnel as they move; `None` without a budget.
pub(crate) fn meter(core: &Rc<Core>, request: &Rc<Request>) -> Option<Meter> {
    request.spending.get().account?;
    let (core, request) = (Rc::clone(core), Rc::clone(request));
    Some(Box::new(move |bytes| take_bytes(&core, &request, bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_can_be_one_client() {
        let named = |prefix_bits, ip: &str| {
            let limits = BudgetLimits { prefix_bits, ..BudgetLimits::default() };
            let (_, client) = of_address(ip.parse().unwrap(), &limits);
            (client.name().to_string(), client.bytes().to_vec())
        };
        let usual = BudgetLimits::default().prefix_bits;
        let own = named(usual, "2001:db8:1:2:3:4:5:6");
        assert_eq!(own.0, "2001:db8:1:2::/64");
        assert_eq!(own, named(usual, "2001:db8:1:2::9"));
        assert_ne!(own.1, named(usual, "2001:db8:1:3::9").1);
        assert_eq!(named((24, 48), "2001:db8:1:2::9"), named((24, 48), "2001:db8:1:3::1"));
        assert_eq!(named(usual, "::ffff:10.1.2.3").0, "10.1.2.3");
        assert_eq!(named((24, 48), "10.1.2.3").0, "10.1.2.0/24");
        let account = |ip: &str| {
            let limits = BudgetLimits { prefix_bits: (32, 128), ..BudgetLimits::default() };
            let (kind, client) = of_address(ip.parse().unwrap(), &limits);
            (kind, client.bytes().to_vec())
        };
        for v6 in ["8000::a01:203", "::a01:203", "::1:a01:203"] {
            assert_ne!(account("10.1.2.3"), account(v6), "{v6}");
        }
    }
}
