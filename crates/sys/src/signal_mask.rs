//! Holding back the signals that control the program until it can obey them.

use std::mem::MaybeUninit;

/// SIGHUP, SIGUSR1, SIGUSR2, SIGTERM, SIGINT.
const CONTROL: [libc::c_int; 5] =
    [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGTERM, libc::SIGINT];

/// From now on the control signals wait, for this thread and those it starts.
pub fn block_control_signals() {
    change(libc::SIG_BLOCK);
}

/// Delivers the control signals that wait, and those to come, to this thread.
pub fn unblock_control_signals() {
    change(libc::SIG_UNBLOCK);
}

/// From now on no signal is delivered to this thread, nor to those it starts: for threads that only
/// work.
#[allow(unsafe_code)]
pub fn block_all_signals() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` initialises the whole set, which lives until the end of the function;
    // the old mask is not asked for.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Does `work` with a mask of this thread that blocks no signal, and restores the mask afterwards.
/// A process that is started meanwhile inherits the empty mask.
#[allow(unsafe_code)]
pub fn with_none_blocked<T>(work: impl FnOnce() -> T) -> T {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the whole set; both sets live until the end of the
    // function, and the call, which cannot fail with a valid `how`, writes the present mask into
    // `before`.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), before.as_mut_ptr());
    }
    let result = work();
    // SAFETY: the first call has written the whole of `before`; the present mask is not asked for.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    result
}

#[allow(unsafe_code)]
fn change(how: libc::c_int) {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the whole set, which lives until the end of the function;
    // the signal numbers and `how` are valid, so none of the calls can fail; the old mask is not
    // asked for.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in CONTROL {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(how, set.as_ptr(), std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(unsafe_code)]
    fn is_blocked(signal: libc::c_int) -> bool {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: without a new mask the call only writes the present one into `set`, which
        // `sigismember` then reads.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set.as_mut_ptr());
            libc::sigismember(set.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn signals_are_held_back_and_let_through_again() {
        std::thread::spawn(|| {
            block_control_signals();
            assert!(CONTROL.into_iter().all(is_blocked) && !is_blocked(libc::SIGCHLD));
            unblock_control_signals();
            assert!(!CONTROL.into_iter().any(is_blocked));
            block_all_signals();
            assert!(CONTROL.into_iter().all(is_blocked) && is_blocked(libc::SIGCHLD));
            with_none_blocked(|| assert!(!CONTROL.into_iter().any(is_blocked)));
            assert!(CONTROL.into_iter().all(is_blocked), "as before");
        })
        .join()
        .expect("joined");
    }
}
