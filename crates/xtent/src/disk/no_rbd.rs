//! What stands in for images in a Ceph cluster where this program was built without them.

use std::path::Path;
use std::sync::Arc;

use xtent_control::Source;
use xtent_secret::SecretBytes;
use xtent_store::{Access, Place, Store};

use crate::failure::{Failure, Result};

/// There is none.
#[derive(Debug)]
pub(crate) enum Image {}

impl Image {
    pub(crate) fn open(name: &Path, _: Access) -> Result<Self> {
        Err(refuse(name))
    }

    pub(crate) fn take_over(name: &Path) -> Result<Self> {
        Err(refuse(name))
    }

    pub(crate) fn refuse_writes_to_snapshot(&self, _: bool) -> Result<()> {
        match *self {}
    }

    pub(crate) fn hand_over(&self, _: bool) -> Result<(Source, Option<SecretBytes>)> {
        match *self {}
    }

    pub(crate) fn name(&self) -> &Path {
        match *self {}
    }

    pub(crate) fn bare_name(&self) -> &Path {
        match *self {}
    }

    pub(crate) fn on_loss(&self, _: impl FnOnce() + Send + 'static) {
        match *self {}
    }

    pub(crate) fn on_change(&self, _: impl Fn() + Send + Sync + 'static) {
        match *self {}
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match *self {}
    }

    pub(crate) fn as_store(&self) -> &(dyn Store + 'static) {
        match *self {}
    }
}

pub(crate) fn has_clients() -> bool {
    false
}

pub(crate) fn load() -> bool {
    false
}

/// There is none.
#[derive(Clone, Debug)]
pub(crate) enum Opener {}

impl Opener {
    pub(crate) fn start() -> Result<Self> {
        Err(refuse(Path::new("rbd:")))
    }

    pub(crate) fn open(
        &self,
        _: &str,
        _: &str,
        _: &[(String, String)],
        _: Option<SecretBytes>,
        _: Access,
    ) -> Result<Image> {
        match *self {}
    }

    pub(crate) fn on_change(&self, _: &Image, _: impl Fn() + Send + Sync + 'static) {
        match *self {}
    }
}

pub(crate) fn is_image(name: &Path) -> bool {
    name.as_os_str().as_encoded_bytes().starts_with(b"rbd:")
}

pub(crate) fn place(name: &Path) -> Result<Option<Place>> {
    match is_image(name) {
        true => Err(refuse(name)),
        false => Ok(None),
    }
}

pub(crate) fn are_same(_: &Path, _: &Path) -> bool {
    false
}

fn refuse(name: &Path) -> Failure {
    Failure::parameters(format!(
        "{}: this xtent was built without Ceph (a static one cannot load its library)",
        name.display()
    ))
    .advise("Use one that is not static. A file of such a name is `./rbd:...`.")
}
