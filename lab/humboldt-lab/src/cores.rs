//! Which processors the laboratory and the subject may use.

use crate::Failure;

/// Processors that this process may run on.
pub(crate) fn allowed() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// The division of processors: the subject gets the lower half, the laboratory the upper half,
/// unless the options say otherwise. With one processor both use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) subject: Vec<usize>,
    pub(crate) lab: Vec<usize>,
}

impl Shares {
    /// Divides the processors.
    pub(crate) fn new(subject: Option<&[usize]>, lab: Option<&[usize]>) -> Result<Self, Failure> {
        Self::of(&allowed(), subject, lab)
    }

    /// The processors that matter to a run.
    pub(crate) fn all(&self) -> Vec<usize> {
        let mut all = [self.subject.as_slice(), self.lab.as_slice()].concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn of(
        allowed: &[usize],
        subject: Option<&[usize]>,
        lab: Option<&[usize]>,
    ) -> Result<Self, Failure> {
        for core in subject.into_iter().chain(lab).flatten() {
            if !allowed.contains(core) {
                return Err(Failure::usage(format!(
                    "processor {core} is not one that this process may use: {allowed:?}"
                )));
            }
        }
        let (lower, upper) = allowed.split_at(allowed.len() / 2);
        let lower = if lower.is_empty() { upper } else { lower };
        let without = |taken: Option<&[usize]>, fallback: &[usize]| match taken {
            None => fallback.to_vec(),
            Some(taken) => {
                let rest: Vec<usize> =
                    allowed.iter().copied().filter(|core| !taken.contains(core)).collect();
                if rest.is_empty() { allowed.to_vec() } else { rest }
            }
        };
        Ok(Self {
            subject: subject.map_or_else(|| without(lab, lower), <[usize]>::to_vec),
            lab: lab.map_or_else(|| without(subject, upper), <[usize]>::to_vec),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_shared_out() {
        let share = |allowed: &[usize], subject: Option<&[usize]>, lab: Option<&[usize]>| {
            let shares = Shares::of(allowed, subject, lab).unwrap();
            (shares.subject, shares.lab)
        };
        assert_eq!(share(&[0, 1], None, None), (vec![0], vec![1]));
        assert_eq!(share(&[3], None, None), (vec![3], vec![3]));
        assert_eq!(share(&[0, 1, 2, 3], Some(&[0, 1, 2]), None), (vec![0, 1, 2], vec![3]));
        assert_eq!(share(&[0, 1, 2, 3], None, Some(&[0])), (vec![1, 2, 3], vec![0]));
        assert!(Shares::of(&[0, 1], Some(&[7]), None).is_err());
    }
}
