//! The port on which other caches ask with ICP. The first core has it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use humboldt_net::icp::IcpSocket;
use humboldt_proxy::answer_queries;
use humboldt_proxy::core::Core;
use tokio::task::JoinHandle;

/// The open port, if there is one.
#[derive(Default)]
pub(crate) struct QueryPort {
    open: Option<(u16, Option<IpAddr>, JoinHandle<()>)>,
}

impl QueryPort {
    /// Opens the port of the configuration, and closes an earlier one if that differs. A port that
    /// cannot be opened is reported and left out: nobody waits long for an answer by ICP.
    pub(crate) async fn open(&mut self, core: &Rc<Core>) {
        if core.id != 0 {
            return;
        }
        let snapshot = core.snapshot();
        let (port, ip) = (snapshot.config.icp_port, snapshot.config.udp_incoming_address);
        if self.open.as_ref().is_some_and(|(own, at, _)| (*own, *at) == (port, ip)) {
            return;
        }
        if let Some((.., task)) = self.open.take() {
            task.abort();
            // Its socket is closed then.
            _ = task.await;
        }
        if port == 0 {
            return;
        }
        match bind(port, ip).await {
            Ok(socket) => {
                let task = tokio::task::spawn_local(answer_queries(Rc::clone(core), socket));
                self.open = Some((port, ip, task));
                tracing::info!("answering queries of other caches (ICP) on port {port}");
            }
            Err(error) => tracing::error!("icp_port {port} cannot be opened: {error}"),
        }
    }
}

impl Drop for QueryPort {
    fn drop(&mut self) {
        if let Some((.., task)) = &self.open {
            task.abort();
        }
    }
}

/// All addresses of IPv6 are those of IPv4, too, where the system has IPv6.
async fn bind(port: u16, ip: Option<IpAddr>) -> std::io::Result<IcpSocket> {
    if let Some(ip) = ip {
        return IcpSocket::bind(SocketAddr::new(ip, port)).await;
    }
    match IcpSocket::bind((Ipv6Addr::UNSPECIFIED, port).into()).await {
        Ok(socket) => Ok(socket),
        Err(_) => IcpSocket::bind((Ipv4Addr::UNSPECIFIED, port).into()).await,
    }
}
