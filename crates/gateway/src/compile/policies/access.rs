//! `basic_auth`, `api_keys` and `satisfy`, with the content of their files.

use std::sync::Arc;

use blitz_config::{Diagnostic, KeySource as Source, Placed, Policies as Settings};
use blitz_site::{AnyOf, ApiKeys, BasicAuth, KeySource, Policy, Prover, api_keys, users};

use super::Compiler;

/// The policies of a setting, or `None` if its file cannot be used.
type Compiled = Option<Policy>;

impl<'a> Compiler<'a, '_> {
    /// Adds the policy, and those of levels around a block.
    pub(super) fn basic_auth(
        &mut self,
        settings: &'a Placed<blitz_config::BasicAuth>,
        policies: &mut Vec<Policy>,
    ) {
        for also in &settings.value.also {
            self.basic_auth(also, policies);
        }
        let address = std::ptr::from_ref(settings).addr();
        policies.extend(self.once(address, |compiler| {
            let path = &settings.value.users_file;
            let file = compiler.file(path)?;
            let (users, note) = users(&file.content)
                .map_err(|(problem, remedy)| {
                    compiler.error("basic-auth", path, &problem, &remedy);
                })
                .ok()?;
            if let Some(note) = note {
                let label =
                    "passwords are quickly found by such hashes: write them anew, with htpasswd -B";
                compiler.warning("weak-hash", path, &note, label);
            }
            let policy = BasicAuth::new(Arc::new(users), &settings.value.realm)
                .forwarding(&settings.value.forward)
                .keeping_names(compiler.tells_users);
            Some(Policy::Proof(Prover::BasicAuth(Arc::new(policy))))
        }));
    }

    /// Adds the policy, and those of levels around a block.
    pub(super) fn api_keys(
        &mut self,
        settings: &'a Placed<blitz_config::ApiKeys>,
        policies: &mut Vec<Policy>,
    ) {
        for also in &settings.value.also {
            self.api_keys(also, policies);
        }
        let address = std::ptr::from_ref(settings).addr();
        policies.extend(self.once(address, |compiler| {
            let path = &settings.value.file;
            let file = compiler.file(path)?;
            let keys = api_keys(&file.content)
                .map_err(|(problem, remedy)| {
                    compiler.error("api-keys", path, &problem, &remedy);
                })
                .ok()?;
            let source = |source: &Source| match source {
                Source::Header(name) => KeySource::field(name),
                Source::Cookie(name) => KeySource::Cookie(name.clone()),
                Source::Query(name) => KeySource::Query(name.clone()),
            };
            let sources = settings.value.sources.iter().map(source).collect();
            let policy = ApiKeys::new(keys, sources, &settings.value.forward, compiler.tells_users);
            Some(Policy::Proof(Prover::ApiKeys(Arc::new(policy))))
        }));
    }

    /// Adds the policy, and those of outer levels.
    pub(super) fn any_of(
        &mut self,
        settings: &'a Placed<blitz_config::Satisfy>,
        policies: &mut Vec<Policy>,
    ) {
        let any = &settings.value;
        for also in &any.also {
            self.any_of(also, policies);
        }
        let mut demanded = Vec::new();
        if let Some(basic_auth) = &any.basic_auth {
            self.basic_auth(basic_auth, &mut demanded);
        }
        if let Some(api_keys) = &any.api_keys {
            self.api_keys(api_keys, &mut demanded);
        }
        if any.client_cert.is_some() {
            demanded.push(Policy::Proof(Prover::ClientCert));
        }
        if let Some(jwt) = &any.jwt {
            self.jwt(jwt, &mut demanded);
        }
        let prover = |policy| match policy {
            Policy::Proof(prover) => Some(prover),
            _ => None,
        };
        let provers = demanded.into_iter().filter_map(prover).collect();
        let allow = any.allow.as_deref();
        let allow = allow.map_or_else(Vec::new, |allow| self.sets(allow, &allow.value.networks));
        policies.push(Policy::AnyOf(Arc::new(AnyOf::new(allow, provers))));
    }

    /// Two demanded proofs that stand in the same field, which a request has once.
    pub(super) fn one_authorization(&mut self, settings: &'a Settings) {
        let jwt = settings.jwt.as_ref().filter(|jwt| {
            let sources = jwt.value.sources.as_slice();
            sources == [blitz_config::TokenSource::Header] && !jwt.value.is_optional
        });
        let of_authorization = |source: &Source| *source == Source::Header("authorization".into());
        let api_keys = settings
            .api_keys
            .as_ref()
            .filter(|keys| keys.value.sources.iter().all(of_authorization));
        let places = [
            (
                "basic_auth",
                settings.basic_auth.as_ref().map(|value| &value.span),
            ),
            ("api_keys", api_keys.map(|value| &value.span)),
            ("jwt", jwt.map(|value| &value.span)),
        ];
        let written: Vec<_> = places
            .into_iter()
            .filter_map(|(key, span)| Some((key, span?)))
            .collect();
        if let [(first, place), (second, _), ..] = *written {
            let problem = format!(
                "no request passes: `{first}` and `{second}` both need the field Authorization"
            );
            let remedy =
                "write satisfy = \"any\" beside them, or take one of them from another place";
            let place = Placed::new((), place.clone());
            self.error("satisfy", &place, &problem, remedy);
        }
    }

    /// The policy of the settings at this address, which is made once: routes that inherit them share it.
    fn once(&mut self, address: usize, make: impl FnOnce(&mut Self) -> Compiled) -> Compiled {
        if let Some(known) = self.shared.tokens.get(&address) {
            return known.clone();
        }
        let policy = make(self);
        self.shared.tokens.insert(address, policy.clone());
        policy
    }

    fn warning<T>(&mut self, code: &'static str, place: &Placed<T>, problem: &str, label: &str) {
        let warning = Diagnostic::warning(code, place.span.clone(), problem, label);
        if !self.diagnostics.contains(&warning) {
            self.diagnostics.push(warning);
        }
    }
}
