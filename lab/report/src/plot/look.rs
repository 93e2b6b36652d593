//! The distinction of lines without colours: by dashes and by markers.

/// Number of looks. A further line looks like the first again.
pub(crate) const LOOKS: usize = 8;

/// Half the width of a marker in pixels.
const RADIUS: f64 = 3.6;

/// The dash pattern of a line; empty for a solid one.
pub(crate) fn dashes(look: usize) -> &'static str {
    const DASHES: [&str; LOOKS] =
        ["", "7 4", "2 3", "10 3 2 3", "4 2", "14 5", "7 2 2 2 2 2", "1 5"];
    DASHES[look % LOOKS]
}

/// The outline of the marker of a line around a point, as SVG path data.
pub(crate) fn marker(look: usize, x: f64, y: f64) -> String {
    let r = RADIUS;
    match look % LOOKS {
        0 => format!("M{:.1} {y:.1}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z", x - r, d = 2.0 * r),
        1 => format!("M{:.1} {:.1}h{d}v{d}h-{d}z", x - r, y - r, d = 2.0 * r),
        2 => format!("M{x:.1} {:.1}l{r} {h}h-{w}z", y - r, h = 2.0 * r, w = 2.0 * r),
        3 => format!("M{x:.1} {:.1}l{t} {t}l-{t} {t}l-{t} -{t}z", y - 1.3 * r, t = 1.3 * r),
        4 => format!("M{:.1} {y:.1}h{d}M{x:.1} {:.1}v{d}", x - r, y - r, d = 2.0 * r),
        5 => {
            format!("M{x0:.1} {y0:.1}l{d} {d}m0 -{d}l-{d} {d}", x0 = x - r, y0 = y - r, d = 2.0 * r)
        }
        6 => format!("M{x:.1} {:.1}l{r} -{h}h-{w}z", y + r, h = 2.0 * r, w = 2.0 * r),
        _ => format!(
            "M{:.1} {y:.1}h{d}M{x:.1} {:.1}v{d}M{x0:.1} {y0:.1}l{e} {e}m0 -{e}l-{e} {e}",
            x - r,
            y - r,
            d = 2.0 * r,
            x0 = x - 0.7 * r,
            y0 = y - 0.7 * r,
            e = 1.4 * r
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_looks_are_alike() {
        let dashes: BTreeSet<_> = (0..LOOKS).map(dashes).collect();
        let markers: BTreeSet<_> = (0..LOOKS).map(|look| marker(look, 5.0, 5.0)).collect();
        assert_eq!((dashes.len(), markers.len()), (LOOKS, LOOKS));
        assert_eq!(marker(LOOKS, 1.0, 2.0), marker(0, 1.0, 2.0));
    }
}
