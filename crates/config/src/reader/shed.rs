//! `shed` of an upstream: a boolean, or a table with bounds; and `importance` of a route.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::{Reader, entries};
use crate::keys::{CONCURRENCY_MAX, IMPORTANCES, SHED_QUEUE_MAX, SHED_WAIT_MAX, Scope};
use crate::shed::{Importance, Shed};
use crate::span::Placed;
use crate::units::{self, ValueError};

impl Reader<'_> {
    /// `None` if load is not shed, or the value is wrong.
    pub(super) fn shed(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<Shed>> {
        let before = self.diagnostics.len();
        let mut shed = Shed::default();
        let DeValue::Table(table) = value.get_ref() else {
            let is_on = self.boolean(value)?;
            return is_on.then(|| Placed::new(shed, value.span()));
        };
        for entry in entries(table) {
            let Some(entry) = self.known(Scope::Shed, &entry) else {
                continue;
            };
            let mut number = |last| {
                let number = self.number_to(entry.value, last);
                number.and_then(|number| u32::try_from(number).ok())
            };
            match entry.name {
                "min" => shed.min = number(CONCURRENCY_MAX),
                "max" => shed.max = number(CONCURRENCY_MAX),
                "queue" => shed.queue = number(SHED_QUEUE_MAX),
                _ => shed.wait = self.wait(entry.value),
            }
        }
        if let (Some(min), Some(max)) = (shed.min, shed.max)
            && min > max
        {
            let label = "write a greater `max`, or leave one of them out";
            self.error("shed", value.span(), "`min` is above `max`", label);
        }
        (self.diagnostics.len() == before).then(|| Placed::new(shed, value.span()))
    }

    fn wait(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Duration> {
        self.unit_value(
            value,
            "duration",
            "\"100ms\"",
            |text| match units::parse_duration(text)? {
                wait if wait > SHED_WAIT_MAX => Err(ValueError::new(
                    "shed",
                    "no request waits for so long",
                    "write \"10s\" or less",
                )),
                wait => Ok(wait),
            },
        )
    }

    pub(super) fn importance(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Placed<Importance>> {
        let name = self.choice(value, IMPORTANCES)?;
        let mut all = Importance::ALL.into_iter();
        let importance = all.find(|importance| importance.name() == name)?;
        Some(Placed::new(importance, value.span()))
    }
}
