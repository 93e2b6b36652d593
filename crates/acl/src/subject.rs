//! What rules are asked about.

use std::net::IpAddr;

use humboldt_http::{RequestHead, ResponseHead};

/// One transaction, as far as it is known when a list is checked. Everything is borrowed.
#[derive(Copy, Clone, Debug)]
pub struct Subject<'a> {
    /// Address of the client.
    pub client_ip: IpAddr,
    /// Address the client connected to.
    pub local_ip: IpAddr,
    /// Port the client connected to.
    pub local_port: u16,
    /// `name=` of the `http_port`, if it has one.
    pub port_name: Option<&'a str>,
    /// Method as in the request line.
    pub method: &'a [u8],
    /// Scheme of the URL, such as `http`; empty for CONNECT.
    pub scheme: &'a [u8],
    /// Host of the URL: lower-case, without brackets.
    pub host: &'a [u8],
    /// The host, if it is an address.
    pub host_ip: Option<IpAddr>,
    /// Port of the URL.
    pub port: u16,
    /// The whole URL; for CONNECT `host:port`.
    pub url: &'a [u8],
    /// Path and query; empty for CONNECT.
    pub path: &'a [u8],
    /// The request, once there is one.
    pub request: Option<&'a RequestHead>,
    /// The response, once there is one.
    pub response: Option<&'a ResponseHead>,
    /// Addresses of the host: `None` if not looked up yet, empty if that failed. Empty, only a set
    /// with `none` matches; no other can be answered.
    pub dst_ips: Option<&'a [IpAddr]>,
    /// Unix seconds.
    pub now: i64,
    /// Offset of local time from UTC in seconds, positive in the east.
    pub local_offset_s: i32,
    /// Open connections from `client_ip`, this one included.
    pub connections_from_client: u32,
    /// Uniformly random bits, new for every transaction.
    pub random: u64,
    /// It asks for a page of the proxy's own: the ACL `manager` is about these.
    pub is_internal: bool,
}
