//! The results as a picture: one bar per ratio, with its target as a tick.
//!
//! SVG without script or font, so that a page can embed it. Colours come from the reader's light or dark scheme.

use std::fmt::Write;

use crate::report::{Measurement, Target};

const BAR: u32 = 18;
const GAP: u32 = 10;
const TOP: u32 = 40;
const LEFT: u32 = 250;
const WIDTH: u32 = 420;
/// The ratio at the right edge of the bars. Longer bars are cut and say so.
const MOST: f64 = 2.0;

const STYLE: &str = "\
text { font: 13px sans-serif; fill: #1f2328 } .note { fill: #59636e } .met { fill: #1a7f64 } .missed { fill: #bc4c00 } \
.target, .one { stroke: #59636e } .one { stroke-dasharray: 3 3 } \
@media (prefers-color-scheme: dark) { text { fill: #f0f6fc } .note { fill: #9198a1 } .met { fill: #3fb68b } \
.missed { fill: #f0883e } .target, .one { stroke: #9198a1 } }";

/// Draws the ratios of these measurements.
pub(crate) fn svg(measurements: &[Measurement]) -> String {
    let rows = u32::try_from(measurements.len()).unwrap_or(u32::MAX);
    let height = TOP + rows * (BAR + GAP) + GAP;
    let total = LEFT + WIDTH + 130;
    let mut out = String::new();
    let mut put = |text: std::fmt::Arguments<'_>| {
        out.write_fmt(text).expect("writing to a string cannot fail");
        out.push('\n');
    };
    put(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {total} {height}\" role=\"img\" \
         aria-label=\"Ratios of the benchmark and their targets\">"
    ));
    put(format_args!("<style>{STYLE}</style>"));
    put(format_args!(
        "<text class=\"note\" x=\"{LEFT}\" y=\"20\">ratio to what it is compared with; the tick is the target</text>"
    ));
    let one = x(1.0);
    put(format_args!(
        "<line class=\"one\" x1=\"{one}\" x2=\"{one}\" y1=\"{}\" y2=\"{height}\"/>",
        TOP - 8
    ));
    for (row, found) in (0..).zip(measurements) {
        let top = TOP + row * (BAR + GAP);
        let baseline = top + BAR - 5;
        let class = if found.met { "met" } else { "missed" };
        put(format_args!(
            "<text x=\"{}\" y=\"{baseline}\" text-anchor=\"end\">{}</text>",
            LEFT - 10,
            escape(&found.scenario)
        ));
        let end = x(found.ratio);
        put(format_args!(
            "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{top}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"/>",
            end - f64::from(LEFT)
        ));
        let target = match found.target {
            Target::AtLeast(ratio) | Target::AtMost(ratio) => x(ratio),
        };
        put(format_args!(
            "<line class=\"target\" x1=\"{target}\" x2=\"{target}\" y1=\"{}\" y2=\"{}\" stroke-width=\"2\"/>",
            top - 3,
            top + BAR + 3
        ));
        let cut = if found.ratio > MOST { " …" } else { "" };
        put(format_args!(
            "<text x=\"{:.1}\" y=\"{baseline}\">{:.2}{cut} <tspan class=\"note\">{}</tspan></text>",
            end.max(target) + 8.0,
            found.ratio,
            found.target.text()
        ));
    }
    put(format_args!("</svg>"));
    out
}

fn x(ratio: f64) -> f64 {
    let share = (ratio / MOST).clamp(0.0, 1.0);
    ((f64::from(LEFT) + share * f64::from(WIDTH)) * 10.0).round() / 10.0
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measurement_has_a_bar_and_a_long_one_is_cut() {
        let found =
            |scenario, value| Measurement::new(scenario, (value, "x"), ("it", 1.0), Target::AtLeast(0.9));
        let drawn = svg(&[found("a<b", 0.95), found("slow", 0.5), found("fast", 7.0)]);
        assert_eq!(drawn.matches("<rect").count(), 3);
        assert_eq!(drawn.matches("class=\"missed\"").count(), 1);
        assert!(drawn.contains("a&lt;b") && drawn.contains("7.00 …"), "{drawn}");
        assert_eq!(drawn.matches(">≥ 0.90<").count(), 3, "{drawn}");
        assert!(
            drawn.contains(&format!("width=\"{:.1}\"", f64::from(WIDTH))),
            "{drawn}"
        );
    }
}
