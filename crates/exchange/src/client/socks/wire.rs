//! The messages of SOCKS5 (RFC 1928) and of its login with a password (RFC 1929): bytes in, values
//! out.

use std::net::{IpAddr, Ipv6Addr};

/// The version of SOCKS.
pub(super) const VERSION: u8 = 5;

/// No login.
pub(super) const NO_LOGIN: u8 = 0;

/// A login with user name and password.
pub(super) const PASSWORD: u8 = 2;

/// None of the methods that the client knows will do.
pub(super) const NO_METHOD: u8 = 0xff;

/// The version of the login.
const LOGIN_VERSION: u8 = 1;

/// A domain name of this many bytes is longer than any in the DNS, but the length has a byte.
const NAME_BYTES_MAX: usize = 255;

/// What a reply says (RFC 1928, section 6).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    Refused = 5,
    Expired = 6,
    NoSuchCommand = 7,
    NoSuchAddress = 8,
}

/// The reply with this code. Our address on the connection to the server, which it should have, is
/// nobody's business.
pub(super) fn reply(code: Code) -> [u8; 10] {
    [VERSION, code as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// The answer to a login.
pub(super) fn login_reply(is_taken: bool) -> [u8; 2] {
    [LOGIN_VERSION, u8::from(!is_taken)]
}

/// What is wrong with a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    #[error("a message of SOCKS5 has another version")]
    Version,
    #[error("no method to log in that this proxy knows")]
    NoMethods,
    #[error("a login without a name")]
    NoName,
    #[error("a login whose name has a colon, which Basic cannot carry")]
    ColonInName,
    #[error("an address of an unknown kind")]
    AddressKind,
    #[error("a host name with characters that no host name has")]
    Name,
    #[error("no port")]
    Port,
}

/// A message and its length; `None`: some of it is missing.
type Read<T> = Result<Option<(T, usize)>, WireError>;

/// The methods of the greeting.
pub(super) fn greeting(input: &[u8]) -> Read<&[u8]> {
    let Some((&version, rest)) = input.split_first() else { return Ok(None) };
    if version != VERSION {
        return Err(WireError::Version);
    }
    let Some((methods, used)) = counted(rest) else { return Ok(None) };
    match methods {
        [] => Err(WireError::NoMethods),
        methods => Ok(Some((methods, 1 + used))),
    }
}

/// A user name and a password.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Login<'i> {
    pub(super) name: &'i [u8],
    pub(super) password: &'i [u8],
}

/// The login.
pub(super) fn login(input: &[u8]) -> Read<Login<'_>> {
    let Some((&version, rest)) = input.split_first() else { return Ok(None) };
    if version != LOGIN_VERSION {
        return Err(WireError::Version);
    }
    let Some((name, name_used)) = counted(rest) else { return Ok(None) };
    if name.is_empty() {
        return Err(WireError::NoName);
    }
    // It would be another user, with another password.
    if name.contains(&b':') {
        return Err(WireError::ColonInName);
    }
    let rest = rest.get(name_used..).unwrap_or_default();
    let Some((password, password_used)) = counted(rest) else { return Ok(None) };
    Ok(Some((Login { name, password }, 1 + name_used + password_used)))
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) command: u8,
    /// Host and port, as in a request of HTTP.
    pub(super) place: String,
}

/// The request.
pub(super) fn request(input: &[u8]) -> Read<Asked> {
    let Some((&version, rest)) = input.split_first() else { return Ok(None) };
    if version != VERSION {
        return Err(WireError::Version);
    }
    let [command, _reserved, kind, address @ ..] = rest else { return Ok(None) };
    let Some((host, used)) = host(*kind, address)? else { return Ok(None) };
    let Some(&[high, low]) = address.get(used..used + 2) else { return Ok(None) };
    let port = u16::from_be_bytes([high, low]);
    if port == 0 && *command == CONNECT {
        return Err(WireError::Port);
    }
    let asked = Asked { command: *command, place: format!("{host}:{port}") };
    Ok(Some((asked, 4 + used + 2)))
}

/// Commands.
pub(super) const CONNECT: u8 = 1;
const BIND: u8 = 2;
const UDP_ASSOCIATE: u8 = 3;

/// The name of a command for the log.
pub(super) fn command_name(command: u8) -> &'static str {
    match command {
        CONNECT => "CONNECT",
        BIND => "BIND",
        UDP_ASSOCIATE => "UDP_ASSOCIATE",
        _ => "",
    }
}

/// The host as a URL has it, and the length of its address.
fn host(kind: u8, address: &[u8]) -> Read<String> {
    match kind {
        1 => Ok(address.first_chunk::<4>().map(|ip| (IpAddr::from(*ip).to_string(), 4))),
        3 => {
            let Some((name, used)) = counted(address) else { return Ok(None) };
            Ok(Some((host_name(name)?, used)))
        }
        4 => {
            let ip = address.first_chunk::<16>();
            Ok(ip.map(|ip| (format!("[{}]", Ipv6Addr::from(*ip)), 16)))
        }
        _ => Err(WireError::AddressKind),
    }
}

