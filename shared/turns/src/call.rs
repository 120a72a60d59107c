//! Which calls take turns, and which of two that wait comes first.

/// A heavy call, or what comes before one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// No call: what the node has to have before RunPodSandbox, such as directories, a
    /// cgroup and volumes. Of a hundred pods at once the first is not to wait for what all
    /// the others need.
    Prepare,
    /// RunPodSandbox.
    RunSandbox,
    /// CreateContainer.
    CreateContainer,
    /// StartContainer.
    StartContainer,
    /// StopPodSandbox.
    StopSandbox,
    /// RemovePodSandbox.
    RemoveSandbox,
    /// RemoveContainer.
    RemoveContainer,
    /// RemoveImage.
    RemoveImage,
}

/// What a call is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The pod is to run: even a removal clears the way for a start.
    Run,
    /// The pod is being ended, or what is left of one is cleared away.
    End,
}

/// Calls of an earlier class come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Goes on with a pod that has been begun.
    Begun,
    /// Begins a pod that is prepared.
    New,
    /// Prepares a pod.
    Prepare,
    /// Stops the sandbox of a pod that is being ended, which somebody may wait for.
    Stop,
    /// Removes something that nobody waits for.
    Removal,
}

impl Class {
    /// Whether calls of this class end a pod, or clear away what is left of one.
    #[must_use]
    pub fn ends(self) -> bool {
        matches!(self, Class::Stop | Class::Removal)
    }
}

impl Call {
    /// Whether it makes or starts something in the runtime.
    #[must_use]
    pub fn starts(self) -> bool {
        match self {
            Self::RunSandbox | Self::CreateContainer | Self::StartContainer => true,
            Self::Prepare
            | Self::StopSandbox
            | Self::RemoveSandbox
            | Self::RemoveContainer
            | Self::RemoveImage => false,
        }
    }

    /// Its name in the CRI.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "preparations",
            Self::RunSandbox => "RunPodSandbox",
            Self::CreateContainer => "CreateContainer",
            Self::StartContainer => "StartContainer",
            Self::StopSandbox => "StopPodSandbox",
            Self::RemoveSandbox => "RemovePodSandbox",
            Self::RemoveContainer => "RemoveContainer",
            Self::RemoveImage => "RemoveImage",
        }
    }

    /// The class of this call when it is made for `purpose`.
    #[must_use]
    pub fn class(self, purpose: Purpose) -> Class {
        match self {
            Self::Prepare => Class::Prepare,
            Self::RunSandbox => Class::New,
            Self::CreateContainer | Self::StartContainer => Class::Begun,
            Self::StopSandbox | Self::RemoveSandbox | Self::RemoveContainer | Self::RemoveImage => {
                match (purpose, self) {
                    (Purpose::Run, _) => Class::Begun,
                    (Purpose::End, Self::StopSandbox) => Class::Stop,
                    (Purpose::End, _) => Class::Removal,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_begun_comes_before_what_is_new_and_removals_are_last() {
        for (call, purpose, class) in [
            (Call::Prepare, Purpose::Run, Class::Prepare),
            (Call::RunSandbox, Purpose::Run, Class::New),
            (Call::CreateContainer, Purpose::Run, Class::Begun),
            (Call::StartContainer, Purpose::Run, Class::Begun),
            (Call::StopSandbox, Purpose::Run, Class::Begun),
            (Call::RemoveContainer, Purpose::Run, Class::Begun),
            (Call::StopSandbox, Purpose::End, Class::Stop),
            (Call::RemoveSandbox, Purpose::End, Class::Removal),
            (Call::RemoveContainer, Purpose::End, Class::Removal),
            (Call::RemoveImage, Purpose::End, Class::Removal),
        ] {
            assert_eq!(call.class(purpose), class, "{call:?} {purpose:?}");
        }
        assert!(Class::Begun < Class::New && Class::New < Class::Prepare);
        assert!(Class::Prepare < Class::Stop && Class::Stop < Class::Removal);
    }
}
