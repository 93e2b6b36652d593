//! The proxies that scenarios play against.

use crate::script::Scenario;
use humboldt_tests::Proxy;
use humboldt_tests::proxy::is_squid;
use humboldt_tests::wait::until;
use std::net::SocketAddr;

/// A running proxy, as one scenario uses it.
pub(crate) enum Stage<'a> {
    /// Others play against it too.
    Shared(&'a Proxy),
    Own {
        proxy: Box<Proxy>,
        /// Number of its directories.
        stores: usize,
    },
}

impl Stage<'_> {
    /// A proxy for this scenario alone, in front of this origin if it is an accelerator.
    pub(crate) fn own(scenario: &Scenario, origin: SocketAddr) -> Self {
        let mut lines = scenario.config.clone();
        if scenario.stores() > 0 {
            lines += "cache_store_log stdio:{dir}/store.log\n";
        }
        let proxy = if scenario.is_accelerator {
            Proxy::reverse(origin, &lines)
        } else {
            Proxy::forward(&lines)
        };
        wait_for_stores(&proxy, scenario.stores());
        Self::Own { proxy: Box::new(proxy), stores: scenario.stores() }
    }

    fn proxy(&self) -> &Proxy {
        match self {
            Self::Shared(proxy) => proxy,
            Self::Own { proxy, .. } => proxy,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.proxy().address()
    }

    /// A file of its own directory.
    pub(crate) fn text(&self, name: &str) -> String {
        self.proxy().text(name)
    }

    pub(crate) fn restart(&mut self) -> Result<(), String> {
        self.change(Proxy::restart)
    }

    pub(crate) fn kill(&mut self) -> Result<(), String> {
        self.change(|proxy| {
            proxy.kill();
            // Its number may be another process's by now.
            let _ = std::fs::remove_file(proxy.path("pid"));
            proxy.launch();
        })
    }

    fn change(&mut self, change: impl Fn(&mut Proxy)) -> Result<(), String> {
        match self {
            Self::Shared(_) => Err("this proxy is shared: Scenario::can_share is wrong".to_owned()),
            Self::Own { proxy, stores } => {
                change(proxy);
                wait_for_stores(proxy, *stores);
                Ok(())
            }
        }
    }
}

/// A request before a directory is in service and knows its objects is neither found nor stored
/// there.
fn wait_for_stores(proxy: &Proxy, count: usize) {
    if count == 0 || is_squid() {
        return;
    }
    until("the directories to be in service", || {
        let target = proxy.page("metrics");
        let page = proxy.client().request("GET", &target, &[], b"").response().text();
        let all_say = |metric: &str, value: &str| {
            page.lines().filter(|line| line.starts_with(metric) && line.ends_with(value)).count()
                == count
        };
        (all_say("humboldt_store_down{", " 0") && all_say("humboldt_store_rebuild_ratio{", " 1"))
            .then_some(())
    });
}
