//! Switches, numbers and texts.

use super::Kind;
use crate::diagnostics::Problem;
use crate::line::Line;

/// `on` or `off`.
pub(crate) struct OnOff;
/// A whole number from 0.
pub(crate) struct Count;
/// A whole number from 0; a negative one is no limit.
pub(crate) struct Limit;
/// A number of field lines in a head.
pub(crate) struct FieldLines;
/// 0 to 100, with or without `%`.
pub(crate) struct Percent;
/// One word; must be there.
pub(crate) struct Text;
/// One word; `none` is nothing.
pub(crate) struct OptText;
/// Words to the end of the line, each possibly in quotes; lines add up.
pub(crate) struct Words;

impl Kind for OnOff {
    type Out = bool;
    const NAME: &'static str = "`on` or `off`";

    fn apply(out: &mut bool, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("`on` or `off`")?;
        *out = match token.text.as_str() {
            "on" => true,
            "off" => false,
            "enable" | "yes" | "true" => {
                line.warn(&token, format!("`{}` is read as `on`", token.text), Some("write `on`"));
                true
            }
            "disable" | "no" | "false" => {
                line.warn(
                    &token,
                    format!("`{}` is read as `off`", token.text),
                    Some("write `off`"),
                );
                false
            }
            other => return Err(token.error(format!("expected `on` or `off`, found `{other}`"))),
        };
        Ok(())
    }
}

impl Kind for Count {
    type Out = u32;
    const NAME: &'static str = "number";

    fn apply(out: &mut u32, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a number")?;
        *out = match token.text.parse::<u32>() {
            Ok(number) => number,
            Err(_) => {
                let why = format!("`{}` is not a whole number from 0 to {}", token.text, u32::MAX);
                return Err(token.error(why));
            }
        };
        Ok(())
    }
}

impl Kind for Limit {
    type Out = Option<u32>;
    const NAME: &'static str = "number, or -1 for no limit";

    fn apply(out: &mut Option<u32>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a number")?;
        *out = match token.text.parse::<i64>().map(u32::try_from) {
            Ok(Ok(number)) => Some(number),
            Ok(Err(_)) if token.text.starts_with('-') => None,
            _ => {
                let why = format!("`{}` is not a whole number from -1 to {}", token.text, u32::MAX);
                return Err(token.error(why));
            }
        };
        Ok(())
    }
}

/// Most field lines of a head that a configuration may allow: the codec's own limit.
const FIELD_LINES_MAX: usize = 10_000;

impl Kind for FieldLines {
    type Out = usize;
    const NAME: &'static str = "number from 1 to 10000";

    fn apply(out: &mut usize, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a number")?;
        *out = match token.text.parse() {
            Ok(number @ 1..=FIELD_LINES_MAX) => number,
            _ => {
                let why =
                    format!("`{}` is not a whole number from 1 to {FIELD_LINES_MAX}", token.text);
                return Err(token.error(why));
            }
        };
        Ok(())
    }
}

impl Kind for Percent {
    type Out = u8;
    const NAME: &'static str = "percentage";

    fn apply(out: &mut u8, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a percentage")?;
        let number = token.text.strip_suffix('%').unwrap_or(&token.text);
        match number.parse::<u8>() {
            Ok(percent @ 0..=100) => *out = percent,
            _ => {
                return Err(
                    token.error(format!("`{}` is not a percentage from 0 to 100", token.text))
                );
            }
        }
        // `80 %`
        if line.peek().is_some_and(|next| next.text == "%") {
            line.next()?;
        }
        Ok(())
    }
}

impl Kind for Text {
    type Out = String;
    const NAME: &'static str = "text";

    fn apply(out: &mut String, line: &mut Line<'_>) -> Result<(), Problem> {
        *out = line.expect("a value")?.text;
        Ok(())
    }
}

impl Kind for OptText {
    type Out = Option<String>;
    const NAME: &'static str = "text or `none`";

    fn apply(out: &mut Option<String>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a value")?;
        *out = (token.text != "none").then_some(token.text);
        Ok(())
    }
}

impl Kind for Words {
    type Out = Vec<String>;
    const NAME: &'static str = "words";

    fn apply(out: &mut Vec<String>, line: &mut Line<'_>) -> Result<(), Problem> {
        let first = line.next_quoted()?.ok_or_else(|| line.missing("a value"))?;
        out.push(first.text);
        while let Some(token) = line.next_quoted()? {
            out.push(token.text);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Severity, parse_str};

    #[test]
    fn switches_take_old_words_with_a_warning() {
        let (config, diagnostics) = parse_str(
            "t",
            "http_port 1\nhttp_access allow all\nvia disable\nhalf_closed_clients on\n",
        );
        assert!(!config.via && config.half_closed_clients);
        assert_eq!(diagnostics.count(Severity::Warning), 1);
        assert!(parse_str("t", "http_port 1\nvia maybe\n").1.has_errors());
    }

    #[test]
    fn percentages_with_and_without_the_sign() {
        let (config, diagnostics) =
            parse_str("t", "http_port 1\ncache_swap_high 100%\ncache_swap_low 80 %\n");
        assert!(!diagnostics.has_errors());
        assert_eq!((config.cache_swap_low, config.cache_swap_high), (80, 100));
        assert!(parse_str("t", "http_port 1\ncache_swap_high 101\n").1.has_errors());
    }
}
