//! Images in a Ceph cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use xtent_control::Source;
use xtent_rbd::{Client, Name};
use xtent_secret::SecretBytes;
use xtent_store::{Access, Act, ErrorKind, Place, Store};

use crate::failure::{Failure, Result};
use crate::{sandbox, signals};

/// An open image, or a snapshot of one.
#[derive(Debug)]
pub(crate) struct Image {
    image: Arc<xtent_rbd::Image>,
    /// The one form that all names have that say the same.
    name: PathBuf,
    /// That without the options.
    bare: PathBuf,
}

impl Image {
    /// Opens an image; for writing, for this client of the cluster alone.
    pub(crate) fn open(name: &Path, access: Access) -> Result<Self> {
        Self::open_by(name, move |name| xtent_rbd::Image::open(name, access))
    }

    /// Opens it for writing, taking its lock away from whoever has it.
    pub(crate) fn take_over(name: &Path) -> Result<Self> {
        Self::open_by(name, xtent_rbd::Image::take_over)
    }

    fn open_by(
        name: &Path,
        open: impl FnOnce(&Name) -> std::result::Result<xtent_rbd::Image, xtent_store::Error>
        + Send
        + 'static,
    ) -> Result<Self> {
        let name = parse(name)?;
        let opened = name.clone();
        let image = confined("rbd open", move || Ok(open(&opened)?))?;
        Ok(Self::new(image, &name))
    }

    fn new(image: xtent_rbd::Image, name: &Name) -> Self {
        Self {
            image: Arc::new(image),
            bare: name.bare().to_string().into(),
            name: name.to_string().into(),
        }
    }

    /// Refuses what no server could open.
    pub(crate) fn refuse_writes_to_snapshot(&self, read_only: bool) -> Result<()> {
        match self.image.name().is_snapshot() && !read_only {
            true => Err(xtent_store::Error {
                source: Some(std::io::Error::other("a snapshot never changes")),
                ..xtent_store::Error::new(
                    ErrorKind::ReadOnly,
                    Act::Open,
                    Place::Image(self.image.name().to_string().into()),
                    None,
                )
            }
            .into()),
            false => Ok(()),
        }
    }

    /// What a server in its sandbox needs to open it, and the key of the cluster's user if it has
    /// one.
    pub(crate) fn hand_over(&self, has_header: bool) -> Result<(Source, Option<SecretBytes>)> {
        let Client {
            user,
            settings,
            key,
        } = self.image.client()?;
        let source = Source::Image {
            name: self.bare.to_string_lossy().into_owned(),
            user,
            settings,
            secret_length: key.as_ref().map_or(0, |key| key.len()),
            has_header,
        };
        Ok((source, key))
    }

    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// The same for every way to the image.
    pub(crate) fn bare_name(&self) -> &Path {
        &self.bare
    }

    /// Has `hear` called when somebody else has taken the image over.
    pub(crate) fn on_loss(&self, hear: impl FnOnce() + Send + 'static) {
        self.image.on_loss(hear);
    }

    /// Has `hear` called when the image has changed.
    pub(crate) fn on_change(&self, hear: impl Fn() + Send + Sync + 'static) {
        let image = Arc::clone(&self.image);
        self.warn_unheard(confined("rbd changes", move || {
            image.on_change(hear).map_err(unheard)
        }));
    }

    fn warn_unheard(&self, listening: Result<()>) {
        if let Err(error) = listening {
            let name = self.bare.display();
            tracing::warn!(%error, "{name} is looked at for its size when SIGHUP comes only");
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.image) as Arc<dyn Store>
    }

    pub(crate) fn as_store(&self) -> &(dyn Store + 'static) {
        &*self.image
    }
}

/// Whether librados has threads, which the ordinary end of a process would have run into what is gone.
pub(crate) fn has_clients() -> bool {
    xtent_rbd::has_clients()
}

/// Carries out what starts threads of the library. They begin as the one that starts them: this is one that
/// can do no more than they have to, and that does not act on signals.
fn confined<T: Send + 'static>(
    name: &str,
    act: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let thread = signals::held_back(|| {
        let thread = std::thread::Builder::new().name(name.into());
        thread.spawn(move || {
            sandbox::confine_client()?;
            act()
        })
    })?;
    let thread = thread.map_err(|e| Failure::system("cannot start a thread", e))?;
    // A panic there has been reported.
    thread
        .join()
        .unwrap_or_else(|_| Err(Failure::parameters(format!("{name}: it has panicked"))))
}

