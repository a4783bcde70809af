//! Blocks `when`: their conditions, and the variants of routes that follow from them.

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::inherit::{InheritedValues, Levels, Resolved, settings};
use super::own::{BLOCKS, Own, OwnAction, OwnBlock, OwnSettings};
use super::target::Upstreams;
use super::{Entry, Reader, entries};
use crate::condition::{ClientMatch, Conditions, Match, ValueMatch, regex};
use crate::keys::{self, Scope};
use crate::method::Methods;
use crate::network::Network;
use crate::span::{Placed, Span};
use crate::variant::Variants;

/// The most combinations of blocks of a route: settings are made for each.
const COMBINATIONS_MAX: usize = 256;

const CLIENT: &str = "\"10.0.0.0/8\", or \"!10.0.0.0/8\" for all others";
const MATCH: &str = "\"text\", \"text*\", \"~regex\", \"!…\" for the opposite, true or false";

impl Reader<'_> {
    /// The blocks of a level, in their order.
    pub(super) fn blocks(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        own: &mut OwnSettings,
        upstreams: &mut Upstreams,
    ) {
        if matches!(value.get_ref(), DeValue::Boolean(false)) {
            own.is_without_outer_blocks = true;
            return;
        }
        let label =
            "write [[site.\"app.example\".when]] for each block, or false for none of outer levels";
        let DeValue::Array(items) = value.get_ref() else {
            return self.wrong_type(value.span(), value.get_ref(), "a list of tables", label);
        };
        let mut conditions = Vec::new();
        for item in items {
            let DeValue::Table(table) = item.get_ref() else {
                self.wrong_type(item.span(), item.get_ref(), "a table", label);
                continue;
            };
            conditions.extend(self.block(table, item.span(), own, upstreams));
        }
        self.blocks_that_are_dodged(&own.blocks, &conditions);
        own.conditions = conditions.into();
    }

    /// Of the blocks of a level the first applies, so a client that meets the conditions of one that it can choose is rid of
    /// the later ones.
    fn blocks_that_are_dodged(&mut self, blocks: &[OwnBlock], conditions: &[Placed<Conditions>]) {
        let forwards = |own: &OwnSettings| match own.action {
            Some((OwnAction::Respond(_) | OwnAction::Redirect(_) | OwnAction::Files(_), _)) => {
                false
            }
            Some(_) | None => true,
        };
        let is_refusing = |(block, conditions): &(&OwnBlock, &Placed<Conditions>)| {
            let own = &block.own;
            let has_access_rules = own.allow.value().is_some()
                || own.deny.value().is_some()
                || own.policies.demand_proof()
                || own.policies.forward_auth.value().is_some();
            has_access_rules || conditions.value.client.is_some() && !forwards(own)
        };
        let mut all = blocks.iter().zip(conditions);
        let is_dodge = |one: &(&OwnBlock, &Placed<Conditions>)| {
            !one.1.value.is_client_only() && !is_refusing(one) && forwards(&one.0.own)
        };
        let Some((_, dodge)) = all.find(is_dodge) else {
            return;
        };
        for (block, _) in all.filter(is_refusing) {
            let place = self.document.place(dodge.span.start);
            self.warning(
                "when-order",
                block.own.key.span.clone(),
                format!("clients that send what the block at {place} asks for are rid of this one"),
                "of several blocks the first applies: move this one before it",
            );
        }
    }

    /// Adds a block, and returns its conditions.
    fn block(
        &mut self,
        table: &DeTable<'_>,
        span: Span,
        own: &mut OwnSettings,
        upstreams: &mut Upstreams,
    ) -> Option<Placed<Conditions>> {
        let before = self.diagnostics.len();
        let mut conditions = Conditions::default();
        let mut block = OwnSettings::new(own.key.clone());
        let all = entries(table);
        self.block_place = format!(" when {}", own.blocks.len() + 1);
        let mut first = None;
        for entry in &all {
            let Some(entry) = &self.known(Scope::When, entry) else {
                continue;
            };
            if keys::find(Scope::When, entry.name).is_some_and(|key| key.scope == Scope::When) {
                first.get_or_insert(entry.key_start..end_of(entry.value));
            }
            match entry.name {
                "header" => {
                    self.not_of_host(entry.value);
                    conditions.headers = self.matches(entry.value, str::to_ascii_lowercase);
                }
                "query" => conditions.queries = self.matches(entry.value, str::to_owned),
                "cookie" => conditions.cookies = self.matches(entry.value, str::to_owned),
                "client" => conditions.client = self.client_match(entry.value),
                "method" => conditions.methods = self.method_match(entry.value),
                "grpc" => conditions.grpc = self.boolean(entry.value),
                "websocket" => conditions.websocket = self.boolean(entry.value),
                _ => self.setting(entry, &mut block, upstreams),
            }
        }
        self.join_access(&mut block, true);
        self.block_place.clear();
        let place = first.unwrap_or_else(|| all.first().map_or(span, Entry::key));
        if self.diagnostics.len() != before {
            return None;
        }
        if conditions == Conditions::default() {
            let label = "write for example client = \"!10.0.0.0/8\", or header.X-Canary = true";
            self.error("when-condition", place, "the block has no condition", label);
            return None;
        }
        if !conditions.is_client_only() {
            self.access_when(&all, &block)?;
        }
        block.key.span = place.clone();
        let number = BLOCKS + self.blocks_read;
        self.blocks_read += 1;
        own.blocks.push(OwnBlock { number, own: block });
        Some(Placed::new(conditions, place))
    }

    /// A client could choose whether an access rule applies, by its request.
    fn access_when(&mut self, all: &[Entry<'_, '_>], block: &OwnSettings) -> Option<()> {
        let removed = [
            ("allow", matches!(block.allow, Own::Removed)),
            ("deny", matches!(block.deny, Own::Removed)),
            (
                "forward_auth",
                matches!(block.policies.forward_auth, Own::Removed),
            ),
            (
                "jwt",
                match &block.policies.jwt {
                    Own::Removed => true,
                    Own::Value(jwt) => jwt.value.is_optional,
                    Own::Inherited => false,
                },
            ),
            (
                "basic_auth",
                matches!(block.policies.basic_auth, Own::Removed),
            ),
            ("api_keys", matches!(block.policies.api_keys, Own::Removed)),
            (
                "client_cert",
                matches!(block.policies.client_cert, Own::Removed),
            ),
            ("satisfy", true),
        ];
        for (name, is_removed) in removed {
            let Some(entry) = all.iter().find(|entry| is_removed && entry.name == name) else {
                continue;
            };
            let message = format!("clients choose what they send, and would be rid of `{name}`");
            let label = "leave it out, or let `client` be the only condition";
            self.error("access-when", entry.key(), message, label);
            return None;
        }
        Some(())
    }

    /// The host decides about the site, before all routes.
    fn not_of_host(&mut self, value: &Spanned<DeValue<'_>>) {
        let DeValue::Table(table) = value.get_ref() else {
            return;
        };
        let entries = entries(table).into_iter();
        for entry in entries.filter(|entry| entry.name.eq_ignore_ascii_case("host")) {
            let message = "the host belongs to the site, not to its conditions";
            let label = "write a site for this host";
            self.error("when-condition", entry.key(), message, label);
        }
    }

    fn matches(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        name_of: impl Fn(&str) -> String,
    ) -> Vec<(String, Match)> {
        let DeValue::Table(table) = value.get_ref() else {
            let label = "write for example header.X-Canary = true";
            self.wrong_type(value.span(), value.get_ref(), "a table", label);
            return Vec::new();
        };
        let mut matches = Vec::new();
        for entry in entries(table) {
            let found = self.match_of(entry.value);
            matches.extend(found.map(|found| (name_of(entry.name), found)));
        }
        matches.sort_by(|a, b| a.0.cmp(&b.0));
        matches
    }

    fn match_of(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Match> {
        if let DeValue::Boolean(is_present) = value.get_ref() {
            return Some(Match {
                is_negated: !is_present,
                value: ValueMatch::Any,
            });
        }
        let text = self.text(value, MATCH)?;
        let (is_negated, rest) = match text.value.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text.value.as_str()),
        };
        let value = if let Some(pattern) = rest.strip_prefix('~') {
            if let Err(error) = regex(pattern) {
                let problem = error.to_string();
                let problem = problem.lines().last().unwrap_or_default();
                let problem = problem.trim_start_matches("error: ");
                let message = "this is no regular expression";
                // It may be the value of a variable.
                let label = match text.literals.is_empty() {
                    true => format!("correct it: {problem}"),
                    false => "correct the variable".to_owned(),
                };
                self.error("regex", text.span, message, label);
                return None;
            }
            ValueMatch::Regex(pattern.to_owned())
        } else if let Some(beginning) = rest.strip_suffix('*') {
            ValueMatch::Prefix(beginning.to_owned())
        } else {
            ValueMatch::Exact(rest.to_owned())
        };
        Some(Match { is_negated, value })
    }

    /// A network, or a list of networks, some with `!`.
    fn client_match(&mut self, value: &Spanned<DeValue<'_>>) -> Option<ClientMatch> {
        let texts = match value.get_ref() {
            DeValue::String(_) => vec![self.text(value, CLIENT)?],
            _ => self.texts(value, CLIENT),
        };
        let mut client = ClientMatch::default();
        for text in texts {
            let outside = text.value.starts_with('!').then(|| text.behind(1));
            let list = match &outside {
                Some(_) => &mut client.outside,
                None => &mut client.inside,
            };
            list.push(self.parsed(outside.as_ref().unwrap_or(&text), Network::parse)?);
        }
        if client == ClientMatch::default() {
            let label = format!("write {CLIENT}");
            self.error("when-condition", value.span(), "the list is empty", label);
            return None;
        }
        Some(client)
    }

    fn method_match(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Methods> {
        let texts = match value.get_ref() {
            DeValue::String(_) => vec![self.text(value, "\"GET\"")?],
            _ => self.texts(value, "\"GET\""),
        };
        self.methods_of(texts)
    }

    /// The variants of a route with these levels. `own` are the route and those that enclose it, the innermost first.
    pub(super) fn variants<'a>(
        &mut self,
        levels: &Levels<'a>,
        own: impl Iterator<Item = &'a OwnSettings>,
        shared: &mut InheritedValues,
    ) -> Option<Box<Variants>> {
        let mut is_last = false;
        let own = own.take_while(|own| {
            let goes_on = !is_last;
            is_last |= own.is_without_outer_blocks;
            goes_on
        });
        let with_blocks: Vec<&OwnSettings> = own.filter(|own| !own.blocks.is_empty()).collect();
        let innermost = with_blocks.first()?;
        let factors = with_blocks.iter().map(|own| own.blocks.len() + 1);
        let count = factors.fold(1_usize, usize::saturating_mul);
        if count > COMBINATIONS_MAX {
            let message = format!("the blocks `when` of this route have {count} combinations");
            let label = format!("{COMBINATIONS_MAX} are the most; leave some out");
            let place = innermost.blocks[0].own.key.span.clone();
            self.error("when-combinations", place, message, label);
            return None;
        }
        let mut all = Vec::with_capacity(count - 1);
        for number in 1..count {
            let mut levels = levels.clone();
            let mut rest = number;
            for own in &with_blocks {
                let choices = own.blocks.len() + 1;
                if let Some(at) = (rest % choices).checked_sub(1) {
                    levels.push(own.blocks[at].number, &own.blocks[at].own);
                }
                rest /= choices;
            }
            match self.resolve(&levels, shared) {
                Resolved::Action(action) => all.push(settings(action, &levels, shared)),
                // The whole has a diagnostic.
                Resolved::Wrong | Resolved::None => return None,
            }
        }
        Some(Box::new(Variants {
            levels: with_blocks
                .iter()
                .map(|own| Arc::clone(&own.conditions))
                .collect(),
            settings: all,
        }))
    }
}

/// Where a value ends. A table of dotted keys has the place of its first key.
fn end_of(value: &Spanned<DeValue<'_>>) -> usize {
    let nested = match value.get_ref() {
        DeValue::Table(table) => entries(table),
        _ => Vec::new(),
    };
    let ends = nested.iter().map(|entry| end_of(entry.value));
    ends.fold(value.span().end, usize::max)
}
