//! A connection to Redis or Valkey.

use blitz_gateway::StoreDemand;
use redis::{Client, Connection, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind};

use super::settings::StoreSettings;

const TAKE: &str = include_str!("take.lua");
const JOIN: &str = include_str!("join.lua");

/// A process counts for so long after it has last said that it shares the store.
const JOINED_SECONDS: u32 = 5;

/// A connection with its scripts.
pub(super) struct Link {
    connection: Connection,
    prefix: String,
    /// Their hashes, as the server has them.
    take: String,
    join: String,
}

impl Link {
    /// # Errors
    /// There is no connection in time, or the server does not accept password, database or scripts.
    pub(super) fn open(settings: &StoreSettings) -> RedisResult<Link> {
        let client = Client::open(settings.url.as_str())?;
        let connection = client.get_connection_with_timeout(settings.timeout)?;
        connection.set_read_timeout(Some(settings.timeout))?;
        connection.set_write_timeout(Some(settings.timeout))?;
        let mut link = Link {
            connection,
            prefix: settings.prefix.clone(),
            take: String::new(),
            join: String::new(),
        };
        link.load()?;
        Ok(link)
    }

    fn load(&mut self) -> RedisResult<()> {
        let mut load = |script: &str| -> RedisResult<String> {
            let mut command = redis::cmd("SCRIPT");
            command.arg("LOAD").arg(script).query(&mut self.connection)
        };
        let (take, join) = (load(TAKE)?, load(JOIN)?);
        (self.take, self.join) = (take, join);
        Ok(())
    }

    /// Says that a process shares the store. Gives how many do.
    ///
    /// # Errors
    /// The server has not done it in time.
    pub(super) fn join(&mut self, process: &str) -> RedisResult<u32> {
        let counts: Vec<u32> = self.with_scripts(|link, pipeline| {
            let command = pipeline.cmd("EVALSHA").arg(&link.join).arg(1);
            command
                .arg(format!("{}instances", link.prefix))
                .arg(process)
                .arg(JOINED_SECONDS);
        })?;
        Ok(counts.first().copied().unwrap_or(1))
    }

    /// Says that it does so no longer.
    pub(super) fn leave(&mut self, process: &str) {
        let mut command = redis::cmd("ZREM");
        let key = format!("{}instances", self.prefix);
        // It is forgotten in any case.
        let _: RedisResult<()> = command.arg(key).arg(process).query(&mut self.connection);
    }

    /// Carries out demands: for each the tokens that are granted, and the nanoseconds until there is another one, below
    /// zero those since there is one.
    ///
    /// # Errors
    /// The server has not done them in time; it may have done some.
    pub(super) fn take(&mut self, demands: &[StoreDemand]) -> RedisResult<Vec<(u32, i64)>> {
        let responses: Vec<Vec<i64>> = self.with_scripts(|link, pipeline| {
            for demand in demands {
                let command = pipeline.cmd("EVALSHA").arg(&link.take).arg(1);
                command
                    .arg(format!("{}rate:{:016x}", link.prefix, demand.key))
                    .arg(format!("{:.3}", demand.interval as f64 / 1000.0))
                    .arg(demand.burst)
                    .arg(demand.overdraft)
                    .arg(demand.charged)
                    .arg(demand.wanted);
            }
        })?;
        let grant = |(response, demand): (&Vec<i64>, &StoreDemand)| {
            let [granted, wait] = response[..] else {
                return None;
            };
            // Nobody can grant more than was wanted.
            let granted = u32::try_from(granted).ok()?.min(demand.wanted);
            Some((granted, wait.saturating_mul(1000)))
        };
        let grants = responses.iter().zip(demands).map(grant);
        let grants: Option<Vec<_>> = grants.collect();
        let all = grants.filter(|grants| grants.len() == demands.len());
        all.ok_or_else(|| {
            let text = "the script gave other values";
            RedisError::from((ErrorKind::UnexpectedReturnType, text))
        })
    }

    /// Sends commands; once more if the server has lost the scripts.
    fn with_scripts<T: redis::FromRedisValue>(
        &mut self,
        write: impl Fn(&Link, &mut Pipeline),
    ) -> RedisResult<T> {
        let mut is_again = false;
        loop {
            let mut pipeline = redis::pipe();
            write(self, &mut pipeline);
            match pipeline.query(&mut self.connection) {
                Err(error) if is_without_script(&error) && !is_again => {
                    self.load()?;
                    is_again = true;
                }
                outcome => return outcome,
            }
        }
    }
}

fn is_without_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
