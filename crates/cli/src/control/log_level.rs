//! `/log-level`: the least level of the log, which can be changed while the process runs.

use std::sync::{Arc, Mutex, PoisonError};

use blitz::extract::{Query, State};
use blitz::{Response, Status};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::{Registry, reload};

use super::state::ControlState;

/// All levels, by their names in the file.
const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// The level of the log in use.
pub(crate) struct LogLevel {
    filter: reload::Handle<Targets, Registry>,
    current: Mutex<LevelFilter>,
}

impl LogLevel {
    /// A filter of this level for a subscriber with a further layer, and its handle.
    pub(crate) fn new<L: Layer<Registry> + Send + Sync>(
        level: LevelFilter,
        further: L,
    ) -> (impl Layer<Registry> + Send + Sync, LogLevel) {
        let (layer, filter) = reload::Layer::new(targets(level));
        // The last one tells the level beyond which libraries need not ask about each event.
        let layer = further.and_then(layer);
        let level = LogLevel {
            filter,
            current: Mutex::new(level),
        };
        (layer, level)
    }

    fn name(&self) -> &'static str {
        let current = *self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let mut levels = LEVELS.iter();
        let found = levels.find(|(_, level)| *level == current);
        found.map_or("off", |(name, _)| *name)
    }

    /// # Errors
    /// The log has another filter.
    fn set(&self, level: LevelFilter) -> Result<(), reload::Error> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        self.filter.reload(targets(level))?;
        *current = level;
        Ok(())
    }
}

/// Events of Blitz at `level`, and those of libraries only from WARN on.
fn targets(level: LevelFilter) -> Targets {
    Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        // It warns of unknown options in `resolv.conf` at each look-up.
        .with_target("hickory", level.min(LevelFilter::ERROR))
        .with_target("blitz", level)
}

pub(super) async fn log_level(State(state): State<Arc<ControlState>>) -> Response {
    Response::text(format!("{}\n", state.log_level.name()))
}

/// `level` is the new one, until the process ends.
pub(super) async fn set_log_level(
    State(state): State<Arc<ControlState>>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Response {
    let asked = pairs.iter().find(|(name, _)| name == "level");
    let found = asked.and_then(|(_, asked)| LEVELS.iter().find(|(name, _)| name == asked));
    let Some((name, level)) = found else {
        let text = "there is no such level\n  \
                    send POST /log-level?level=LEVEL with off, error, warn, info, debug or trace\n";
        return Response::text(text).with_status(Status::BAD_REQUEST);
    };
    let before = state.log_level.name();
    match state.log_level.set(*level) {
        Ok(()) => {
            tracing::info!("the log level is {name}; it was {before}");
            Response::text(format!("{name}\n"))
        }
        Err(error) => {
            let text = format!("the log level cannot be changed: {error}\n  restart the process\n");
            Response::text(text).with_status(Status::SERVICE_UNAVAILABLE)
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::otlp::Events;

    #[test]
    fn libraries_do_not_ask_about_events_beyond_the_level() {
        for (_, filter) in LEVELS {
            let (layer, level) = LogLevel::new(LevelFilter::INFO, Events::default());
            let subscriber = tracing_subscriber::registry().with(layer);
            let hint = || tracing::Subscriber::max_level_hint(&subscriber);
            assert_eq!(hint(), Some(LevelFilter::INFO));
            level.set(filter).unwrap();
            assert_eq!(hint(), Some(filter));
        }
    }

    #[test]
    fn each_level_has_its_name() {
        for (name, filter) in LEVELS {
            let (_layer, level) = LogLevel::new(filter, Events::default());
            assert_eq!(level.name(), name);
        }
    }
}
