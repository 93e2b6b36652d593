//! The form of a single value of an ACL, by type.

use std::net::IpAddr;

use super::marks::read_mark;
use crate::diagnostics::Problem;
use crate::hardware::{parse_eui48, parse_eui64, parse_fingerprint};
use crate::line::{Line, Token};
use crate::suggest::suggest;
use crate::tls_errors::{all_tls_errors, is_found_here, tls_error_names};
use crate::types::{AclKind, is_initiator};

/// Ways to write "any address" that old files use.
const ANY_ADDRESS: [&str; 5] =
    ["0/0", "0.0.0.0/0", "0.0.0.0/0.0.0.0", "0.0.0.0-255.255.255.255", "0.0.0.0-0.0.0.0/0"];

/// Longest name of a host in a request.
const HOST_BYTES_MAX: usize = 255;

/// Checks one value and gives back its normal form.
///
/// # Errors
/// The value cannot be meant.
pub(super) fn check_value(
    kind: AclKind,
    value: &Token,
    acl: &Token,
    line: &mut Line<'_>,
) -> Result<String, Problem> {
    match kind {
        AclKind::Src | AclKind::Dst | AclKind::LocalIp => return check_address(value, acl, line),
        AclKind::AnyOf | AclKind::AllOf => return check_reference(value, acl, line),
        AclKind::Port | AclKind::LocalPort => check_range(value, u64::from(u16::MAX), "port")?,
        AclKind::HttpStatus => check_range(value, 999, "status code")?,
        AclKind::MaxConn | AclKind::MaxUserIp => check_number(value)?,
        AclKind::Random => check_probability(value)?,
        AclKind::DstDomain | AclKind::SrcDomain | AclKind::SslServerName => {
            check_domain(value, line);
        }
        AclKind::Arp => check_hardware(value, parse_eui48(&value.text).is_some())?,
        AclKind::ClientConnectionMark => drop(read_mark(value)?),
        AclKind::Eui64 => check_hardware(value, parse_eui64(&value.text).is_some())?,
        AclKind::SslError => check_tls_error(value, line)?,
        AclKind::ServerCertFingerprint => check_fingerprint(value)?,
        _ if kind.is_regex() => check_regex(value)?,
        _ => {}
    }
    if let Some(words) = kind.words() {
        check_word(kind, words, value)?;
    }
    if kind == AclKind::TransactionInitiator && !is_initiator(&value.text) {
        let message = format!("nothing here begins transactions as `{}`", value.text);
        line.note(value, message, Some("this value never matches"));
    }
    Ok(value.text.clone())
}

fn check_hardware(value: &Token, is_one: bool) -> Result<(), Problem> {
    if is_one {
        return Ok(());
    }
    let why = format!("`{}` is not a hardware address", value.text);
    Err(value.error(why).with_help("write 00:11:22:33:44:55, with colons"))
}

fn check_fingerprint(value: &Token) -> Result<(), Problem> {
    if parse_fingerprint(&value.text).is_some() {
        return Ok(());
    }
    let why = format!("`{}` is not a fingerprint of SHA-1", value.text);
    Err(value.error(why).with_help(
        "write 20 bytes such as 9A:0B:…, as `openssl x509 -noout -fingerprint -sha1` does",
    ))
}

fn check_tls_error(value: &Token, line: &mut Line<'_>) -> Result<(), Problem> {
    let Some(names) = tls_error_names(&value.text) else {
        let why = format!("`{}` is not the name of a fault of certificates", value.text);
        return Err(match suggest(&value.text, all_tls_errors()) {
            Some(name) => value.error(why).with_help(format!("did you mean `{name}`?")),
            None => value.error(why).with_help("docs/tls.md has the names"),
        });
    };
    if !is_found_here(&names) {
        let message = format!("nothing here finds the fault `{}`: this never matches", value.text);
        line.note(value, message, None);
    }
    Ok(())
}

