//! Spreads URLs or clients over several parents by the Cache Array Routing Protocol. The numbers
//! are Squid's, so that proxies with the same parents agree.

/// Spreads bits over the word.
const MIX: u32 = 0x6253_1965;

/// The parents of one group, with the values that decide between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hashing {
    members: Vec<Member>,
}

#[derive(Clone, Debug, PartialEq)]
struct Member {
    /// The caller's index of the parent.
    index: usize,
    hash: u32,
    /// Factor that makes the shares proportional to the weights.
    multiplier: f64,
}

impl Hashing {
    /// A group of parents: index, name and weight of each.
    pub(crate) fn new<'a>(parents: impl Iterator<Item = (usize, &'a str, u32)>) -> Self {
        let mut parents: Vec<_> = parents.collect();
        parents.sort_by_key(|(_, _, weight)| *weight);
        let total: f64 = parents.iter().map(|(_, _, weight)| f64::from(*weight)).sum();
        let (mut product, mut last_share, mut last_multiplier) = (1.0_f64, 0.0, 0.0_f64);
        let mut members = Vec::with_capacity(parents.len());
        for (k, (index, name, weight)) in parents.iter().enumerate() {
            let left = (parents.len() - k) as f64;
            let share = f64::from(*weight) / total;
            let sum = left * (share - last_share) / product + last_multiplier.powf(left);
            let multiplier = sum.powf(1.0 / left);
            product *= multiplier;
            (last_share, last_multiplier) = (share, multiplier);
            members.push(Member {
                index: *index,
                hash: mixed(hash_of(name.as_bytes())),
                multiplier,
            });
        }
        Self { members }
    }

    /// The parents for this text, best first.
    pub(crate) fn order(&self, text: &[u8]) -> Vec<usize> {
        let key = hash_of(text);
        let score = |member: &Member| f64::from(mixed(key ^ member.hash)) * member.multiplier;
        let mut scored: Vec<_> =
            self.members.iter().map(|member| (score(member), member.index)).collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        scored.into_iter().map(|(_, index)| index).collect()
    }
}

fn hash_of(text: &[u8]) -> u32 {
    text.iter().fold(0_u32, |hash, &byte| {
        hash.wrapping_add(hash.rotate_left(19).wrapping_add(u32::from(byte)))
    })
}

fn mixed(hash: u32) -> u32 {
    hash.wrapping_add(hash.wrapping_mul(MIX)).rotate_left(21)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(weights: [u32; 3]) -> Hashing {
        let names = ["one.example", "two.example", "three.example"];
        let parents = names.iter().zip(weights).enumerate();
        Hashing::new(parents.map(|(index, (name, weight))| (index, *name, weight)))
    }

    #[test]
    fn multipliers_make_shares_as_large_as_the_weights() {
        let mut random = humboldt_base::rng::Rng::new(7);
        for (weights, want) in [([1, 1, 1], [20_000; 3]), ([3, 1, 2], [30_000, 10_000, 20_000])] {
            let group = group(weights);
            let mut got = [0_usize; 3];
            for _ in 0..60_000 {
                let score =
                    |member: &Member| (random.next_u64() as f64 * member.multiplier, member.index);
                let scores = group.members.iter().map(score);
                got[scores.max_by(|a, b| a.0.total_cmp(&b.0)).expect("members").1] += 1;
            }
            let near = |got: usize, want: usize| got.abs_diff(want) < want / 20;
            assert!(
                got.iter().zip(want).all(|(got, want)| near(*got, want)),
                "{weights:?}: {got:?}"
            );
        }
    }

    #[test]
    fn urls_are_spread_over_the_parents() {
        let group = group([1, 4, 2]);
        let mut got = [0_usize; 3];
        for n in 0..30_000 {
            got[group.order(format!("http://host{}.example/{n}", n % 97).as_bytes())[0]] += 1;
        }
        assert!(got[0] > 2000 && got[2] > got[0] && got[1] > got[2], "{got:?}");
    }

    #[test]
    fn without_one_parent_only_its_texts_go_elsewhere() {
        let all = Hashing::new([(0, "a", 1), (1, "b", 1), (2, "c", 1)].into_iter());
        let rest = Hashing::new([(0, "a", 1), (2, "c", 1)].into_iter());
        for n in 0..1000 {
            let text = format!("http://x/{n}");
            let order = all.order(text.as_bytes());
            let without: Vec<_> = order.iter().copied().filter(|index| *index != 1).collect();
            assert_eq!(rest.order(text.as_bytes()), without, "{text}");
        }
    }
}
