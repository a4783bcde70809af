//! A value of one level, before it inherits.

/// A value that a level may say.
#[derive(Debug, Clone, Default)]
pub(crate) enum Own<T> {
    /// It says nothing.
    #[default]
    Inherited,
    /// `false`: the default applies.
    Removed,
    /// This value.
    Value(T),
}

impl<T: Clone> Own<T> {
    /// Replaces the inherited value.
    pub(crate) fn apply(&self, inherited: &mut Option<T>) {
        match self {
            Own::Inherited => {}
            Own::Removed => *inherited = None,
            Own::Value(value) => *inherited = Some(value.clone()),
        }
    }

    pub(crate) fn is_written(&self) -> bool {
        !matches!(self, Own::Inherited)
    }

    pub(crate) fn value(&self) -> Option<&T> {
        match self {
            Own::Value(value) => Some(value),
            Own::Inherited | Own::Removed => None,
        }
    }
}
