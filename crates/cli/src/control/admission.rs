//! Bounds of the requests over the address, which any user of this machine can send. Requests over the socket are the
//! user's own: they have no bounds here, and never wait for those over the address.

use std::sync::Arc;

use blitz::{Response, Status, blocking};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::access::Reach;

/// Blocking jobs at a time, which leave most threads of the pool to the rest of the process.
const JOBS_MAX: usize = 2;

/// Requests that wait for one of them.
const WAITING_MAX: usize = 32;

/// Requests that watch clients at a time, of each place.
const WATCHERS_MAX: usize = 4;

/// Requests for metrics that wait or are being sent.
const READERS_MAX: usize = 32;

/// The bounds of a process.
pub(super) struct Admission {
    admitted: Arc<Semaphore>,
    jobs: Arc<Semaphore>,
    watchers: [Arc<Semaphore>; 2],
    readers: Arc<Semaphore>,
}

impl Default for Admission {
    fn default() -> Admission {
        let bound = |most| Arc::new(Semaphore::new(most));
        Admission {
            admitted: bound(JOBS_MAX + WAITING_MAX),
            jobs: bound(JOBS_MAX),
            watchers: [bound(WATCHERS_MAX), bound(WATCHERS_MAX)],
            readers: bound(READERS_MAX),
        }
    }
}

impl Admission {
    /// Runs a job on a thread for blocking ones. One that has begun counts until its end, also if its client leaves.
    ///
    /// # Errors
    /// Too many wait: the response.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        reach: Reach,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Response> {
        if reach == Reach::Socket {
            return Ok(blocking(job).await);
        }
        let admitted = admit(&self.admitted)?;
        let jobs = Arc::clone(&self.jobs);
        let running = jobs.acquire_owned().await.map_err(|_| busy())?;
        let job = move || {
            let _permits = (admitted, running);
            job()
        };
        Ok(blocking(job).await)
    }

    /// To watch clients while the permit lives.
    ///
    /// # Errors
    /// Too many do: the response.
    pub(super) fn watch(&self, reach: Reach) -> Result<OwnedSemaphorePermit, Response> {
        let [of_socket, of_address] = &self.watchers;
        admit(match reach {
            Reach::Socket => of_socket,
            Reach::Loopback(_) | Reach::Network(_) => of_address,
        })
    }

    /// To read metrics: the permit is for the time until the response is sent. `None` is one without a bound.
    ///
    /// # Errors
    /// Too many do: the response.
    pub(super) fn read_metrics(
        &self,
        reach: Reach,
    ) -> Result<Option<OwnedSemaphorePermit>, Response> {
        match reach {
            Reach::Socket => Ok(None),
            Reach::Loopback(_) | Reach::Network(_) => admit(&self.readers).map(Some),
        }
    }
}

fn admit(bound: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Response> {
    let permit = Arc::clone(bound).try_acquire_owned();
    permit.map_err(|_| busy())
}

fn busy() -> Response {
    let text = "too many ask this at once\n  ask again in a second, or over the control socket\n";
    let response = Response::text(text).with_status(Status::SERVICE_UNAVAILABLE);
    response.header("Retry-After", "1")
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    const ADDRESS: Reach = Reach::Loopback(SocketAddr::new(
        std::net::IpAddr::V4(Ipv4Addr::LOCALHOST),
        9180,
    ));

    #[test]
    fn the_bounds_of_the_address_are_not_those_of_the_socket() {
        let admission = Admission::default();
        let watch = || admission.watch(ADDRESS);
        let mut watchers: Vec<_> = (0..WATCHERS_MAX).map(|_| watch().ok().unwrap()).collect();
        let refused = watch().err().unwrap();
        assert_eq!(refused.status(), Status::SERVICE_UNAVAILABLE);
        assert_eq!(refused.fields().get_str("Retry-After"), Some("1"));
        assert!(admission.watch(Reach::Socket).is_ok());
        watchers.pop();
        assert!(watch().is_ok(), "one has left");
        let read = |reach| admission.read_metrics(reach);
        let readers: Vec<_> = (0..READERS_MAX).map(|_| read(ADDRESS).ok()).collect();
        assert!(readers.iter().all(Option::is_some));
        assert!(read(ADDRESS).is_err() && read(Reach::Socket).is_ok());
    }
}
