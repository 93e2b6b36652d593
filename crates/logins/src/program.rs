//! Checks by a helper program, with Squid's protocol of Basic authenticators: a line with name and
//! password, and a line with the result.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Context;

use hashbrown::HashMap;
use humboldt_helpers::{Helper, NoAnswer, Outcome, Reply};
use humboldt_runtime::mailbox;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use crate::basic::Credentials;
use crate::remembered::Fingerprint;
use crate::user::Told;

/// The answer of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The password is the user's.
    Right(Told),
    /// It is not.
    Wrong(Told),
    /// There is no answer.
    Unknown,
}

/// Questions to a program. Those about the same at one time are asked once.
pub(crate) struct Program<A> {
    asked: Mutex<HashMap<Fingerprint, Vec<oneshot::Sender<A>>>>,
}

impl<A> Default for Program<A> {
    fn default() -> Self {
        Self { asked: Mutex::default() }
    }
}

/// A question under way. If its asker leaves, one of those that wait with it asks again.
struct Asked<'a, A> {
    program: &'a Program<A>,
    of: Fingerprint,
}

impl<A> Drop for Asked<'_, A> {
    fn drop(&mut self) {
        self.program.asked.lock().remove(&self.of);
    }
}

impl<A: Clone> Program<A> {
    /// Asks the program with this line.
    pub(crate) async fn check(
        &self,
        helper: &Helper,
        of: Fingerprint,
        line: &[u8],
        read: fn(Result<Reply, NoAnswer>) -> A,
    ) -> A {
        loop {
            let mut told = match self.join(of) {
                Ok(question) => {
                    let answer = read(helper.ask(line).await);
                    self.tell(question, &answer);
                    return answer;
                }
                Err(told) => told,
            };
            let answer = poll_fn(|context| {
                let waker = mailbox::waker(context);
                Pin::new(&mut told).poll(&mut Context::from_waker(&waker))
            });
            // Without an answer the one who has asked is gone.
            if let Ok(answer) = answer.await {
                return answer;
            }
        }
    }

    /// The right to ask, or the answer to the question that is under way.
    fn join(&self, of: Fingerprint) -> Result<Asked<'_, A>, oneshot::Receiver<A>> {
        let mut asked = self.asked.lock();
        let Some(waiting) = asked.get_mut(&of) else {
            asked.insert(of, Vec::new());
            return Ok(Asked { program: self, of });
        };
        let (sender, told) = oneshot::channel();
        waiting.retain(|other| !other.is_closed());
        waiting.push(sender);
        Err(told)
    }

    /// Tells the answer to those that wait for it.
    fn tell(&self, question: Asked<'_, A>, answer: &A) {
        let waiting = self.asked.lock().remove(&question.of).unwrap_or_default();
        // From here on the entry would be that of another question.
        std::mem::forget(question);
        for one in waiting {
            // Nobody there any more: somebody else may be.
            let _ = one.send(answer.clone());
        }
    }
}

/// Name and password, percent-encoded as in Squid, with `extras` at the end.
pub(crate) fn line(credentials: &Credentials, extras: &[u8]) -> Zeroizing<Vec<u8>> {
    let lengths = credentials.user.len() + credentials.password.len();
    // Enough, so that no copy of the password stays where the line was before it grew.
    let mut line = Zeroizing::new(Vec::with_capacity(3 * lengths + 2 + extras.len()));
    write_encoded(&credentials.user, &mut line);
    line.push(b' ');
    write_encoded(&credentials.password, &mut line);
    if !extras.is_empty() {
        line.push(b' ');
        line.extend_from_slice(extras);
    }
    line
}

fn write_encoded(text: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text {
        match byte {
            0..=b' '
            | 0x7f..
            | b'<'
            | b'>'
            | b'"'
            | b'#'
            | b'%'
            | b'{'
            | b'}'
            | b'|'
            | b'\\'
            | b'^'
            | b'~'
            | b'['
            | b']'
            | b'`'
            | b'\'' => out.extend_from_slice(&[
                b'%',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]),
            plain => out.push(*plain),
        }
    }
}

pub(crate) fn read(reply: Result<Reply, NoAnswer>) -> Answer {
    match reply {
        Ok(reply) => match reply.outcome {
            Outcome::Ok => Answer::Right(Told::new(reply.pairs)),
            // As in Squid, everything else is a no: `basic_ldap_auth` says `BH` of wrong passwords.
            Outcome::Err | Outcome::Broken | Outcome::Challenge | Outcome::Unknown => {
                Answer::Wrong(Told::new(reply.pairs))
            }
        },
        Err(why) => {
            tracing::debug!("a login could not be checked: {why}");
            Answer::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_encoding_of_squid() {
        let credentials = |user: &[u8], password: &[u8]| Credentials {
            user: user.to_vec(),
            password: Zeroizing::new(password.to_vec()),
        };
        // What Squid 5.7 sends for these.
        let odd = line(&credentials(b"ok~", b"p~ {\"a}%"), b"127.0.0.1 GET");
        assert_eq!(odd.as_slice(), b"ok%7E p%7E%20%7B%22a%7D%25 127.0.0.1 GET");
        let plain = line(&credentials(b"anna", b"a:b@c/d?e=f&g+h!*()$,;"), b"");
        assert_eq!(plain.as_slice(), b"anna a:b@c/d?e=f&g+h!*()$,;");
        let latin = line(&credentials(b"j\xf6rg", b"\x7f\x01"), b"");
        assert_eq!(latin.as_slice(), b"j%F6rg %7F%01");
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        let read = |line: &[u8]| read(Ok(Reply::parse(line)));
        let told = Told::new(vec![("group".into(), b"staff".as_slice().into())]);
        assert_eq!(read(b"OK group=staff password=x"), Answer::Right(told.clone()));
        assert_eq!(read(b"ERR group=staff"), Answer::Wrong(told));
        assert_eq!(read(b""), Answer::Wrong(Told::default()));
        for unclear in [&b"BH message=broken"[..], b"TT x", b"yes", b"OKAY", b"ok"] {
            assert!(matches!(read(unclear), Answer::Wrong(_)));
        }
        assert_eq!(super::read(Err(NoAnswer::TimedOut)), Answer::Unknown);
    }

    #[test]
    fn who_waits_with_a_question_asks_again_if_its_asker_leaves() {
        let program = Program::<Answer>::default();
        let of = crate::remembered::Remembered::default().fingerprint(&[b"x"]);
        let first = program.join(of).unwrap_or_else(|_| panic!("nobody has asked"));
        let mut second = program.join(of).err().expect("it is under way");
        assert!(second.try_recv().is_err());
        drop(first);
        assert_eq!(second.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert!(program.join(of).is_ok());
    }
}
