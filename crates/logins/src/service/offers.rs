//! The schemes that clients are offered, and the fields that ask them for a login.

use humboldt_base::clock::UnixMillis;
use humboldt_conf::{AuthScheme, HandshakeAuth};

use super::Logins;
use crate::user::Checked;
use crate::{basic, digest, handshake};

impl Logins {
    /// The schemes that clients are offered by this list of `auth_schemes`, of which `None` stands
    /// for all; without one, all.
    pub fn offered(&self, list: Option<&[Option<AuthScheme>]>) -> Vec<AuthScheme> {
        let mut offered = Vec::with_capacity(self.schemes.len());
        for one in list.unwrap_or(&[None]) {
            let named = one.as_ref().map_or(&self.schemes[..], std::slice::from_ref);
            for scheme in named {
                if self.schemes.contains(scheme) && !offered.contains(scheme) {
                    offered.push(*scheme);
                }
            }
        }
        offered
    }

    /// The value of the field that asks a client for a login with a scheme.
    pub fn challenge(
        &self,
        scheme: AuthScheme,
        login: Option<&Checked>,
        now: UnixMillis,
    ) -> Option<String> {
        match scheme {
            AuthScheme::Basic => self.basic.as_ref().map(basic::challenge),
            AuthScheme::Digest => {
                let is_stale = matches!(login, Some(Checked::Missing { is_stale: true, .. }));
                let (digest, users) = self.digest.as_ref().zip(self.state().digest.as_ref())?;
                let nonce = users.nonces.make(now.0);
                Some(digest::challenge(&digest.realm, &nonce, is_stale))
            }
            AuthScheme::Negotiate | AuthScheme::Ntlm => {
                let token = match login {
                    Some(Checked::Missing { handshake: Some(of_client), .. }) => {
                        of_client.token_of(scheme)
                    }
                    _ => None,
                };
                self.handshake(scheme).map(|_| handshake::challenge(scheme, token))
            }
        }
    }

    /// Whether the connection ends behind the answer that first offers this scheme (`keep_alive
    /// off`).
    pub fn closes(&self, scheme: AuthScheme) -> bool {
        self.handshake(scheme).is_some_and(|auth: &HandshakeAuth| !auth.keep_alive)
    }
}
