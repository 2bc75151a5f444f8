//! Dates in text, for templates that tell the model which day it is.
//!
//! In: a time, and a format as C's `strftime` has it. Out: text, in English and in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The time as `format` says.
pub(super) fn format(now: SystemTime, format: &str) -> Result<String, Error> {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let month_name = MONTHS[month as usize - 1];
    // The first of January 1970 was a Thursday.
    let day_name = DAYS[(days as usize + 4) % 7];
    let mut text = String::new();
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match rest.next() {
            Some('Y') => text += &year.to_string(),
            Some('y') => text += &format!("{:02}", year % 100),
            Some('m') => text += &format!("{month:02}"),
            Some('d') => text += &format!("{day:02}"),
            Some('e') => text += &format!("{day:2}"),
            Some('B') => text += month_name,
            Some('b' | 'h') => text += &month_name[..3],
            Some('A') => text += day_name,
            Some('a') => text += &day_name[..3],
            Some('H') => text += &format!("{hour:02}"),
            Some('I') => text += &format!("{:02}", (hour + 11) % 12 + 1),
            Some('p') => text += if hour < 12 { "AM" } else { "PM" },
            Some('M') => text += &format!("{minute:02}"),
            Some('S') => text += &format!("{second:02}"),
            Some('F') => text += &format!("{year}-{month:02}-{day:02}"),
            Some('T') => text += &format!("{hour:02}:{minute:02}:{second:02}"),
            Some('Z') => text += "UTC",
            Some('%') => text.push('%'),
            other => {
                let what = other.map_or("% at the end".to_owned(), |other| format!("%{other}"));
                let problem = format!("strftime_now: {what} is none of the forms that Overdrive knows");
                return Err(Error::new(ErrorKind::InvalidOperation, problem));
            }
        }
    }
    Ok(text)
}

/// Year, month from 1, day from 1, of a day counted from the first of January 1970.
fn date(days: u64) -> (u64, u64, u64) {
    // Years that begin in March have their leap day at the end; 400 of them have 146,097 days.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::format;

    fn at(seconds: u64, text: &str) -> String {
        format(UNIX_EPOCH + Duration::from_secs(seconds), text).expect("forms we know")
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(at(0, "%A, %d %B %Y %H:%M:%S"), "Thursday, 01 January 1970 00:00:00");
        assert_eq!(at(951_782_400, "%d %b %y %a %e"), "29 Feb 00 Tue 29");
        assert_eq!(at(1_709_164_799, "%F %T %I %p %Z 100%%"), "2024-02-28 23:59:59 11 PM UTC 100%");
        assert_eq!(at(4_102_444_800, "%Y-%m-%d"), "2100-01-01");
    }

    #[test]
    fn unknown_forms_are_named() {
        let error = format(UNIX_EPOCH, "%Q").expect_err("no such form");
        assert!(error.to_string().contains("%Q"), "{error}");
    }
}
