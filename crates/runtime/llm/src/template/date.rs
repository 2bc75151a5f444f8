//! Dates in text, for templates that tell the model which day it is.
//!
//! In: a time with its place, and a format as C's `strftime` has it. Out: text, in English. The reference formats a time
//! that knows no zone, so `%Z` is nothing here too.

use chrono::{DateTime, Datelike, TimeZone, Timelike};
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
pub(super) fn format(now: &DateTime<impl TimeZone>, format: &str) -> Result<String, Error> {
    let (year, month, day) = (now.year(), now.month(), now.day());
    let (hour, minute, second) = (now.hour(), now.minute(), now.second());
    let month_name = MONTHS[now.month0() as usize];
    let day_name = DAYS[now.weekday().num_days_from_sunday() as usize];
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
            Some('Z') => {}
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

#[cfg(test)]
mod tests {
    use chrono::{DateTime, FixedOffset, Utc};

    use super::format;

    fn utc(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).expect("a time of the calendar")
    }

    fn at(seconds: i64, text: &str) -> String {
        format(&utc(seconds), text).expect("forms we know")
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(at(0, "%A, %d %B %Y %H:%M:%S"), "Thursday, 01 January 1970 00:00:00");
        assert_eq!(at(951_782_400, "%d %b %y %a %e"), "29 Feb 00 Tue 29");
        assert_eq!(at(1_709_164_799, "%F %T %I %p %Z 100%%"), "2024-02-28 23:59:59 11 PM  100%");
        assert_eq!(at(4_102_444_800, "%Y-%m-%d"), "2100-01-01");
    }

    #[test]
    fn it_is_the_time_of_the_place() {
        let place = FixedOffset::east_opt(19_800).expect("five and a half hours");
        let new_year = utc(1_735_669_800).with_timezone(&place);
        assert_eq!(format(&new_year, "%F %H:%M").expect("forms we know"), "2025-01-01 00:00");
    }

    #[test]
    fn unknown_forms_are_named() {
        let error = format(&utc(0), "%Q").expect_err("no such form");
        assert!(error.to_string().contains("%Q"), "{error}");
    }
}