fn check_word(kind: AclKind, words: &[&str], value: &Token) -> Result<(), Problem> {
    if words.contains(&value.text.as_str()) {
        return Ok(());
    }
    let why = format!("`{}` is not a value of `{}`", value.text, kind.name());
    let help = match suggest(&value.text, words.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("write one of: {}", words.join(", ")),
    };
    Err(value.error(why).with_help(help))
}

/// `any-of` and `all-of`: the ACL must exist, and not contain itself.
fn check_reference(value: &Token, acl: &Token, line: &mut Line<'_>) -> Result<String, Problem> {
    let name = value.text.trim_start_matches('!');
    if name.eq_ignore_ascii_case(&acl.text) {
        return Err(value.error(format!("`{name}` cannot contain itself")));
    }
    if let Some(known) = line.state.acl(name) {
        let negated = (value.text.len() - name.len()) % 2 == 1;
        return Ok(format!("{}{}", if negated { "!" } else { "" }, known.name));
    }
    let problem = value.error(format!("no ACL is named `{name}`"));
    Err(match suggest(name, line.state.acls.values().map(|acl| acl.name.as_str())) {
        Some(name) => problem.with_help(format!("did you mean `{name}`?")),
        None => problem,
    })
}

fn check_address(value: &Token, acl: &Token, line: &mut Line<'_>) -> Result<String, Problem> {
    let text = value.text.as_str();
    if ANY_ADDRESS.contains(&text) {
        if !acl.text.eq_ignore_ascii_case("all") {
            let help = format!(
                "write `all` for any address, or use the predefined ACL `all` instead of `{}`",
                acl.text
            );
            line.note(value, format!("`{text}` is read as `all`, IPv6 included"), Some(&help));
        }
        return Ok("all".to_owned());
    }
    if matches!(text, "all" | "ipv4" | "ipv6" | "none") {
        return Ok(text.to_owned());
    }
    let (range, mask) = match text.rsplit_once('/') {
        Some((range, mask)) => (range, Some(mask)),
        None => (text, None),
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) if parse_ip(first).is_some() => (first, Some(last)),
        _ => (range, None),
    };
    let Some(address) = parse_ip(first) else {
        return check_host_name(value, first, mask, line);
    };
    if let Some(last) = last {
        let end =
            parse_ip(last).ok_or_else(|| value.error(format!("`{last}` is not an address")))?;
        if end.is_ipv4() != address.is_ipv4() || end < address {
            return Err(
                value.error(format!("`{range}` is not a range of addresses, lower one first"))
            );
        }
    }
    if let Some(mask) = mask {
        check_mask(value, address, mask)?;
    }
    Ok(text.to_owned())
}

fn parse_ip(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok()
}

fn check_mask(value: &Token, address: IpAddr, mask: &str) -> Result<(), Problem> {
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let fits = match (mask.parse::<u32>(), parse_ip(mask)) {
        (Ok(bits), _) => bits <= bits_max,
        (_, Some(IpAddr::V4(mask))) if address.is_ipv4() => {
            let bits = u32::from(mask);
            bits.leading_ones() + bits.trailing_zeros().min(32 - bits.leading_ones()) == 32
        }
        (_, Some(mask)) => mask.is_ipv6() && address.is_ipv6(),
        _ => false,
    };
    if fits {
        return Ok(());
    }
    Err(value.error(format!("`/{mask}` is not a mask for this address")).with_help(format!(
        "a mask is a number of bits from 0 to {bits_max}, or an address like 255.255.255.0 whose bits are set \
         from the left"
    )))
}

