//! Certificates for HTTPS: from files to what listeners show, and from changed files to the next.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use blitz_http::{
    CaSet, Certificate, ClientAuth, ServerTls, TicketKeys, TlsConfigError, TlsSlot, ValidityProblem,
};

use crate::error::Error;
use crate::serving::Tick;

/// Tickets are good for two of these.
const TICKET_KEYS_CHANGE: Duration = Duration::from_secs(6 * 60 * 60);

/// How often somebody is told of a certificate that is about to expire.
const VALIDITY_LOOK: Duration = Duration::from_secs(24 * 60 * 60);

/// The certificates of a listener, with their keys, and what it asks of its clients.
///
/// Files are in PEM. They are read when the server starts and, while it runs, again on HUP: good
/// ones are for connections to come, and bad ones change nothing. Of several certificates the name
/// that a client asks for decides; the first is the default.
///
/// ```no_run
/// use blitz::{App, Certificates};
///
/// fn main() -> blitz::Result {
///     let certificates = Certificates::from_files("site.pem", "site.key");
///     App::new()
///         .get("/", || "Hello, World!")
///         .listen_tls(":443", certificates)
///         .run()
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Certificates {
    pairs: Vec<Pair>,
    clients: Clients,
}

#[derive(Debug, Clone)]
enum Pair {
    Files(PathBuf, PathBuf),
    Given(Certificate),
}

/// Who has to show a certificate.
#[derive(Debug, Clone)]
enum Clients {
    Nobody,
    /// Whoever wants to; the file has the authorities.
    Some(PathBuf),
    All(PathBuf),
}

impl Certificates {
    /// A certificate with its chain, and its key.
    #[must_use]
    pub fn from_files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Certificates {
        Certificates {
            pairs: vec![Pair::Files(certificate.into(), key.into())],
            clients: Clients::Nobody,
        }
    }

    /// Adds another, for other names.
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

    /// Lets nobody in who has no certificate that an authority in this file (PEM) has issued.
    /// The request's [`Peer`](crate::Peer) says who the client is.
    #[must_use]
    pub fn require_clients(mut self, authorities: impl Into<PathBuf>) -> Certificates {
        self.clients = Clients::All(authorities.into());
        self
    }

    /// As [`require_clients`](Certificates::require_clients), but lets clients in that have none.
    #[must_use]
    pub fn ask_clients(mut self, authorities: impl Into<PathBuf>) -> Certificates {
        self.clients = Clients::Some(authorities.into());
        self
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
            Clients::Nobody => ClientAuth::None,
            Clients::Some(file) => ClientAuth::Optional(CaSet::load(file)?),
            Clients::All(file) => ClientAuth::Required(CaSet::load(file)?),
        };
        builder.client_auth(client_auth).build()
    }
}

impl From<Certificate> for Certificates {
    /// One that is no file, and stays as it is.
    fn from(certificate: Certificate) -> Certificates {
        Certificates {
            pairs: vec![Pair::Given(certificate)],
            clients: Clients::Nobody,
        }
    }
}

/// Certificates in use, kept by the thread that waits for signals: see
/// [`Serving::run_until_signal_with`](crate::serving::Serving::run_until_signal_with).
#[derive(Debug)]
pub struct CertificateReloader {
    slot: TlsSlot,
    certificates: Certificates,
    keys: TicketKeys,
    keys_made: SystemTime,
    validity: ValidityWatch,
}

impl CertificateReloader {
    /// Reads the files, and warns of what is about to expire.
    ///
    /// # Errors
    /// Which file is at fault, why, and what to do.
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

    /// Where listeners find what is in use.
    #[must_use]
    pub fn slot(&self) -> TlsSlot {
        self.slot.clone()
    }

    /// Does what there is to do while others serve: on HUP the files are read again; every day
    /// somebody is told of certificates that expire within 30 days; every six hours the keys of
    /// session tickets change.
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
        }
    }

    /// Good files replace what is in use, for handshakes to come; bad ones do not.
    fn reload(&mut self, now: SystemTime) {
        let snapshot = self.certificates.read(&self.keys);
        let checked = snapshot.map_err(said).and_then(|snapshot| {
            let mut certificates = snapshot.certificates();
            let unusable = certificates.find_map(|certificate| unusable_reason(certificate, now));
            drop(certificates);
            unusable.map_or(Ok(snapshot), Err)
        });
        match checked {
            Ok(snapshot) => {
                self.validity.check(snapshot.certificates(), now);
                let certificates = snapshot.certificates().count();
                self.slot.replace(snapshot);
                tracing::info!(certificates, "the certificates were read again");
            }
            Err(problem) => {
                tracing::error!("the certificates in use stay, the new ones are bad: {problem}");
            }
        }
    }

    /// Whoever learns a key can read the sessions that it resumed, so none is used for long.
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

