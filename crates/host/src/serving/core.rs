//! The listeners of one core, which are opened and closed while it runs.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::task::{Poll, Waker};
use std::time::Duration;

use blitz_http::{
    Address, DatagramListener, Drain, Listener, ProxyRule, ServeOptions, Service, core_local,
};

use super::bind::BoundConfig;
use super::error::{StartError, ended_early, not_opened};

/// A listener that serves, over TCP or UDP.
type ServingFuture = Pin<Box<dyn Future<Output = ()>>>;

/// The number of a listener, the same on all cores.
pub(super) type Number = usize;

core_local! {
    static LISTENERS: RefCell<Option<Weak<dyn Listeners>>> = const { RefCell::new(None) };
}

/// The listeners of a core, whatever its service is.
trait Listeners {
    fn open(&self, listeners: &[(Number, BoundConfig)]) -> Result<(), StartError>;

    fn close(&self, numbers: &[Number], limit: Duration);
}

/// Opens listeners on the calling core: all of them, or none.
///
/// # Errors
/// [`StartError`].
pub(super) fn open(listeners: &[(Number, BoundConfig)]) -> Result<(), StartError> {
    of_core().ok_or_else(not_opened)?.open(listeners)
}

/// Closes listeners of the calling core; their running exchanges have `limit`.
pub(super) fn close(numbers: &[Number], limit: Duration) {
    if let Some(listeners) = of_core() {
        listeners.close(numbers, limit);
    }
}

fn of_core() -> Option<Rc<dyn Listeners>> {
    LISTENERS.with_borrow(|listeners| listeners.as_ref()?.upgrade())
}

/// The service of a core, and the listeners that it is reached at.
pub(super) struct CoreListeners<S> {
    service: Rc<S>,
    options: ServeOptions,
    /// How each listener is closed.
    open: RefCell<Vec<(Number, Drain)>>,
    /// Those that were opened since the last turn.
    opened: RefCell<Vec<ServingFuture>>,
    /// Woken when there are such.
    waker: RefCell<Option<Waker>>,
}

impl<S: Service> CoreListeners<S> {
    fn new((service, options): (Rc<S>, ServeOptions)) -> Rc<CoreListeners<S>> {
        Rc::new(CoreListeners {
            service,
            options,
            open: RefCell::default(),
            opened: RefCell::default(),
            waker: RefCell::default(),
        })
    }

