//! Certificates for HTTPS: read from files, and read again on HUP.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use blitz_http::{
    CaSet, Certificate, ClientAuth, ServerNames, ServerTls, TicketKeys, TlsConfigError, TlsPolicy,
    TlsSlot, ValidityProblem,
};

use crate::serving::Tick;

/// The time between two changes of the ticket keys. Tickets are valid for two such periods.
const TICKET_KEYS_CHANGE: Duration = Duration::from_secs(6 * 60 * 60);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The time between two warnings of a certificate that expires soon.
const VALIDITY_CHECK: Duration = DAY;

/// The certificates of a listener, with their keys, and its rule for client certificates.
///
/// Files are in PEM. They are read when the server starts, and again on HUP. Valid files apply to new
/// connections; existing connections continue. If a file is invalid, nothing changes. Of several
/// certificates the one for the client's server name (SNI) is used; the first is the default.
#[derive(Debug, Clone)]
pub struct Certificates {
    pairs: Vec<Pair>,
    clients: Clients,
    policies: Vec<(ServerNames, TlsPolicy)>,
}

#[derive(Debug, Clone)]
enum Pair {
    Files(PathBuf, PathBuf),
    Given(Certificate),
}

/// Whether clients need a certificate; the file contains the authorities.
#[derive(Debug, Clone)]
enum Clients {
    None,
    Optional(PathBuf),
    Required(PathBuf),
}

impl Certificates {
    /// A certificate with its chain, and its key.
    #[must_use]
    pub fn from_files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Certificates {
        Certificates {
            pairs: vec![Pair::Files(certificate.into(), key.into())],
            clients: Clients::None,
            policies: Vec::new(),
        }
    }

    /// Adds another certificate and its key, for other names.
    #[must_use]
    pub fn and_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Certificates {
        let pair = Pair::Files(certificate.into(), key.into());
        self.pairs.push(pair);
        self
    }

    /// Adds another certificate in memory, for other names.
    #[must_use]
    pub fn and_certificate(mut self, certificate: Certificate) -> Certificates {
        self.pairs.push(Pair::Given(certificate));
        self
    }

    /// Requires a client certificate that an authority in this file (PEM) has issued. The request's
    /// [`Peer`](blitz_http::Peer) contains it.
    #[must_use]
    pub fn require_clients(mut self, authorities: impl Into<PathBuf>) -> Certificates {
        self.clients = Clients::Required(authorities.into());
        self
    }

    /// As [`require_clients`](Certificates::require_clients), but accepts clients without a certificate.
    #[must_use]
    pub fn ask_clients(mut self, authorities: impl Into<PathBuf>) -> Certificates {
        self.clients = Clients::Optional(authorities.into());
        self
    }

    /// Sets what handshakes for server names demand, in place of the rule for all clients.
    #[must_use]
    pub fn with_policies(mut self, policies: Vec<(ServerNames, TlsPolicy)>) -> Certificates {
        self.policies = policies;
        self
    }

    /// The demands of handshakes for server names.
    #[must_use]
    pub fn policies(&self) -> &[(ServerNames, TlsPolicy)] {
        &self.policies
    }

    fn read(&self, keys: &TicketKeys) -> Result<ServerTls, TlsConfigError> {
        let mut builder = ServerTls::builder().ticket_keys(keys);
        for pair in &self.pairs {
            builder = builder.certificate(match pair {
                Pair::Files(certificate, key) => Certificate::load(certificate, key)?,
                Pair::Given(certificate) => certificate.clone(),
            });
        }
        let client_auth = match &self.clients {
            Clients::None => ClientAuth::None,
            Clients::Optional(file) => ClientAuth::Optional(CaSet::load(file)?),
            Clients::Required(file) => ClientAuth::Required(CaSet::load(file)?),
        };
        for (names, policy) in &self.policies {
            builder = builder.policy(names.clone(), policy.clone());
        }
        builder.client_auth(client_auth).build()
    }
}

impl From<Certificate> for Certificates {
    /// A certificate in memory, which is never read again.
    fn from(certificate: Certificate) -> Certificates {
        Certificates {
            pairs: vec![Pair::Given(certificate)],
            clients: Clients::None,
            policies: Vec::new(),
        }
    }
}

/// Reloads the certificates in use, on the thread that waits for signals: see
/// [`Serving::run_until_signal_with`](crate::serving::Serving::run_until_signal_with).
#[derive(Debug)]
pub struct CertificateReloader {
    slot: TlsSlot,
    certificates: Certificates,
    keys: TicketKeys,
    keys_made: SystemTime,
    validity: ValidityWatch,
}

/// Certificates that were read and are not in use yet.
pub struct PreparedCertificates {
    certificates: Certificates,
    snapshot: ServerTls,
}

impl CertificateReloader {
    /// Reads the files, and warns of certificates that expire soon.
    ///
    /// # Errors
    /// The invalid file, the reason, and the remedy.
    pub fn load(
        certificates: Certificates,
        now: SystemTime,
    ) -> Result<CertificateReloader, TlsConfigError> {
        let keys = TicketKeys::new()?;
        let snapshot = certificates.read(&keys)?;
        Ok(CertificateReloader {
            validity: ValidityWatch::start(snapshot.certificates(), now),
            slot: TlsSlot::new(snapshot),
            certificates,
            keys,
            keys_made: now,
        })
    }