/// Whether it is that long ago, or the clock was set back.
fn has_passed(time: Duration, since: SystemTime, now: SystemTime) -> bool {
    now.duration_since(since).is_ok_and(|passed| passed >= time) || now < since
}

#[allow(clippy::needless_pass_by_value, reason = "an error that ends here")]
fn said(error: TlsConfigError) -> String {
    Error::from(&error).to_string()
}

/// Looks at how long certificates are valid, and warns of those that are to be replaced.
#[derive(Debug)]
pub struct ValidityWatch {
    looked: SystemTime,
}

impl ValidityWatch {
    /// Begins with a look.
    pub fn start<'a>(
        certificates: impl Iterator<Item = &'a Certificate>,
        now: SystemTime,
    ) -> ValidityWatch {
        let mut watch = ValidityWatch { looked: now };
        watch.check(certificates, now);
        watch
    }

    /// Looks now.
    pub fn check<'a>(
        &mut self,
        certificates: impl Iterator<Item = &'a Certificate>,
        now: SystemTime,
    ) {
        warn(&self.problems(certificates, now));
    }

    /// Looks if the last time was a day ago.
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
        match has_passed(VALIDITY_LOOK, self.looked, now) {
            true => self.problems(certificates, now),
            false => Vec::new(),
        }
    }

    fn problems<'a>(
        &mut self,
        certificates: impl Iterator<Item = &'a Certificate>,
        now: SystemTime,
    ) -> Vec<String> {
        self.looked = now;
        let said = |certificate: &Certificate| {
            let problem = certificate.validity_problem(now)?;
            Some(said_of_validity(certificate, &problem))
        };
        certificates.filter_map(said).collect()
    }
}

fn warn(problems: &[String]) {
    for problem in problems {
        tracing::warn!("{problem}");
    }
}

/// Why a certificate that can be read must not take the place of another, and what to do: it is
/// valid no more, or not yet.
#[must_use]
pub fn unusable_reason(certificate: &Certificate, now: SystemTime) -> Option<String> {
    let problem = certificate.validity_problem(now)?;
    let is_usable = matches!(problem, ValidityProblem::ExpiresSoon(_));
    (!is_usable).then(|| said_of_validity(certificate, &problem))
}

/// What to tell those who look after a certificate, and what to do about it.
fn said_of_validity(certificate: &Certificate, problem: &ValidityProblem) -> String {
    match certificate.file() {
        Some(file) => format!(
            "{}: the certificate {problem}; put a new one in its place and send HUP",
            file.display()
        ),
        None => {
            let name = certificate.names().first().map_or("nobody", String::as_str);
            format!("the certificate for {name} {problem}; a restart takes a new one")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// A reloader of a certificate that expires `days` after the time that is returned with it.
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
    fn a_certificate_that_has_expired_takes_the_place_of_none() {
        let (mut reloader, start) = reloader(10);
        let before = reloader.slot.current();
        reloader.on_tick(Tick::Reload, start + DAY * 11);
        assert!(Arc::ptr_eq(&before, &reloader.slot.current()));
        reloader.on_tick(Tick::Reload, start + DAY * 9);
        assert!(!Arc::ptr_eq(&before, &reloader.slot.current()));
    }

    #[test]
    fn from_30_days_before_the_end_somebody_is_told_once_a_day() {
        let (mut reloader, start) = reloader(33);
        let mut told = Vec::new();
        for hour in 0..35 * 24 {
            let now = start + Duration::from_secs(60 * 60) * hour;
            let said = due_warnings(&mut reloader, now);
            told.extend(said.into_iter().map(|said| (hour, said)));
        }
        let hours: Vec<_> = told.iter().map(|(hour, _)| *hour).collect();
        let expected: Vec<_> = (4..35).map(|day| day * 24).collect();
        assert_eq!(hours, expected);
        let ends = "the certificate for a.example expires in 29 days";
        assert!(told[0].1.starts_with(ends), "{}", told[0].1);
        let last = &told.last().unwrap().1;
        assert!(last.contains("expired 1 days ago"), "{last}");
    }

    #[test]
    fn a_clock_that_was_set_back_silences_nobody() {
        let (mut reloader, start) = reloader(10);
        assert!(
            due_warnings(&mut reloader, start).is_empty(),
            "said at the start"
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
