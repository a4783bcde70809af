//! Periodic work of the thread that waits for signals: reloads, checks of certificates, and log files that are moved.

use blitz_gateway::Reloading;
use blitz_host::service_manager;
use blitz_host::serving::Tick;

use crate::access_log::OpenAccessLog;
use crate::control::Control;
use crate::health_checks::HealthChecks;
use crate::key_fetcher::KeyFetcher;
use crate::otlp::OpenExport;
use crate::reload::ReloadedFile;
use crate::tls::Tls;
use crate::upstream_tls::UpstreamTls;

/// All that can be read again.
pub(crate) struct Upkeep {
    pub(crate) file: Option<ReloadedFile>,
    pub(crate) control: Control,
    pub(crate) tls: Option<Tls>,
    pub(crate) upstream_tls: UpstreamTls,
    pub(crate) access_log: OpenAccessLog,
    pub(crate) export: OpenExport,
    pub(crate) key_fetcher: KeyFetcher,
    pub(crate) health_checks: HealthChecks,
}

impl Upkeep {
    pub(crate) fn on_tick(&mut self, tick: Tick, running: &mut Reloading<'_>) {
        let is_ending = self.control.state.readiness.is_ending();
        let file = self.file.as_mut();
        let file = file.filter(|_| tick == Tick::Periodic && !is_ending);
        let tick = match file.is_some_and(ReloadedFile::has_changed) {
            true => Tick::Reload,
            false => tick,
        };
        match tick {
            Tick::Reload => service_manager::reloading(),
            Tick::Reopen => self.access_log.reopen(),
            Tick::NotReady => self.end(),
            Tick::Drain => {
                if !is_ending {
                    self.end();
                }
                self.control.close_socket();
            }
            Tick::Periodic => {}
        }
        self.upstream_tls.on_tick(tick);
        match tick {
            Tick::Reload => self.reload(running),
            _ => {
                if let Some(tls) = &mut self.tls {
                    tls.on_tick(tick);
                }
            }
        }
        if tick == Tick::Reload {
            self.key_fetcher.start_if_needed();
            self.health_checks.start_if_needed();
            running.resolve_again();
            if !self.has_files() && !running.has_names() {
                tracing::info!(
                    "nothing to reload: no certificate is in use, and no name of an upstream"
                );
            }
            service_manager::ready();
        }
    }

    fn has_files(&self) -> bool {
        self.file.is_some() || self.tls.is_some() || self.upstream_tls.has_files()
    }

    /// Reads the file again, or without one the certificates, and tells the outcome to those who wait for it.
    fn reload(&mut self, running: &mut Reloading<'_>) {
        let waiting = self.control.state.waiting.take();
        let outcome = match &mut self.file {
            Some(file) => {
                let observers = (&mut self.access_log, &mut self.export);
                file.reload(running, &mut self.tls, observers)
            }
            None => {
                if let Some(tls) = &mut self.tls {
                    tls.on_tick(Tick::Reload);
                }
                Ok("certificates are read again, and names of upstreams are resolved again; the log has the outcome\n".to_owned())
            }
        };
        self.control.state.set_tls(self.tls.as_ref().map(Tls::slot));
        for asked in waiting {
            // It fails if they have gone.
            let _ = asked.send(outcome.clone());
        }
    }

    fn end(&self) {
        service_manager::stopping();
        self.control.end();
    }
}