    /// Serves until the core is drained.
    async fn serve(&self) {
        let core = Drain::of_core();
        let mut running = Vec::new();
        poll_fn(|cx| {
            let is_draining = core.poll_changed(cx, None).is_ready();
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            running.append(&mut self.opened.borrow_mut());
            running.retain_mut(|serving| serving.as_mut().poll(cx).is_pending());
            match is_draining && running.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Takes the sockets of a listener. Without its UDP socket no client of any core may be told of HTTP/3, because
    /// the kernel gives this core a part of them.
    fn bind(
        &self,
        (config, datagrams): &BoundConfig,
        drain: &Drain,
    ) -> Result<Vec<ServingFuture>, StartError> {
        let failed = |error| StartError::Listen(config.address.clone(), error);
        let listener = Listener::bind(&config.address).map_err(failed)?;
        let datagrams = datagrams.as_ref().filter(|_| !config.proxy_protocol);
        let datagrams = datagrams.map(DatagramListener::of_core);
        let datagrams = datagrams.transpose().map_err(failed)?;
        let udp_port = datagrams.as_ref().map(|datagrams| datagrams.local().port());
        let is_tcp = matches!(config.address, Address::Tcp(_));
        let options = Rc::new(ServeOptions {
            tls: config.tls.clone(),
            proxy_protocol: config
                .proxy_protocol
                .then(|| trusted_proxies(&self.options)),
            multiplexed_only: config.http2_only,
            // A proxy in front would pass them on, or have access rules that an upgrade bypasses.
            alt_svc: config
                .alt_svc
                .value(udp_port)
                .filter(|_| is_tcp && !config.proxy_protocol),
            h2c_upgrade: self
                .options
                .h2c_upgrade
                .clone()
                .filter(|_| !config.proxy_protocol),
            drain: drain.clone(),
            ..self.options.clone()
        });
        let mut serving: Vec<ServingFuture> = Vec::new();
        if let (Some(datagrams), Some(tls)) = (datagrams, &config.tls) {
            let tls = tls.clone();
            let (service, options) = (Rc::clone(&self.service), Rc::clone(&options));
            serving.push(Box::pin(async move {
                datagrams.serve(&tls, service, options).await;
            }));
        }
        let service = Rc::clone(&self.service);
        serving.push(Box::pin(blitz_http::serve(listener, service, options)));
        Ok(serving)
    }
}

/// Which proxies may send a PROXY header: without a rule, none.
fn trusted_proxies(options: &ServeOptions) -> Rc<ProxyRule> {
    let rule = options.proxy_protocol.clone();
    rule.unwrap_or_else(|| Rc::new(|_| false))
}

impl<S: Service> Listeners for CoreListeners<S> {
    fn open(&self, listeners: &[(Number, BoundConfig)]) -> Result<(), StartError> {
        let core = Drain::of_core();
        let mut all = Vec::new();
        for (number, bound) in listeners {
            let drain = core.below();
            all.push((*number, self.bind(bound, &drain)?, drain));
        }
        for (number, serving, drain) in all {
            self.opened.borrow_mut().extend(serving);
            self.open.borrow_mut().push((number, drain));
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        Ok(())
    }

    fn close(&self, numbers: &[Number], limit: Duration) {
        let is_closed = |(number, _): &mut (Number, Drain)| numbers.contains(number);
        let closed = self
            .open
            .borrow_mut()
            .extract_if(.., is_closed)
            .collect::<Vec<_>>();
        closed.iter().for_each(|(_, drain)| drain.trigger(limit));
    }
}

/// The input of every core.
pub(super) struct CoreSetup<F> {
    pub(super) make: F,
    pub(super) started: Sender<Result<(), StartError>>,
    pub(super) ended: Arc<AtomicUsize>,
}

/// Reports that the core is ready for listeners, and serves until it is drained.
pub(super) async fn serve_core<S, F>(setup: Arc<CoreSetup<F>>)
where
    S: Service,
    F: Fn() -> (Rc<S>, ServeOptions),
{
    let mut status = CoreStatus {
        started: Some(setup.started.clone()),
        ended: Arc::clone(&setup.ended),
    };
    let listeners = CoreListeners::new((setup.make)());
    let of_core: Rc<dyn Listeners> = listeners.clone();
    LISTENERS.set(Some(Rc::downgrade(&of_core)));
    drop(of_core);
    status.report(Ok(()));
    listeners.serve().await;
}

/// Starts the listeners and serves on the calling core until it is drained: for programs that start
/// their cores themselves.
///
/// # Errors
/// [`StartError::Listen`].
pub async fn serve_on_core<S: Service>(
    configs: &[BoundConfig],
    make: impl FnOnce() -> (Rc<S>, ServeOptions),
) -> Result<(), StartError> {
    let listeners = CoreListeners::new(make());
    let numbered: Vec<_> = configs.iter().cloned().enumerate().collect();
    listeners.open(&numbered)?;
    listeners.serve().await;
    Ok(())
}

/// Reports the start and the end of a core. It is dropped in every case, also after a panic or a failure
/// of the driver.
struct CoreStatus {
    /// Receives the result of the start; `None` once it was sent.
    started: Option<Sender<Result<(), StartError>>>,
    ended: Arc<AtomicUsize>,
}

impl CoreStatus {
    fn report(&mut self, result: Result<(), StartError>) {
        if let Some(started) = self.started.take() {
            // The receiver is gone only if another core has failed to start.
            let _ = started.send(result);
        }
    }
}

impl Drop for CoreStatus {
    fn drop(&mut self) {
        self.report(Err(ended_early()));
        self.ended.fetch_add(1, Ordering::Release);
    }
}
