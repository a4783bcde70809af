//! `forward_auth`, with its authorizer.

use std::sync::Arc;

use blitz_config::{AuthCache, Placed};
use blitz_http::RequestHead;
use blitz_site::{AuthCacheSettings, ForwardAuth, ForwardAuthSettings, Policy};

use super::{Compiler, rate_key};

impl<'a> Compiler<'a, '_> {
    /// Adds the policy, and those of levels around a block.
    pub(super) fn forward_auth(
        &mut self,
        auth: &'a Placed<blitz_config::ForwardAuth>,
        policies: &mut Vec<Policy>,
    ) {
        for also in &auth.value.also {
            self.forward_auth(also, policies);
        }
        // Routes that inherit the same settings share what is remembered.
        let address = std::ptr::from_ref(auth).addr();
        let policy = match self.shared.tokens.get(&address) {
            Some(policy) => policy.clone(),
            None => {
                let policy = self.forward_auth_policy(&auth.value);
                self.shared.tokens.insert(address, policy.clone());
                policy
            }
        };
        policies.extend(policy);
    }

    fn forward_auth_policy(&mut self, settings: &'a blitz_config::ForwardAuth) -> Option<Policy> {
        let origin = &settings.origin;
        if self.target(origin)?.is_service() {
            let problem = "an authorizer is no service with SRV records";
            self.error("forward-auth", origin, problem, "write http:// and a host");
            return None;
        }
        if RequestHead::parse("GET", &settings.target).is_err() {
            let problem = "the path of the URL is invalid";
            self.error("forward-auth", origin, problem, "percent-encode it");
            return None;
        }
        let cache = |cache: &AuthCache| AuthCacheSettings {
            time: cache.time,
            by: cache.by.iter().map(rate_key).collect(),
            any_path: cache.any_path,
        };
        let auth = ForwardAuth::new(ForwardAuthSettings {
            origin: origin.value.clone(),
            target: settings.target.clone(),
            send: settings.send.clone(),
            copy: settings.copy.clone(),
            passes_cookies: settings.passes_cookies,
            is_open: settings.is_open,
            timeout: settings.timeout,
            cache: settings.cache.as_ref().map(cache),
        });
        Some(Policy::ForwardAuth(Arc::new(auth)))
    }
}
