//! Fewer points, with every peak kept.

/// As many points as a line is drawn with at most.
pub(crate) const POINTS_MAX: usize = 800;

/// At most `points_max` (at least 4) of the points, in order: the first, the last, and of every
/// stretch between the lowest and the highest, so that no peak disappears.
pub(crate) fn thinned(points: &[(f64, f64)], points_max: usize) -> Vec<(f64, f64)> {
    let points_max = points_max.max(4);
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    if points.len() <= points_max {
        return points.to_vec();
    }
    let between = points.get(1..points.len() - 1).unwrap_or_default();
    let stretch = between.len().div_ceil((points_max - 2) / 2);
    let mut kept = Vec::with_capacity(points_max);
    kept.push(*first);
    for part in between.chunks(stretch) {
        let by_height =
            |a: &(usize, &(f64, f64)), b: &(usize, &(f64, f64))| a.1.1.total_cmp(&b.1.1);
        let lowest = part.iter().enumerate().min_by(by_height);
        let highest = part.iter().enumerate().max_by(by_height);
        if let (Some((low, low_point)), Some((high, high_point))) = (lowest, highest) {
            match low.cmp(&high) {
                std::cmp::Ordering::Less => kept.extend([*low_point, *high_point]),
                std::cmp::Ordering::Equal => kept.push(*low_point),
                std::cmp::Ordering::Greater => kept.extend([*high_point, *low_point]),
            }
        }
    }
    kept.push(*last);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_and_ends_stay() {
        let mut points: Vec<(f64, f64)> =
            (0..100_000u32).map(|x| (f64::from(x), f64::from(x % 10))).collect();
        points[54_321].1 = 999.0;
        points[67_890].1 = -999.0;
        let kept = thinned(&points, POINTS_MAX);
        assert!(kept.len() <= POINTS_MAX, "{}", kept.len());
        assert!(kept.contains(&(54_321.0, 999.0)) && kept.contains(&(67_890.0, -999.0)));
        assert_eq!((kept.first(), kept.last()), (points.first(), points.last()));
        assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(thinned(&points[..5], POINTS_MAX), points[..5]);
        assert!(thinned(&[], POINTS_MAX).is_empty());
    }
}
