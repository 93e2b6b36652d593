//! Checks of the proofs that clients send with Digest.

use humboldt_base::clock::UnixMillis;
use humboldt_conf::DigestAuth;
use humboldt_helpers::Helper;

use super::{Login, Logins, missing, shown};
use crate::checker::QueueFull;
use crate::digest::Proof;
use crate::digest_users::{self, DigestUsers, Found};
use crate::failure::Failure;
use crate::user::{Checked, Told};

impl Logins {
    /// The login of a proof, if the secret is remembered, or no secret helps.
    pub(super) fn digest_remembered(
        &self,
        digest: &DigestAuth,
        users: &DigestUsers,
        value: &[u8],
        login: Login<'_>,
        now: UnixMillis,
    ) -> Option<Checked> {
        let Some(proof) = Proof::read(value, &digest.realm) else {
            return Some(Checked::nobody());
        };
        // Of an earlier process, perhaps.
        let Some(nonce) = users.nonces.read(&proof.nonce) else { return Some(stale(&proof)) };
        let lifetimes = digest_users::lifetimes(digest, self.authenticate_ttl);
        let user =
            users.known(&proof, methods(digest, &[login.method, b"GET"]), now.0, lifetimes)?;
        Some(match users.nonces.take(nonce, proof.count, now.0, digest) {
            true => self.logged_in(user, login.client, now),
            false => stale(&proof),
        })
    }

    pub(super) async fn check_digest(
        &self,
        digest: &DigestAuth,
        users: &DigestUsers,
        value: &[u8],
        login: Login<'_>,
        helper: Option<&Helper>,
    ) -> Result<Checked, Failure> {
        let Some(proof) = Proof::read(value, &digest.realm) else {
            return Ok(Checked::nobody());
        };
        let Some(nonce) = users.nonces.read(&proof.nonce) else { return Ok(stale(&proof)) };
        let of = self.state().remembered.fingerprint(&[b"digest", &proof.user]);
        let found = users.look_up(&proof.user, &digest.realm, of, helper).await;
        let (secret, told) = match found.map_err(|QueueFull| Failure::Busy)? {
            Found::Secret(secret, told) => (secret, told),
            Found::Nobody(told) => return Ok(wrong(&proof, told)),
            Found::Unknown => return Err(Failure::NoAnswer),
        };
        let own = [login.method, b"GET"];
        if !methods(digest, &own).iter().any(|method| proof.proves(&secret, method)) {
            return Ok(wrong(&proof, told));
        }
        let now = UnixMillis::now();
        let lifetimes = digest_users::lifetimes(digest, self.authenticate_ttl);
        let user = users.insert(&proof, secret, told, now.0, lifetimes);
        Ok(match users.nonces.take(nonce, proof.count, now.0, digest) {
            true => self.logged_in(user, login.client, now),
            false => stale(&proof),
        })
    }
}

/// The methods for which a proof may be: with `post_workaround` GET too.
fn methods<'a>(digest: &DigestAuth, own: &'a [&'a [u8]; 2]) -> &'a [&'a [u8]] {
    match digest.post_workaround {
        true => own,
        false => &own[..1],
    }
}

fn stale(proof: &Proof<'_>) -> Checked {
    missing(shown(&proof.user), Told::default(), true)
}

fn wrong(proof: &Proof<'_>, told: Told) -> Checked {
    missing(shown(&proof.user), told, false)
}