    /// The certificates in use.
    #[must_use]
    pub fn certificates_in_use(&self) -> &Certificates {
        &self.certificates
    }

    /// The slot that listeners read the current certificates from.
    #[must_use]
    pub fn slot(&self) -> TlsSlot {
        self.slot.clone()
    }

    /// Reads the files again on HUP. Otherwise warns once a day of certificates that expire within 30
    /// days, and changes the keys of session tickets every six hours.
    pub fn on_tick(&mut self, tick: Tick, now: SystemTime) {
        match tick {
            Tick::Reload => self.reload(now),
            Tick::Periodic => {
                let current = self.slot.current();
                self.validity.check_daily(current.certificates(), now);
                if has_passed(TICKET_KEYS_CHANGE, self.keys_made, now) {
                    self.change_keys(now);
                }
            }
            Tick::Reopen | Tick::NotReady | Tick::Drain => {}
        }
    }

    /// Reads the files again. If all are valid, they apply to new handshakes; otherwise nothing changes.
    fn reload(&mut self, now: SystemTime) {
        let prepared = self.prepare(self.certificates.clone());
        let usable = prepared.and_then(|prepared| {
            let mut certificates = prepared.snapshot.certificates();
            let unusable = certificates.find_map(|certificate| unusable_reason(certificate, now));
            drop(certificates);
            unusable.map_or(Ok(prepared), Err)
        });
        match usable {
            Ok(prepared) => self.apply(prepared, now),
            Err(problem) => {
                tracing::error!(
                    "the certificates in use stay, because the new ones are invalid: {problem}"
                );
            }
        }
    }

    /// Reads other certificates, which [`apply`](CertificateReloader::apply) puts in the place of these. As at the
    /// start, one that has expired is a warning: other names must not wait for its renewal.
    ///
    /// # Errors
    /// The invalid file, the reason, and the remedy.
    pub fn prepare(&self, certificates: Certificates) -> Result<PreparedCertificates, String> {
        let snapshot = certificates
            .read(&self.keys)
            .map_err(|error| message(&error))?;
        Ok(PreparedCertificates {
            certificates,
            snapshot,
        })
    }

    /// Uses these certificates for new handshakes, and reads their files from now on.
    pub fn apply(&mut self, prepared: PreparedCertificates, now: SystemTime) {
        let PreparedCertificates {
            certificates,
            snapshot,
        } = prepared;
        self.validity.check(snapshot.certificates(), now);
        let in_use = snapshot.certificates().map(|one| days_left(one, now));
        let in_use = in_use.collect::<Vec<_>>().join(", ");
        self.slot.replace(snapshot);
        self.certificates = certificates;
        tracing::info!(certificates = in_use, "the certificates were read again");
    }

    /// Changes the ticket keys. A stolen key decrypts the sessions that were resumed with it, so each
    /// key is used for a limited time.
    fn change_keys(&mut self, now: SystemTime) {
        self.keys_made = now;
        let keys = self.keys.rotated();
        let snapshot =
            keys.and_then(|keys| Ok((self.slot.current().with_ticket_keys(&keys)?, keys)));
        match snapshot {
            Ok((snapshot, keys)) => {
                self.slot.replace(snapshot);
                self.keys = keys;
                tracing::debug!("the keys of session tickets were changed");
            }
            Err(error) => tracing::error!(%error, "the keys of session tickets stay"),
        }
    }
}

/// Whether `time` has passed since `since`, or the clock was set back.
fn has_passed(time: Duration, since: SystemTime, now: SystemTime) -> bool {
    now.duration_since(since).is_ok_and(|passed| passed >= time) || now < since
}

/// The first name of a certificate, and its days until it expires.
fn days_left(certificate: &Certificate, now: SystemTime) -> String {
    let name = certificate.names().first().map_or("", String::as_str);
    let left = certificate.not_after().duration_since(now);
    let days = left.unwrap_or_default().as_secs() / DAY.as_secs();
    format!("{name} (expires in {days} days)")
}

/// The problem, and the remedy on a line of its own.
#[must_use]
pub fn message(error: &TlsConfigError) -> String {
    match error.remedy() {
        "" => error.to_string(),
        remedy => format!("{error}\n  {}", remedy.replace('\n', "\n  ")),
    }
}

/// Checks the validity of certificates, and warns of those that have to be replaced.
#[derive(Debug)]
pub struct ValidityWatch {
    checked: SystemTime,
}

