//! Periodic work of the thread that waits for signals: reloads, checks of certificates, and log files that are moved.

use blitz_gateway::Reloading;
use blitz_host::service_manager;
use blitz_host::serving::Tick;

use crate::access_log::OpenAccessLog;
use crate::control::Control;
use crate::reload::ReloadedFile;
use crate::tls::Tls;
use crate::upstream_tls::UpstreamTls;

/// All that can be read again.
pub(crate) struct Upkeep {
    pub(crate) file: Option<ReloadedFile>,
    pub(crate) control: Option<Control>,
    pub(crate) tls: Option<Tls>,
    pub(crate) upstream_tls: UpstreamTls,
    pub(crate) access_log: OpenAccessLog,
}

impl Upkeep {
    pub(crate) fn on_tick(&mut self, tick: Tick, running: &mut Reloading<'_>) {
        let file = self.file.as_mut().filter(|_| tick == Tick::Periodic);
        let tick = match file.is_some_and(ReloadedFile::has_changed) {
            true => Tick::Reload,
            false => tick,
        };
        match tick {
            Tick::Reload => service_manager::reloading(),
            Tick::Reopen => self.access_log.reopen(),
            Tick::Drain => self.stop(),
            Tick::Periodic => {}
        }
        self.upstream_tls.on_tick(tick);
        match (&mut self.file, tick) {
            (Some(file), Tick::Reload) => {
                let waiting = self.control.as_ref().map(|control| control.waiting.take());
                let outcome = file.reload(running, &mut self.tls, &mut self.access_log);
                for asked in waiting.into_iter().flatten() {
                    // It fails if they have gone.
                    let _ = asked.send(outcome.clone());
                }
            }
            _ => {
                if let Some(tls) = &mut self.tls {
                    tls.on_tick(tick);
                }
            }
        }
        if tick == Tick::Reload {
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

    fn stop(&self) {
        service_manager::stopping();
        if let Some(control) = &self.control {
            control.close();
        }
    }
}
