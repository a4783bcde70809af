//! Groups of the flags in `--help`.

pub(crate) const CONFIGURATION: &str = "Configuration";
pub(crate) const LISTENERS: &str = "Listeners";
pub(crate) const CERTIFICATES: &str = "Certificates of listeners";
pub(crate) const TARGETS: &str = "Targets";
pub(crate) const FIELDS: &str = "Forwarded facts";
pub(crate) const LIMITS: &str = "Limits and timeouts";
pub(crate) const PROCESS: &str = "Process";
