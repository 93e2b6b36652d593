use super::*;

fn tiny() -> Plot {
    Plot {
        title: "A <tiny> plot".to_owned(),
        description: "Two lines".to_owned(),
        size: Size::Half,
        x: Axis::linear("fill ÷ cache size").tight(),
        y: Axis::linear("answers/s"),
        lines: vec![
            Line::straight("answers", 0, vec![(0.0, 1.0), (1.0, 3.0), (2.0, 2.0)]),
            Line::step("\"offered\"", 1, vec![(0.0, 1.5), (1.0, 3.5), (2.0, 2.0)]),
        ],
        bands: vec![Band { from: 1.5, to: 2.0, name: "last quarter".to_owned() }],
        rules: vec![Rule { y: 2.5, name: "limit".to_owned() }],
    }
}

#[test]
fn a_tiny_plot_is_drawn_as_it_was() {
    let expected = include_str!("tiny.svg");
    let drawn = tiny().svg("tiny");
    assert!(drawn == expected, "the plot changed; if it should, put this into tiny.svg:\n{drawn}");
}

#[test]
fn plots_without_values_say_so() {
    let mut plot = tiny();
    for points in [vec![], vec![(f64::NAN, 1.0), (1.0, f64::INFINITY)]] {
        for line in &mut plot.lines {
            line.points.clone_from(&points);
        }
        let svg = plot.svg("empty");
        assert!(svg.contains("no values") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

#[test]
fn gaps_are_gaps() {
    let mut plot = tiny();
    plot.lines.truncate(1);
    plot.lines[0].points = vec![(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 2.0), (4.0, 1.0)];
    assert_eq!(plot.svg("gap").matches("<polyline").count(), 2);
}

#[test]
fn names_never_overlap_and_stay_inside() {
    let placed = spread(&[20.0, 20.0, 21.0, 200.0, 200.0, 290.0, 294.0], TOP, 294.0);
    assert!(placed.windows(2).all(|pair| pair[1] - pair[0] >= LINE - 1e-9), "{placed:?}");
    assert!(placed.iter().all(|y| (TOP..=294.0).contains(y)), "{placed:?}");
}

#[test]
fn a_hundred_thousand_points_are_thinned() {
    let mut plot = tiny();
    plot.lines[0].points = (0..100_000).map(|x| (f64::from(x), f64::from(x % 17))).collect();
    let svg = plot.svg("large");
    assert!(svg.len() < 60_000, "{}", svg.len());
}
