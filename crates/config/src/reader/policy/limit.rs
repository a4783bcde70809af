//! `rate_limit`: a rate, or a table with one; `concurrency`: a number.

use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::super::balance::client_key;
use super::super::own::OwnSettings;
use super::super::value::StringValue;
use super::super::{Reader, entries};
use crate::balance::ClientKey;
use crate::keys::{BURST_MAX, CONCURRENCY_MAX, ON_FAILURE, STORES, Scope};
use crate::policy::{Concurrency, OnFailure, RateKey, RateLimit};
use crate::span::{Placed, Span};
use crate::units::{self, Rate};

const RATE: &str = "\"100/s\"";
const BY: &str = "\"client\", \"user\", \"header:NAME\", \"cookie:NAME\", \"jwt:CLAIM\", or \"route\" for all requests";

/// The longest time in which an empty burst may come back. A key counts as used until then.
const REFILL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

impl Reader<'_> {
    pub(super) fn rate_limit(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        own: &OwnSettings,
    ) -> Option<Arc<Placed<RateLimit>>> {
        let before = self.diagnostics.len();
        let mut rate = None;
        let mut burst = None;
        let mut by = vec![RateKey::Request(ClientKey::Client)];
        let mut dry_run = false;
        let (mut is_stored, mut on_failure) = (false, None);
        match value.get_ref() {
            DeValue::Table(table) => {
                for entry in entries(table) {
                    let Some(entry) = self.known(Scope::RateLimit, &entry) else {
                        continue;
                    };
                    let value = entry.value;
                    match entry.name {
                        "rate" => rate = Some(self.rate(value)),
                        "burst" => {
                            let number = self.number_to(value, BURST_MAX);
                            burst = number.map(|number| (number as u32, value.span()));
                        }
                        "by" => by = self.rate_keys(value),
                        "store" => is_stored = self.choice(value, STORES) == Some(STORES[1]),
                        "on_failure" => {
                            let choice = self.choice(value, ON_FAILURE);
                            on_failure = choice.map(|choice| (choice, value.span()));
                        }
                        _ => dry_run = self.boolean(value).unwrap_or_default(),
                    }
                }
            }
            _ => rate = Some(self.rate(value)),
        }
        let Some(rate) = rate else {
            let label = format!("write for example {{ rate = {RATE} }}");
            self.error("rate", value.span(), "`rate` is missing", label);
            return None;
        };
        let rate = rate?;
        if let Some((burst, span)) = &burst {
            self.check_burst(&rate, *burst, span);
        }
        if let (Some((_, span)), false) = (&on_failure, is_stored) {
            let message = "`on_failure` is for limits whose store can fail";
            let label = "write store = \"redis\" as well, or leave it out";
            self.error("on-failure", span.clone(), message, label);
        }
        let on_failure = match on_failure {
            Some(("open", _)) => OnFailure::Open,
            Some(("closed", _)) => OnFailure::Closed,
            _ => OnFailure::LocalShare,
        };
        let limit = RateLimit {
            place: self.place_of(own),
            count: rate.count,
            period: rate.period,
            burst: burst.map_or(rate.count, |(burst, _)| burst),
            by,
            dry_run,
            store: is_stored.then_some(on_failure),
        };
        (self.diagnostics.len() == before).then(|| Arc::new(Placed::new(limit, value.span())))
    }

    pub(super) fn concurrency(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        own: &OwnSettings,
    ) -> Option<Arc<Placed<Concurrency>>> {
        let max = self.number_to(value, CONCURRENCY_MAX)? as u32;
        let place = self.place_of(own);
        Some(Arc::new(Placed::new(
            Concurrency { place, max },
            value.span(),
        )))
    }

    fn rate(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Rate> {
        if let DeValue::Integer(number) = value.get_ref() {
            let number = number.as_str();
            let label = format!("write \"{number}/s\", or \"{number}/min\" for minutes");
            self.error("unit-missing", value.span(), "the rate has no unit", label);
            return None;
        }
        let text = self.text(value, RATE)?;
        self.parsed(&text, units::parse_rate)
    }

    pub(in crate::reader) fn choice(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        choices: &'static [&'static str],
    ) -> Option<&'static str> {
        let all = format!("\"{}\"", choices.join("\", \""));
        let text = self.text(value, &all)?;
        let chosen = choices.iter().find(|choice| **choice == text.value);
        if chosen.is_none() {
            let message = format!("`{}` is no choice", text.written());
            self.error("value", text.span, message, format!("write one of {all}"));
        }
        chosen.copied()
    }

    fn check_burst(&mut self, rate: &Rate, burst: u32, span: &Span) {
        if rate.period * burst / rate.count > REFILL_MAX {
            let most = REFILL_MAX.as_nanos() * u128::from(rate.count) / rate.period.as_nanos();
            let message = "a burst of this size needs more than a week to come back";
            let label = format!("write at most {}, or a higher rate", most.max(1));
            self.error("burst", span.clone(), message, label);
        }
    }

    /// The values that are counted on their own: one, or a list whose combinations are.
    fn rate_keys(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<RateKey> {
        let texts = match value.get_ref() {
            DeValue::String(_) => self.text(value, "\"client\"").into_iter().collect(),
            _ => self.texts(value, "\"client\""),
        };
        if let (DeValue::Array(_), true) = (value.get_ref(), texts.is_empty()) {
            let label = format!("write {BY}");
            self.error("by", value.span(), "nothing is counted", label);
        }
        let is_all = |text: &StringValue| text.value == "route";
        match texts.as_slice() {
            [only] if is_all(only) => return Vec::new(),
            all => {
                if let Some(text) = all.iter().find(|text| is_all(text)) {
                    let message = "`route` counts all requests together";
                    let label = "leave it out, or the others";
                    self.error("by", text.span.clone(), message, label);
                    return Vec::new();
                }
            }
        }
        let keys = texts.iter().filter_map(|text| self.rate_key(text));
        keys.collect()
    }

    fn rate_key(&mut self, text: &StringValue) -> Option<RateKey> {
        let claim = text.value.strip_prefix("jwt:");
        let key = match claim.filter(|claim| !claim.is_empty()) {
            Some(claim) => Some(RateKey::Claim(claim.to_owned())),
            None if text.value == "user" => Some(RateKey::User),
            None => client_key(&text.value).map(RateKey::Request),
        };
        if key.is_none() {
            let message = format!("`{}` tells no requests apart", text.written());
            self.error("by", text.span.clone(), message, format!("write {BY}"));
        }
        key
    }

    /// The level whose settings are being read, in words that stay the same when other lines change.
    fn place_of(&self, own: &OwnSettings) -> String {
        match self.place.starts_with("preset ") {
            // Its key is that of the route that uses it.
            true => format!("{}{}", self.place, self.block_place),
            false => format!("{} {}{}", self.place, own.key.value, self.block_place),
        }
    }
}