fn unheard(error: std::io::Error) -> Failure {
    Failure::system("cannot listen to an image's changes", error)
}

fn not_opened() -> Failure {
    Failure::parameters("the image could not be opened")
}

/// Loads Ceph's library for a process that can open no files later; whether it is there.
pub(crate) fn load() -> bool {
    xtent_rbd::load()
        .inspect_err(|error| tracing::info!(%error, "no image can be attached to this server"))
        .is_ok()
}

/// Opens images for a server in its sandbox: a thread that begins others. They are as it is, and so
/// are the library's, which begin as those: Landlock, which keeps threads from TCP, came later.
#[derive(Clone, Debug)]
pub(crate) struct Opener(Sender<Job>);

type Job = Box<dyn FnOnce() + Send>;

impl Opener {
    /// Begins it.
    pub(crate) fn start() -> Result<Self> {
        let (ask, asked) = channel::<Job>();
        let begin = move || {
            for job in asked {
                // One that waits for its cluster does not hold up the others. Whoever waits for a job
                // that is dropped is told.
                let thread = std::thread::Builder::new().name("rbd open".into());
                if let Err(error) = thread.spawn(job) {
                    tracing::warn!(%error, "cannot start a thread");
                }
            }
        };
        signals::held_back(|| {
            let thread = std::thread::Builder::new().name("rbd opener".into());
            thread.spawn(begin)
        })?
        .map_err(|e| Failure::system("cannot start a thread", e))?;
        Ok(Self(ask))
    }

    /// Opens an image by what another process has said of it; for writing, for this client of the
    /// cluster alone.
    pub(crate) fn open(
        &self,
        name: &str,
        user: &str,
        settings: &[(String, String)],
        key: Option<SecretBytes>,
        access: Access,
    ) -> Result<Image> {
        let name = parse(Path::new(name))?;
        let opened = name.clone();
        let client = Client {
            user: user.to_owned(),
            settings: settings.to_vec(),
            key,
        };
        let (tell, told) = channel();
        let open: Job = Box::new(move || {
            // Whoever asked waits for it.
            let _ = tell.send(xtent_rbd::Image::open_as(&opened, &client, access));
        });
        self.0.send(open).map_err(|_| not_opened())?;
        let image = told.recv().map_err(|_| not_opened())??;
        Ok(Image::new(image, &name))
    }

    /// As [`Image::on_change`], of an image that was opened here: the library starts a thread for that.
    pub(crate) fn on_change(&self, image: &Image, hear: impl Fn() + Send + Sync + 'static) {
        let (tell, told) = channel();
        let opened = Arc::clone(&image.image);
        let listen: Job = Box::new(move || {
            // Whoever asked waits for it.
            let _ = tell.send(opened.on_change(hear));
        });
        let gone = || unheard(std::io::ErrorKind::BrokenPipe.into());
        let listening = self.0.send(listen).map_err(|_| gone());
        let listening = listening.and_then(|()| match told.recv() {
            Ok(listening) => listening.map_err(unheard),
            Err(_) => Err(gone()),
        });
        image.warn_unheard(listening);
    }
}

/// Whether a name is meant as an image's, be it a right one or not.
pub(crate) fn is_image(name: &Path) -> bool {
    name.to_str().is_some_and(Name::looks_like)
}

/// The image's place, unless the name is of something else.
pub(crate) fn place(name: &Path) -> Result<Option<Place>> {
    match is_image(name) {
        true => Ok(Some(Place::Image(parse(name)?.to_string().into()))),
        false => Ok(None),
    }
}

/// Whether both are images, and the same one.
pub(crate) fn are_same(a: &Path, b: &Path) -> bool {
    is_image(a)
        && is_image(b)
        && matches!((parse(a), parse(b)), (Ok(a), Ok(b)) if a.is_same_image(&b))
}

fn parse(name: &Path) -> Result<Name> {
    let text = name.to_string_lossy();
    let name: Name = text.parse().map_err(|e| {
        let text = match text.split_once(":key=") {
            Some((shown, _)) => shown,
            None => &text,
        };
        Failure::parameters(format!("{text}: {e}")).advise(
            "Known is rbd:POOL/[NAMESPACE/]IMAGE[@SNAPSHOT][:id=USER][:conf=FILE]. A file of such \
             a name is `./rbd:...`.",
        )
    })?;
    // A daemon is in another folder later.
    name.absolute()
        .map_err(|e| Failure::system(format!("cannot find {text}"), e))
}
