//! The proxies that scenarios play against.

use crate::script::Scenario;
use humboldt_tests::Proxy;
use std::net::SocketAddr;

/// What a running proxy is to one scenario.
pub(crate) enum Stage<'a> {
    /// Others play against it too.
    Shared(&'a Proxy),
    Own(Box<Proxy>),
}

impl Stage<'_> {
    /// A proxy for this scenario alone, in front of this origin if it is an accelerator.
    pub(crate) fn own(scenario: &Scenario, origin: SocketAddr) -> Self {
        let mut lines = scenario.config.clone();
        if scenario.has_disk() {
            lines += "cache_store_log stdio:{dir}/store.log\n";
        }
        Self::Own(Box::new(if scenario.is_accelerator {
            Proxy::reverse(origin, &lines)
        } else {
            Proxy::forward(&lines)
        }))
    }

    fn proxy(&self) -> &Proxy {
        match self {
            Self::Shared(proxy) => proxy,
            Self::Own(proxy) => proxy,
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
            Self::Own(proxy) => {
                change(proxy);
                Ok(())
            }
        }
    }
}
