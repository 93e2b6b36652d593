//! The login of a client's connection, with the schemes that log connections in.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;

use humboldt_conf::AuthScheme;
use humboldt_helpers::Reservation;

use crate::remembered::Fingerprint;
use crate::user::User;

/// The login of one connection of a client. It is never that of another connection, and ends with
/// this one at the latest.
#[derive(Default)]
pub struct ConnectionLogin {
    state: RefCell<State>,
    is_over: Cell<bool>,
}

#[derive(Default)]
enum State {
    #[default]
    Nobody,
    Begun(Box<Begun>),
    User(Box<Known>),
}

/// A handshake that the client has to go on with.
struct Begun {
    of: Of,
    /// The process that leads it.
    reservation: Reservation,
    /// The client has got the last word of the process.
    is_told: bool,
}

/// A user who has logged in.
struct Known {
    of: Of,
    /// What the client has sent last: the same once more is no other login.
    credentials: Fingerprint,
    user: Arc<User>,
}

/// What must not change while a login lasts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Of {
    /// The scheme.
    pub(crate) scheme: AuthScheme,
    /// The way in which logins are checked: after a reconfiguration it may be another one.
    pub(crate) way: u64,
    /// The client behind proxies before this one, which may send requests of several.
    pub(crate) client: IpAddr,
}

impl ConnectionLogin {
    /// The user, for a request without credentials.
    pub(crate) fn user(&self, way: u64, client: IpAddr) -> Option<Arc<User>> {
        match &*self.state.borrow() {
            State::User(known) if (known.of.way, known.of.client) == (way, client) => {
                Some(Arc::clone(&known.user))
            }
            _ => None,
        }
    }

    /// The user, if it has logged in with just these credentials.
    pub(crate) fn user_with(&self, of: Of, credentials: Fingerprint) -> Option<Arc<User>> {
        match &*self.state.borrow() {
            State::User(known) if (known.of, known.credentials) == (of, credentials) => {
                Some(Arc::clone(&known.user))
            }
            _ => None,
        }
    }

    /// Takes the process that leads the handshake, if there is one of this kind. Nobody is logged
    /// in from here on.
    pub(crate) fn take(&self, of: Of) -> Option<Reservation> {
        match self.state.take() {
            State::Begun(begun) if begun.of == of => Some(begun.reservation),
            _ => None,
        }
    }

    /// The process has said something that the client has to answer.
    pub(crate) fn begin(&self, of: Of, reservation: Reservation) {
        self.set(State::Begun(Box::new(Begun { of, reservation, is_told: false })));
    }

    /// The user has logged in.
    pub(crate) fn log_in(&self, of: Of, credentials: Fingerprint, user: Arc<User>) {
        self.set(State::User(Box::new(Known { of, credentials, user })));
    }

    fn set(&self, state: State) {
        // A request may outlive its connection, where it goes on in the background.
        if !self.is_over.get() {
            self.state.replace(state);
        }
    }

    /// The client gets the last word of the process: the handshake goes on with its next request.
    pub fn tell(&self) {
        if let State::Begun(begun) = &mut *self.state.borrow_mut() {
            begun.is_told = true;
        }
    }

    /// Nobody is logged in. A process that led a handshake is free for others.
    pub fn forget(&self) {
        self.state.take();
    }

    /// No further step of a handshake can come. A process that led one is free for others.
    pub fn end_handshake(&self) {
        if matches!(&*self.state.borrow(), State::Begun(_)) {
            self.forget();
        }
    }

    /// A request has been answered. A handshake cannot go on if the client has not got the last
    /// word of the process, because no rule has asked it for a login.
    pub fn end_request(&self) {
        let is_stuck = matches!(&*self.state.borrow(), State::Begun(begun) if !begun.is_told);
        if is_stuck {
            self.forget();
        }
    }

    /// The connection has ended, and every login on it.
    pub fn end(&self) {
        self.is_over.set(true);
        self.forget();
    }
}

impl std::fmt::Debug for ConnectionLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &*self.state.borrow() {
            State::Nobody => "nobody",
            State::Begun(_) => "a handshake",
            State::User(_) => "a user",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remembered::Remembered;
    use crate::user::Told;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const OF: Of = Of { scheme: AuthScheme::Ntlm, way: 1, client: CLIENT };

    #[test]
    fn a_user_is_one_for_the_same_client_and_way_only() {
        let (connection, hashes) = (ConnectionLogin::default(), Remembered::default());
        let (mine, other) = (hashes.fingerprint(&[b"a"]), hashes.fingerprint(&[b"b"]));
        assert!(connection.user(1, CLIENT).is_none());
        connection.log_in(OF, mine, Arc::new(User::new("anna", Told::default())));
        assert!(connection.user(1, CLIENT).is_some_and(|user| user.name() == "anna"));
        assert!(connection.user(2, CLIENT).is_none());
        assert!(connection.user(1, [127, 0, 0, 2].into()).is_none());
        assert!(connection.user_with(OF, mine).is_some());
        assert!(connection.user_with(OF, other).is_none());
        let negotiate = Of { scheme: AuthScheme::Negotiate, ..OF };
        assert!(connection.user_with(negotiate, mine).is_none());
        connection.end_request();
        assert!(connection.user(1, CLIENT).is_some());
        assert!(connection.take(OF).is_none(), "no handshake");
        assert!(connection.user(1, CLIENT).is_none(), "another login has begun");
    }

    #[test]
    fn nobody_logs_in_on_a_connection_that_has_ended() {
        let (connection, hashes) = (ConnectionLogin::default(), Remembered::default());
        let of = hashes.fingerprint(&[b"a"]);
        let user = || Arc::new(User::new("anna", Told::default()));
        connection.log_in(OF, of, user());
        connection.end();
        assert!(connection.user(1, CLIENT).is_none());
        connection.log_in(OF, of, user());
        assert!(connection.user(1, CLIENT).is_none());
    }
}
