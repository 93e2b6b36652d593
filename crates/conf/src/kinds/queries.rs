//! Queries between caches.

use std::net::IpAddr;

use super::Kind;
use crate::diagnostics::Problem;
use crate::line::Line;

/// A port of UDP; 0 is none.
pub(crate) struct UdpPort;
/// An address, or `any_addr`.
pub(crate) struct AnyAddress;

impl Kind for UdpPort {
    type Out = u16;
    const NAME: &'static str = "port";

    fn apply(out: &mut u16, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a port, or 0")?;
        *out = token.text.parse().map_err(|_| {
            token.error(format!("`{}` is not a port from 0 to {}", token.text, u16::MAX))
        })?;
        Ok(())
    }
}

impl Kind for AnyAddress {
    type Out = Option<IpAddr>;
    const NAME: &'static str = "address";

    fn apply(out: &mut Option<IpAddr>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("an address")?;
        *out = match token.text.as_str() {
            "any_addr" => None,
            text => {
                let address = text.trim_start_matches('[').trim_end_matches(']').parse();
                Some(address.map_err(|_| token.error(format!("`{text}` is not an address")))?)
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::parse_str;

    #[test]
    fn the_port_of_icp_and_its_address() {
        let text = "http_port 1\nhttp_access allow all\n";
        let (config, found) = parse_str("t", &format!("{text}icp_access deny all\nicp_port 0\n"));
        assert!(!found.has_errors() && config.icp_port == 0 && config.log_icp_queries);
        let (config, _) =
            parse_str("t", &format!("{text}icp_port 3130\nudp_incoming_address [::1]\n"));
        assert_eq!((config.icp_port, config.icp_access.len()), (3130, 0));
        assert_eq!(config.udp_incoming_address, "::1".parse().ok());
        for wrong in ["icp_port 70000", "icp_port x", "udp_incoming_address here"] {
            assert!(parse_str("t", &format!("{text}{wrong}\n")).1.has_errors(), "{wrong}");
        }
    }
}
