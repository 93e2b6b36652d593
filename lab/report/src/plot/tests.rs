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

#[test]
fn a_legend_is_never_cut_to_equal_texts() {
    let mut plot = tiny();
    plot.lines = (0..LOOKS)
        .map(|look| {
            let kind = ["in memory", "on disk"][look % 2];
            let state = ["cache empty", "cache full"][look / 2 % 2];
            let name = format!("humboldt:ring-{} · in transit {kind} · {state}", look / 4);
            Line::straight(&name, look, vec![(0.0, 1.0), (1.0, 3.0)])
        })
        .collect();
    let svg = plot.svg("legend");
    assert!(!svg.contains('…'), "{svg}");
    for word in ["memory", "disk", "empty", "full"] {
        let texts = svg.lines().filter(|line| line.starts_with("<text") && line.contains(word));
        assert_eq!(texts.count(), LOOKS / 2, "{word}: {svg}");
    }
    // More names than fit make the drawing higher.
    let height: f64 =
        svg.split_once("viewBox=\"0 0 580 ").unwrap().1.split('"').next().unwrap().parse().unwrap();
    let heights = svg.lines().filter(|line| line.starts_with("<text class=\"\" "));
    let lowest = heights
        .map(|line| {
            line.split_once(" y=\"").unwrap().1.split('"').next().unwrap().parse::<f64>().unwrap()
        })
        .fold(0.0, f64::max);
    assert!(lowest <= height - BOTTOM + 4.1 && height >= HEIGHT_MIN, "{lowest} of {height}");
}

#[test]
fn repeats_are_thin_behind_the_bold_one() {
    let mut plot = tiny();
    plot.lines =
        Line::repeats("squid:aufs", 2, (1..=3).map(|y| vec![(0.0, f64::from(y)), (1.0, 2.0)]));
    let svg = plot.svg("repeats");
    let lines: Vec<&str> = svg.lines().filter(|line| line.starts_with("<polyline")).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[..2].iter().all(|line| line.contains("s2 thin") && !line.contains("data-name")));
    assert!(lines[2].contains("s2 bold") && lines[2].contains("data-name=\"squid:aufs\""));
    assert_eq!(svg.matches(">squid:aufs</text>").count(), 1, "one name: {svg}");
    assert_eq!(Line::repeats("one", 0, [vec![(0.0, 1.0)]])[0].weight, Weight::Usual);
}
