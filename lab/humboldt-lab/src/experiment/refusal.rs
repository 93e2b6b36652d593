//! A subject that answers no request as it should, from the beginning.

use humboldt_lab_record::{FaultKind, Sample};

/// After this many requests without a right answer the run ends.
const REFUSED_MIN: u64 = 100;

/// The words about a subject that gives no right answer: its own answer, and the remedy.
pub(super) fn of(samples: &[Sample]) -> Option<String> {
    let telling: Vec<&Sample> = samples.iter().filter(|sample| tells(sample)).collect();
    let faults: u64 = telling.iter().map(|sample| sample.tally.faults_total()).sum();
    if telling.len() < 2
        || faults < REFUSED_MIN
        || samples.iter().any(|sample| sample.tally.answers() > 0)
    {
        return None;
    }
    let first = telling.iter().find_map(|sample| sample.tally.fault_samples.first())?;
    let (kind, got) = (first.fault.kind, first.fault.got.as_str());
    Some(format!(
        "the subject gives no right answer: {faults} requests, the first: {kind}: {got} for {}{}",
        first.url,
        advice(kind, got)
    ))
}

/// Whether the sample tells something about the subject. Where others had the processors, answers
/// may be missing for that; a refusal that came is the subject's own.
fn tells(sample: &Sample) -> bool {
    let is_refusal = |kind: &FaultKind| *kind == FaultKind::WrongStatus;
    let faults = &sample.tally.faults;
    !sample.is_spoiled() || (!faults.is_empty() && faults.keys().all(is_refusal))
}

/// The remedy, where one is known.
fn advice(kind: FaultKind, got: &str) -> &'static str {
    let is_status = |status: &str| kind == FaultKind::WrongStatus && got.starts_with(status);
    if is_status("403") {
        "; its rules deny the laboratory: allow 127.0.0.1 (http_access in a squid.conf)"
    } else if is_status("407") || is_status("401") {
        "; it demands credentials: allow 127.0.0.1 without"
    } else if is_status("502") || is_status("503") || is_status("504") {
        "; it does not reach the laboratory's servers: allow it to connect to their addresses"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::{Fault, FaultSample, Tally};

    fn sample(faults: u32, answers: u64) -> Sample {
        let mut tally = Tally::default();
        for _ in 0..faults {
            let kind = FaultKind::WrongStatus;
            let got = "403 ERR_ACCESS_DENIED 0".to_owned();
            let fault = Fault { kind, offset: None, expected: "200".to_owned(), got };
            tally.add_fault(FaultSample { at_us: 0, url: "http://a/1".to_owned(), fault });
        }
        (0..answers).for_each(|_| tally.hits.add(1, 1, 1));
        Sample { tally, ..Sample::default() }
    }

    #[test]
    fn a_subject_that_denies_everything_is_not_measured() {
        let text = of(&[sample(60, 0), sample(60, 0)]).expect("a refusal");
        assert!(text.contains("120 requests") && text.contains("403 ERR_ACCESS_DENIED"), "{text}");
        assert!(text.contains("http_access"), "{text}");
        assert_eq!(of(&[sample(99, 0)]), None);
        assert_eq!(of(&[sample(120, 1), sample(120, 0)]), None);
        assert_eq!(of(&[sample(120, 0)]), None, "it may have been a bad moment");
    }

    #[test]
    fn a_refusal_is_one_on_a_busy_machine_too_and_a_missing_answer_is_none() {
        let spoiled = |mut sample: Sample| {
            sample.lab_limited = Some("other processes were busy".to_owned());
            sample
        };
        let refused = || spoiled(sample(60, 0));
        assert!(of(&[refused(), refused()]).is_some());
        let mut late = refused();
        late.tally.faults = [(FaultKind::TimedOut, 60)].into();
        assert_eq!(of(&[late.clone(), late.clone()]), None);
        assert!(of(&[late, sample(60, 0), sample(60, 0)]).is_some(), "the others tell it");
    }
}