/// A host name; also an address, which some clients send as one.
fn host_name(name: &[u8]) -> Result<String, WireError> {
    let text = std::str::from_utf8(name).map_err(|_| WireError::Name)?;
    if let Ok(ip) = text.parse::<Ipv6Addr>() {
        return Ok(format!("[{ip}]"));
    }
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.iter().copied().all(is_part);
    if is_name { Ok(text.to_owned()) } else { Err(WireError::Name) }
}

/// Bytes behind a byte that has their number, and the length of both.
fn counted(input: &[u8]) -> Option<(&[u8], usize)> {
    let (&count, rest) = input.split_first()?;
    Some((rest.get(..count.into())?, 1 + usize::from(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No beginning of a message is taken for the message, and what follows is not read.
    fn whole<T: PartialEq + std::fmt::Debug>(
        read: for<'i> fn(&'i [u8]) -> Read<T>,
        message: &[u8],
    ) -> Result<T, WireError> {
        let Some((value, used)) = read(message)? else { panic!("not whole: {message:?}") };
        assert_eq!(used, message.len());
        for end in 0..message.len() {
            assert_eq!(read(&message[..end]), Ok(None), "{message:?} up to {end}");
        }
        let more = [message, b"\x05more"].concat();
        assert_eq!(read(&more).map(|read| read.map(|(_, used)| used)), Ok(Some(message.len())));
        Ok(value)
    }

    fn asked(message: &[u8]) -> Result<(u8, String), WireError> {
        whole(request, message).map(|asked| (asked.command, asked.place))
    }

    #[test]
    fn a_request_names_its_place_as_one_of_http() {
        let place = |message: &[u8]| asked(message).map(|(_, place)| place);
        assert_eq!(place(b"\x05\x01\0\x01\x7f\0\0\x01\x01\xbb").as_deref(), Ok("127.0.0.1:443"));
        assert_eq!(place(b"\x05\x01\0\x03\x05a.org\0\x50").as_deref(), Ok("a.org:80"));
        let v6 = [&b"\x05\x01\0\x04"[..], &Ipv6Addr::LOCALHOST.octets(), b"\x01\xbb"].concat();
        assert_eq!(place(&v6).as_deref(), Ok("[::1]:443"));
        assert_eq!(place(b"\x05\x01\0\x03\x03::1\0\x50").as_deref(), Ok("[::1]:80"));
        assert_eq!(asked(b"\x05\x02\0\x01\0\0\0\0\0\0"), Ok((BIND, "0.0.0.0:0".to_owned())));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for (message, error) in [
            (&b"\x04\x01\0\x01\x7f\0\0\x01\0\x50"[..], WireError::Version),
            (b"\x05\x01\0\x02\x7f\0\0\x01\0\x50", WireError::AddressKind),
            (b"\x05\x01\0\x01\x7f\0\0\x01\0\0", WireError::Port),
            (b"\x05\x01\0\x03\0\0\x50", WireError::Name),
            (b"\x05\x01\0\x03\x03a b\0\x50", WireError::Name),
            (b"\x05\x01\0\x03\x03a\r\n\0\x50", WireError::Name),
            (b"\x05\x01\0\x03\x03a:1\0\x50", WireError::Name),
            (b"\x05\x01\0\x03\x03a@b\0\x50", WireError::Name),
            (b"\x05\x01\0\x03\x03a/b\0\x50", WireError::Name),
            (b"\x05\x01\0\x03\x02\xc3\xa9\0\x50", WireError::Name),
        ] {
            assert_eq!(request(message), Err(error), "{message:?}");
        }
    }

    #[test]
    fn a_greeting_has_methods_and_a_login_a_name() {
        let methods =
            whole(|input| Ok(greeting(input)?.map(|(m, u)| (m.to_vec(), u))), b"\x05\x02\0\x02");
        assert_eq!(methods, Ok(vec![0, 2]));
        assert_eq!(greeting(b"\x05\0"), Err(WireError::NoMethods));
        assert_eq!(greeting(b"GET"), Err(WireError::Version));
        let (found, used) = login(b"\x01\x04anna\x06secret").unwrap().unwrap();
        assert_eq!((found.name, found.password, used), (&b"anna"[..], &b"secret"[..], 13));
        assert_eq!(login(b"\x01\x04anna\x06secre"), Ok(None));
        assert_eq!(login(b"\x01\0\0"), Err(WireError::NoName));
        assert_eq!(login(b"\x01\x03a:b\x01c"), Err(WireError::ColonInName));
        assert_eq!(login(b"\x05\x01a\x01b"), Err(WireError::Version));
    }

    #[test]
    fn replies_are_those_of_the_standard() {
        assert_eq!(reply(Code::Succeeded), *b"\x05\0\0\x01\0\0\0\0\0\0");
        assert_eq!(reply(Code::NoSuchAddress)[1], 8);
        assert_eq!((login_reply(true), login_reply(false)), ([1, 0], [1, 1]));
    }
}