/// Not an address: a host name, perhaps. A mistyped address is refused.
fn check_host_name(
    value: &Token,
    host: &str,
    mask: Option<&str>,
    line: &mut Line<'_>,
) -> Result<String, Problem> {
    let numeric = host.bytes().all(|b| b.is_ascii_digit() || b == b'.') || host.contains(':');
    let name_like = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    if numeric || !name_like || host.is_empty() || mask.is_some() {
        return Err(value.error(format!("`{}` is not an address", value.text)).with_help(
            "write 192.0.2.1, 192.0.2.0/24, 192.0.2.1-192.0.2.9, 2001:db8::/32 or `all`",
        ));
    }
    let help = "for names of servers use `dstdomain`, which needs no look-up";
    line.note(
        value,
        format!("`{host}` is a host name: it is resolved when the proxy starts"),
        Some(help),
    );
    Ok(value.text.clone())
}

/// `N` or `N-M`.
fn check_range(value: &Token, max: u64, what: &str) -> Result<(), Problem> {
    let (first, last) = value.text.split_once('-').unwrap_or((&value.text, &value.text));
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(a), Ok(b)) if a <= b && b <= max => Ok(()),
        (Ok(a), Ok(b)) if a > b => Err(value.error(format!("the range `{}` is empty", value.text))),
        _ => {
            Err(value
                .error(format!("`{}` is not a {what} from 0 to {max}, nor a range", value.text)))
        }
    }
}

fn check_number(value: &Token) -> Result<(), Problem> {
    match value.text.parse::<u32>() {
        Ok(_) => Ok(()),
        Err(_) => Err(value.error(format!("`{}` is not a number", value.text))),
    }
}

/// `N/M`, `N:M` or a fraction below 1.
fn check_probability(value: &Token) -> Result<(), Problem> {
    let ok = match value.text.split_once(['/', ':']) {
        Some((a, b)) => matches!((a.parse::<u32>(), b.parse::<u32>()), (Ok(_), Ok(b)) if b > 0),
        None => value.text.parse::<f64>().is_ok_and(|p| (0.0..=1.0).contains(&p)),
    };
    if ok {
        Ok(())
    } else {
        Err(value.error(format!("`{}` is not a probability like 1/5 or 0.2", value.text)))
    }
}

fn check_domain(value: &Token, line: &mut Line<'_>) {
    if let Some(rest) = value.text.strip_prefix('*') {
        let help = format!(
            "write `.{}` for a domain and everything below it",
            rest.trim_start_matches('.')
        );
        line.warn(value, "`*` has no meaning in a domain: this never matches", Some(&help));
    } else if value.text.contains("://") {
        line.warn(
            value,
            "this is a URL, not a domain: it never matches",
            Some("use `url_regex` for URLs"),
        );
    } else if value.text.len() > HOST_BYTES_MAX + 1 {
        let help = "if names have run together, put each on a line of its own";
        line.warn(value, "no host has so long a name: this never matches", Some(help));
    }
}

