//! Makes a case with a difference smaller, as long as the difference stays.

use crate::known;
use crate::programs::compare;
use crate::requests::{Case, Verdict};
use crate::sets::RuleSet;

/// Most candidates of one round; each has a port of its own, and Squid has at most 128.
const CANDIDATES_MAX: usize = 100;

/// Most rounds.
const ROUNDS_MAX: usize = 40;

/// The smallest set and request found that still give these verdicts; `None` if the difference did
/// not come again.
pub(crate) fn minimise(
    set: &RuleSet,
    case: &Case,
    verdicts: &(Verdict, Verdict),
) -> Option<(RuleSet, Case)> {
    let mut smallest = (set.clone(), case.clone());
    let again = compare(&[(set.clone(), vec![case.clone()])]);
    known::difference(set, case, &again[0][0]).then_some(())?;
    for _ in 0..ROUNDS_MAX {
        let (set, case) = &smallest;
        let sets = set.smaller().into_iter().map(|set| (set, vec![case.clone()]));
        let cases = case.smaller().into_iter().map(|case| (set.clone(), vec![case]));
        let candidates: Vec<_> = sets.chain(cases).take(CANDIDATES_MAX).collect();
        if candidates.is_empty() {
            break;
        }
        let is_it = |(found, (set, cases)): &(Vec<_>, (RuleSet, Vec<Case>))| {
            known::difference(set, &cases[0], &found[0]) && found[0] == *verdicts
        };
        let found = compare(&candidates).into_iter().zip(candidates).filter(is_it);
        let length = |set: &RuleSet, case: &Case| set.text(0, 0).len() + format!("{case:?}").len();
        let found = found.map(|(_, (set, mut cases))| (set, cases.remove(0)));
        let Some(found) = found.min_by_key(|(set, case)| length(set, case)) else { break };
        if length(&found.0, &found.1) >= length(&smallest.0, &smallest.1) {
            break;
        }
        smallest = found;
    }
    Some(smallest)
}
