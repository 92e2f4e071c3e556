//! Times as text: RFC 3339, in UTC, with milliseconds.

use std::time::SystemTime;

const DAY: i64 = 86_400_000;

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// `2026-01-28T10:30:05.000Z`
pub fn rfc3339(ms: u64) -> String {
    // Limited to the year 9999.
    let ms = (ms as i64).clamp(0, 253_402_300_799_999);
    let (year, month, day) = civil(ms / DAY);
    let rest = ms % DAY;
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1000)
}

/// Parses a time to milliseconds since 1970. A date alone means midnight, and an offset may replace
/// the `Z`.
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    };
    let mark = |at: usize, marks: &[u8]| {
        text.as_bytes().get(at).is_some_and(|byte| marks.contains(byte)).then_some(())
    };
    mark(4, b"-").and(mark(7, b"-"))?;
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let midnight = days(year, month, day).filter(|days| civil(*days) == (year, month, day))? * DAY;
    if text.len() == 10 {
        return u64::try_from(midnight).ok();
    }
    mark(10, b"Tt ").and(mark(13, b":")).and(mark(16, b":"))?;
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction, zone) = match text.get(19..)?.strip_prefix('.') {
        Some(rest) => {
            rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0)?)
        }
        None => ("0", &text[19..]),
    };
    let thousandths: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let offset = match zone {
        "Z" | "z" => 0,
        zone => offset(zone)?,
    };
    u64::try_from(midnight + ((hour * 60 + minute - offset) * 60 + second) * 1000 + thousandths)
        .ok()
}

/// Parses `+02:00` to minutes.
fn offset(zone: &str) -> Option<i64> {
    let (sign, rest) = match zone.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, zone.strip_prefix('+')?),
    };
    let (hours, minutes) =
        rest.split_once(':').filter(|(hours, minutes)| hours.len() == 2 && minutes.len() == 2)?;
    let (hours, minutes): (u8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours < 24 && minutes < 60).then(|| sign * (i64::from(hours) * 60 + i64::from(minutes)))
}

/// Year, month and day of a day since 1970. Years start in March, so that the leap day is the last
/// day, in eras of 400 years of equal length
/// (<https://howardhinnant.github.io/date_algorithms.html>).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The reverse of [`civil`].
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ms: u64, text: &str) {
        assert_eq!(rfc3339(ms), text);
        assert_eq!(parse_rfc3339(text), Some(ms), "{text}");
    }

    #[test]
    fn times_survive_the_round_trip() {
        check(0, "1970-01-01T00:00:00.000Z");
        check(1_769_596_205_007, "2026-01-28T10:30:05.007Z");
        check(951_782_400_000, "2000-02-29T00:00:00.000Z");
        check(4_107_542_399_999, "2100-02-28T23:59:59.999Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
        check(253_402_300_799_999, "9999-12-31T23:59:59.999Z");
        for day in (0..60_000).step_by(13) {
            let (year, month, date) = civil(day);
            assert_eq!(days(year, month, date), Some(day));
        }
    }

    #[test]
    fn other_time_formats_are_parsed_or_refused() {
        for text in [
            "2026-01-28T10:30:05Z",
            "2026-01-28t12:30:05.0+02:00",
            "2026-01-28 08:00:05.000000-02:30",
        ] {
            assert_eq!(parse_rfc3339(text), Some(1_769_596_205_000), "{text}");
        }
        assert_eq!(parse_rfc3339("2026-01-28"), Some(1_769_558_400_000));
        for text in [
            "",
            "2026",
            "2026-02-30",
            "2026-13-01",
            "2026-01-28T",
            "2026-01-28T10:30:05",
            "2026-01-28T24:00:00Z",
            "2026-01-28T10:30:05.Z",
            "2026-01-28T10:30:05+2:00",
            "+026-01-28",
            "2026-01-28T10:30:05.5",
            "1969-12-31",
            "２026-01-28",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
