//! Values that several routes share are made once: thousands of routes need the memory and the time of a few.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use blitz_config::{Conditions, Level, Methods, Placed, Settings, TargetGroup};
use blitz_http::RequestOptions;
use blitz_site::{LoadedFile, NetworkSet, Pages, Policies, Policy};

use super::ReadFile;
use crate::clients::{Access, ClientList};
use crate::files::Files;
use crate::rules::{Rules, file_compression, is_on, request_timeout, timeouts};
use crate::target::{Target, TargetError};
use crate::upstream::GroupConfig;
use crate::variants::Block;

/// A problem and its remedy.
type Problem = (String, String);

/// A block whose conditions cannot be used, and why.
type BlockError<'a> = (&'a Placed<Conditions>, regex::Error);

/// The values that the routes of a configuration share. Values of settings are told apart by their addresses, which
/// stay the same as long as the configuration is borrowed.
pub(super) struct SharedValues<'a, 'f> {
    read_file: &'a mut (dyn ReadFile + 'f),
    files: HashMap<&'a str, Result<LoadedFile, Problem>>,
    /// The folder of the configuration.
    base: &'a Path,
    /// By the addresses of the setting and of `compress`.
    folders: HashMap<(usize, usize), Arc<Files>>,
    targets: HashMap<&'a str, Arc<Target>>,
    /// By the address of the group; `None` if a server cannot be used.
    groups: HashMap<usize, Option<Arc<GroupConfig>>>,
    by_settings: HashMap<Demands, Option<Arc<Rules>>>,
    distinct: HashSet<Arc<Rules>>,
    /// By the address of the conditions.
    blocks: HashMap<usize, Arc<[Block]>>,
    /// By the address of the settings; `None` if they cannot be used.
    pub(super) tokens: HashMap<usize, Option<Policy>>,
    networks: HashMap<&'a str, Result<Arc<NetworkSet>, Problem>>,
    /// By the address of the setting.
    pub(super) clients: HashMap<usize, Arc<ClientList>>,
}

/// The settings that rules are made of: addresses of what levels of a file share, and small values.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Demands {
    addresses: [usize; 6],
    policies: Vec<(&'static str, usize)>,
    methods: Option<Methods>,
    body_max: Option<u64>,
    decompress: Option<u64>,
    replaces_errors: bool,
    timeouts: RequestOptions,
    request_timeout: Option<Duration>,
}

impl Demands {
    pub(super) fn new(settings: &Settings) -> Demands {
        Demands {
            addresses: [
                settings.allow.as_ref().map_or(0, address),
                settings.deny.as_ref().map_or(0, address),
                address(&settings.headers),
                address(&settings.request_headers),
                address(&settings.errors),
                settings.compress.as_ref().map_or(0, address),
            ],
            policies: settings.policies.addresses(),
            methods: settings.methods.as_ref().map(|methods| methods.value),
            body_max: settings.body_max.as_ref().map(|bytes| bytes.value),
            decompress: settings.decompress.as_ref().map(|bytes| bytes.value),
            replaces_errors: is_on(&settings.replace_errors),
            timeouts: timeouts(settings),
            request_timeout: request_timeout(settings),
        }
    }
}

pub(super) fn address<T: ?Sized>(value: &Arc<T>) -> usize {
    Arc::as_ptr(value).cast::<()>().addr()
}

impl<'a, 'f> SharedValues<'a, 'f> {
    pub(super) fn new(
        read_file: &'a mut (dyn ReadFile + 'f),
        base: &'a Path,
    ) -> SharedValues<'a, 'f> {
        SharedValues {
            read_file,
            files: HashMap::new(),
            base,
            folders: HashMap::new(),
            targets: HashMap::new(),
            groups: HashMap::new(),
            by_settings: HashMap::new(),
            distinct: HashSet::new(),
            blocks: HashMap::new(),
            tokens: HashMap::new(),
            networks: HashMap::new(),
            clients: HashMap::new(),
        }
    }

    /// The content of a file, which is read once.
    pub(super) fn file(&mut self, path: &'a Placed<String>) -> Result<LoadedFile, Problem> {
        let file = self.files.entry(&path.value);
        let read = || self.read_file.read(&path.value);
        file.or_insert_with(read).clone()
    }

    /// The networks of a file, which is read once.
    pub(super) fn networks(
        &mut self,
        path: &'a Placed<String>,
    ) -> Result<Arc<NetworkSet>, Problem> {
        let set = self.networks.entry(&path.value);
        let read = || self.read_file.networks(&path.value);
        set.or_insert_with(read).clone()
    }

    /// The folder of these files, which routes that inherit it and compress alike share. Whether an upstream gets requests
    /// without a file, is said where the folder is.
    pub(super) fn folder(
        &mut self,
        files: &'a Arc<blitz_config::Files>,
        settings: &Settings,
        is_before_upstream: bool,
    ) -> Arc<Files> {
        let compress = settings.compress.as_ref().map_or(0, address);
        let folder = self.folders.entry((address(files), compress));
        let new = || {
            let compression = file_compression(settings);
            Files::new(files, self.base, compression, is_before_upstream)
        };
        Arc::clone(folder.or_insert_with(|| Arc::new(new())))
    }

    pub(super) fn target(&mut self, url: &'a str) -> Result<Arc<Target>, TargetError> {
        if let Some(target) = self.targets.get(url) {
            return Ok(Arc::clone(target));
        }
        let target = Arc::new(url.parse()?);
        self.targets.insert(url, Arc::clone(&target));
        Ok(target)
    }

    /// The configuration that was made for this group before.
    pub(super) fn group(&self, group: &'a Arc<TargetGroup>) -> Option<Option<Arc<GroupConfig>>> {
        self.groups.get(&address(group)).cloned()
    }

    pub(super) fn add_group(
        &mut self,
        group: &'a Arc<TargetGroup>,
        config: Option<Arc<GroupConfig>>,
    ) {
        self.groups.insert(address(group), config);
    }

    /// The blocks `when` of a level.
    ///
    /// # Errors
    /// The block with a regular expression that is none.
    pub(super) fn blocks(&mut self, level: &'a Level) -> Result<Arc<[Block]>, BlockError<'a>> {
        if let Some(blocks) = self.blocks.get(&address(level)) {
            return Ok(Arc::clone(blocks));
        }
        let blocks = level
            .iter()
            .map(|block| Block::new(block).map_err(|error| (block, error)));
        let blocks: Arc<[Block]> = blocks.collect::<Result<_, _>>()?;
        self.blocks.insert(address(level), Arc::clone(&blocks));
        Ok(blocks)
    }

    /// The rules that were made for the same settings.
    pub(super) fn rules(&self, demands: &Demands) -> Option<Option<Arc<Rules>>> {
        self.by_settings.get(demands).cloned()
    }

    /// Makes rules, or finds equal ones; `None` if they demand and change nothing.
    pub(super) fn new_rules(
        &mut self,
        settings: &Settings,
        (access, pages): (Access, Pages),
        policies: Policies,
        demands: Demands,
    ) -> Option<Arc<Rules>> {
        let rules = Rules::new(settings, access, pages, policies);
        let rules = (rules != Rules::default()).then(|| match self.distinct.get(&rules) {
            Some(rules) => Arc::clone(rules),
            None => {
                let rules = Arc::new(rules);
                self.distinct.insert(Arc::clone(&rules));
                rules
            }
        });
        self.by_settings.insert(demands, rules.clone());
        rules
    }
}
