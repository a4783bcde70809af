//! The data of a built app that a request refers to: patterns, states and limits. Handlers are in the
//! [`site`](crate::site), which is built on the request.

use std::any::{Any, TypeId};
use std::rc::Rc;
use std::sync::Arc;

use blitz_site::folder::CoreFiles;

/// The index of a route in its app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RouteId(pub(crate) u32);

/// The pattern of a route.
pub(crate) struct RoutePattern {
    pub(crate) text: String,
    pub(crate) param_names: Vec<Box<str>>,
    /// The most bytes of content that extractors buffer; `None` is that of the app.
    pub(crate) body_bytes_max: Option<usize>,
}

/// The data of an app, shared by all cores.
pub(crate) struct AppData {
    /// By [`RouteId`].
    pub(crate) patterns: Vec<RoutePattern>,
    pub(crate) states: States,
    pub(crate) body_bytes_max: usize,
}

/// The constructors of a core's states.
#[derive(Default)]
pub(crate) struct States(Vec<(TypeId, MakeState)>);

type MakeState = Box<dyn Fn() -> Rc<dyn Any> + Send + Sync>;

impl States {
    pub(crate) fn has<T: 'static>(&self) -> bool {
        self.0.iter().any(|(id, _)| *id == TypeId::of::<T>())
    }

    /// Adds the states of a nested app; if both have a state of one type, ours stays.
    pub(crate) fn join(&mut self, other: States) {
        for (id, make) in other.0 {
            if !self.0.iter().any(|(known, _)| *known == id) {
                self.0.push((id, make));
            }
        }
    }

    /// Adds a state; it replaces one of the same type.
    pub(crate) fn set<T: 'static>(&mut self, make: impl Fn() -> T + Send + Sync + 'static) {
        self.0.retain(|(id, _)| *id != TypeId::of::<T>());
        self.0
            .push((TypeId::of::<T>(), Box::new(move || Rc::new(make()))));
    }
}

/// A core's handle to the data, with its states. Requests clone handles of the core, so that they change no
/// atomic reference count.
pub(crate) struct CoreData {
    app: Arc<AppData>,
    states: Box<[(TypeId, Rc<dyn Any>)]>,
    pub(crate) files: CoreFiles,
}

impl CoreData {
    pub(crate) fn new(app: Arc<AppData>) -> CoreData {
        let states = app
            .states
            .0
            .iter()
            .map(|(id, make)| (*id, make()))
            .collect();
        CoreData {
            app,
            states,
            files: CoreFiles::default(),
        }
    }

    pub(crate) fn pattern(&self, id: RouteId) -> &RoutePattern {
        &self.app.patterns[id.0 as usize]
    }

    /// Most bytes of content that extractors buffer for a route.
    pub(crate) fn body_bytes_max(&self, id: RouteId) -> usize {
        let own = self.pattern(id).body_bytes_max;
        own.unwrap_or(self.app.body_bytes_max)
    }

    pub(crate) fn state<T: 'static>(&self) -> Option<Rc<T>> {
        let (_, state) = self
            .states
            .iter()
            .find(|(id, _)| *id == TypeId::of::<T>())?;
        Rc::clone(state).downcast().ok()
    }
}