impl ValidityWatch {
    /// Checks once, and starts the daily checks.
    pub fn start<'a>(
        certificates: impl Iterator<Item = &'a Certificate>,
        now: SystemTime,
    ) -> ValidityWatch {
        let mut watch = ValidityWatch { checked: now };
        watch.check(certificates, now);
        watch
    }

    /// Checks now.
    pub fn check<'a>(
        &mut self,
        certificates: impl Iterator<Item = &'a Certificate>,
        now: SystemTime,
    ) {
        warn(&self.problems(certificates, now));
    }

    /// Checks if the last check was a day ago.
    pub fn check_daily<'a>(
        &mut self,
        certificates: impl Iterator<Item = &'a Certificate>,
        now: SystemTime,
    ) {
        warn(&self.due_problems(certificates, now));
    }

    fn due_problems<'a>(
        &mut self,
        certificates: impl Iterator<Item = &'a Certificate>,
        now: SystemTime,
    ) -> Vec<String> {
        match has_passed(VALIDITY_CHECK, self.checked, now) {
            true => self.problems(certificates, now),
            false => Vec::new(),
        }
    }

    fn problems<'a>(
        &mut self,
        certificates: impl Iterator<Item = &'a Certificate>,
        now: SystemTime,
    ) -> Vec<String> {
        self.checked = now;
        let warning = |certificate| validity_warning(certificate, now);
        certificates.filter_map(warning).collect()
    }
}

fn warn(problems: &[String]) {
    for problem in problems {
        tracing::warn!("{problem}");
    }
}

/// The reason, with the remedy, why a readable certificate must not replace another: it has expired, or
/// is not valid yet.
#[must_use]
pub fn unusable_reason(certificate: &Certificate, now: SystemTime) -> Option<String> {
    let problem = certificate.validity_problem(now)?;
    let is_usable = matches!(problem, ValidityProblem::ExpiresSoon(_));
    (!is_usable).then(|| validity_message(certificate, &problem))
}

/// The warning for the administrator if the validity of a certificate requires a replacement.
pub fn validity_warning(certificate: &Certificate, now: SystemTime) -> Option<String> {
    let problem = certificate.validity_problem(now)?;
    Some(validity_message(certificate, &problem))
}

/// The message for the administrator, with the remedy.
fn validity_message(certificate: &Certificate, problem: &ValidityProblem) -> String {
    match certificate.file() {
        Some(file) => format!(
            "{}: the certificate {problem}; replace the file and send HUP",
            file.display()
        ),
        None => {
            let name = certificate
                .names()
                .first()
                .map_or("no name", String::as_str);
            format!("the certificate for {name} {problem}; restart to use a new one")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A reloader of a certificate, and the time `days` before the certificate expires.
    fn reloader(days: u32) -> (CertificateReloader, SystemTime) {
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let made = Certificate::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
        let now = made.not_after() - DAY * days;
        let reloader = CertificateReloader::load(made.into(), now).unwrap();
        (reloader, now)
    }

    fn due_warnings(reloader: &mut CertificateReloader, now: SystemTime) -> Vec<String> {
        let current = reloader.slot.current();
        reloader.validity.due_problems(current.certificates(), now)
    }

    #[test]
    fn an_expired_certificate_does_not_replace_a_valid_one() {
        let (mut reloader, start) = reloader(10);
        let before = reloader.slot.current();
        reloader.on_tick(Tick::Reload, start + DAY * 11);
        assert!(Arc::ptr_eq(&before, &reloader.slot.current()));
        reloader.on_tick(Tick::Reload, start + DAY * 9);
        assert!(!Arc::ptr_eq(&before, &reloader.slot.current()));
    }

    #[test]
    fn a_warning_is_logged_daily_from_30_days_before_the_expiry() {
        let (mut reloader, start) = reloader(33);
        let mut warnings = Vec::new();
        for hour in 0..35 * 24 {
            let now = start + Duration::from_secs(60 * 60) * hour;
            let due = due_warnings(&mut reloader, now);
            warnings.extend(due.into_iter().map(|warning| (hour, warning)));
        }
        let hours: Vec<_> = warnings.iter().map(|(hour, _)| *hour).collect();
        let expected: Vec<_> = (4..35).map(|day| day * 24).collect();
        assert_eq!(hours, expected);
        let ends = "the certificate for a.example expires in 29 days";
        assert!(warnings[0].1.starts_with(ends), "{}", warnings[0].1);
        let last = &warnings.last().unwrap().1;
        assert!(last.contains("expired 1 days ago"), "{last}");
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_suppress_warnings() {
        let (mut reloader, start) = reloader(10);
        assert!(
            due_warnings(&mut reloader, start).is_empty(),
            "the warning was logged at the start"
        );
        assert_eq!(due_warnings(&mut reloader, start - DAY * 5).len(), 1);
        assert!(due_warnings(&mut reloader, start - DAY * 5).is_empty());
    }

    #[test]
    fn ticket_keys_change_every_six_hours() {
        let (mut reloader, start) = reloader(100);
        let before = reloader.keys_made;
        reloader.on_tick(Tick::Periodic, start + TICKET_KEYS_CHANGE / 2);
        assert_eq!(reloader.keys_made, before);
        reloader.on_tick(Tick::Periodic, start + TICKET_KEYS_CHANGE);
        assert_eq!(reloader.keys_made, start + TICKET_KEYS_CHANGE);
    }
}
