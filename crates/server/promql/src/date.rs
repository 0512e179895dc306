//! Parts of a date in UTC. Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".

/// A moment in UTC.
pub(crate) struct Date {
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
    days: i64,
    seconds: i64,
}

impl Date {
    /// Returns the date of seconds since the epoch.
    pub(crate) fn of(seconds: i64) -> Self {
        let days = seconds.div_euclid(86_400);
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * march + 2) / 5 + 1;
        let month = if march < 10 { march + 3 } else { march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Self { year, month, day, days, seconds: seconds.rem_euclid(86_400) }
    }

    /// Returns 0 for Sunday to 6 for Saturday.
    pub(crate) fn weekday(&self) -> i64 {
        (self.days + 4).rem_euclid(7)
    }

    /// Returns 1 for the first of January.
    pub(crate) fn day_of_year(&self) -> i64 {
        let before: i64 = (1..self.month).map(|month| days_in(self.year, month)).sum();
        before + self.day
    }

    pub(crate) fn days_in_month(&self) -> i64 {
        days_in(self.year, self.month)
    }

    pub(crate) fn hour(&self) -> i64 {
        self.seconds / 3600
    }

    pub(crate) fn minute(&self) -> i64 {
        self.seconds / 60 % 60
    }
}

fn days_in(year: i64, month: i64) -> i64 {
    let is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_of_a_moment_has_its_parts() {
        let date = Date::of(1_709_211_845);
        assert_eq!((date.year, date.month, date.day), (2024, 2, 29));
        assert_eq!((date.hour(), date.minute(), date.weekday()), (13, 4, 4));
        assert_eq!((date.day_of_year(), date.days_in_month()), (60, 29));
        let early = Date::of(-1);
        assert_eq!((early.year, early.month, early.day, early.hour()), (1969, 12, 31, 23));
    }
}