fn check_regex(value: &Token) -> Result<(), Problem> {
    // There may be a million, and the engine takes some microseconds for each.
    if crate::posix::literal(&value.text).is_some() {
        return Ok(());
    }
    match crate::posix::compile(&value.text, false) {
        Ok(_) => Ok(()),
        Err(why) => {
            Err(value.error(format!("`{}` is not a regular expression: {why}", value.text)))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Severity, parse_str};

    fn outcome(text: &str) -> (bool, usize, usize) {
        let (_, found) =
            parse_str("t", &format!("http_port 1\nhttp_access allow all\nacl x {text}\n"));
        (found.has_errors(), found.count(Severity::Warning), found.count(Severity::Note))
    }

    #[test]
    fn addresses() {
        for good in [
            "src 10.0.0.1",
            "src 10.0.0.0/8",
            "src 10.0.0.0/255.0.0.0",
            "src 10.0.0.1-10.0.0.9",
            "src 10.0.0.0-10.9.0.0/16",
            "src ::1 fe80::/10 2001:db8::1-2001:db8::9",
            "src all",
            "dst ipv6",
        ] {
            assert_eq!(outcome(good), (false, 0, 0), "{good}");
        }
        for bad in [
            "src 10.0.0.300",
            "src 10.0.0.0/33",
            "src ::/129",
            "src 10.0.0.0/255.0.255.0",
            "src 10.0.0.9-10.0.0.1",
            "src YOUR_LAN/24",
            "src 10.0.0.1,10.0.0.2",
        ] {
            assert!(outcome(bad).0, "{bad}");
        }
        assert_eq!(outcome("dst stratum-one.example.org"), (false, 0, 1));
    }

    #[test]
    fn any_address_in_its_old_spellings() {
        for old in ["0/0", "0.0.0.0/0", "0.0.0.0/0.0.0.0"] {
            let (config, found) =
                parse_str("t", &format!("http_port 1\nacl All src {old}\nacl net src {old}\n"));
            assert!(!found.has_errors());
            assert_eq!(found.count(Severity::Note), 1);
            assert_eq!(
                config.acl.iter().find(|acl| acl.name == "net").map(|acl| acl.values.len()),
                Some(1)
            );
        }
    }

    #[test]
    fn other_values() {
        assert!(!outcome("port 80 443 1025-65535").0);
        assert!(outcome("port 70000").0 && outcome("port http").0 && outcome("port 9-1").0);
        assert!(!outcome("random 1/5").0 && outcome("random 5").0 && outcome("random 1/0").0);
        assert!(outcome("url_regex [").0 && !outcome("url_regex -i \\.exe$").0);
        assert_eq!(outcome("dstdomain *.example.com").1, 1);
        let run_together = format!("dstdomain .{}.com", "a.example.com".repeat(20));
        assert_eq!(outcome(&run_together), (false, 1, 0));
        assert_eq!(outcome("arp 00:11:22:33:44:55 0:1:2:a:B:c"), (false, 0, 0));
        assert!(outcome("arp 00-11-22-33-44-55").0 && outcome("arp 02:11:22:ff:fe:33:44:55").0);
        assert!(!outcome("eui64 02:11:22:ff:fe:33:44:55").0 && outcome("eui64 ::1").0);
        assert_eq!(outcome("transaction_initiator client all"), (false, 0, 0));
        assert_eq!(outcome("transaction_initiator certificate-fetching htcp"), (false, 0, 2));
        let sha1 = "9A:0B:".repeat(9) + "9a:0b";
        assert_eq!(outcome(&format!("server_cert_fingerprint -sha1 {sha1}")), (false, 0, 0));
        assert!(outcome("server_cert_fingerprint 9A:0B").0);
        assert!(outcome(&format!("server_cert_fingerprint -sha256 {sha1}")).0);
        assert_eq!(outcome("ssl_error X509_V_ERR_CERT_HAS_EXPIRED certUntrusted"), (false, 0, 0));
        assert_eq!(outcome("ssl_error X509_V_ERR_INVALID_CA"), (false, 0, 1));
        assert!(outcome("ssl_error X509_V_ERR_CERT_EXPIRED").0);
        assert_eq!(outcome("at_step SslBump1 SslBump3 GeneratingCONNECT"), (false, 0, 0));
        assert!(outcome("at_step sslbump1").0 && outcome("at_step SslBump4").0);
        assert_eq!(outcome("connections_encrypted"), (false, 0, 0));
        assert_eq!(outcome("connections_encrypted on"), (false, 1, 0));
        for flag in ["--client-requested", "--server-provided", "--consensus", "-n"] {
            assert_eq!(outcome(&format!("ssl::server_name {flag} .a.test")), (false, 0, 0));
            assert_eq!(outcome(&format!("ssl::server_name_regex {flag} -i a")), (false, 0, 0));
        }
        assert!(outcome("ssl::server_name --consensus --client-requested a").0);
        assert!(outcome("ssl::server_name --consensu a").0 && outcome("dstdomain --consensus a").0);
        assert!(outcome("transaction_initiator clients").0);
        assert!(outcome("transaction_initiator Client").0, "as in Squid");
        assert!(
            outcome("any-of nothing").0
                && outcome("any-of x").0
                && !outcome("any-of localhost !all").0
        );
    }
}
