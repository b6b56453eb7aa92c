//! A mount by the kernel's ublk: its device is made, or the one that waits is taken over.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use xtent_export::Shutdown;
use xtent_export::mounts::{Mount, Options, Reserved, Started};
use xtent_export::ublk::{Control, Info, Ready, Server, Serving};
use xtent_upstream::Upstream;
use xtent_volume::Volume;

use super::told;
use crate::disk::Disk;
use crate::failure::{Exit, Failure, Result};
use crate::headerless::Closed;
use crate::open::can_wait;
use crate::output::Output;
use crate::{sandbox, ublk};

/// The driver, and what is to be mounted by it.
pub(super) struct Ublk {
    control: Control,
    /// Whether nothing else will do.
    is_asked_for: bool,
    /// What a killed daemon has left mounted.
    waiting: Option<Reserved>,
    of: Of,
}

/// What the device is known by, and what its server needs.
#[derive(Default)]
struct Of {
    identity: u64,
    /// Whether the device waits for its next server: see `xtent open --ublk`.
    waits: bool,
    upstreams: Vec<Arc<Upstream>>,
    has_image: bool,
}

impl Ublk {
    pub(super) fn new(mut control: Control, is_asked_for: bool, options: &Options) -> Result<Self> {
        // Of several the driver may have heard by half when a daemon that takes them over is killed.
        control.set_queues(1);
        let waiting = Reserved::waiting(options, &mut control)?;
        Ok(Self {
            control,
            is_asked_for,
            waiting,
            of: Of::default(),
        })
    }

    pub(super) fn goes_on(&self) -> bool {
        self.waiting.is_some()
    }

    pub(super) fn look_at(&mut self, container: &Closed, options: &Options) -> Result<()> {
        // Neither that of a device by a name, nor of the same volume on another folder.
        let place = container.data().told_apart()?;
        let dir = options.dir.canonicalize();
        let dir = dir.as_ref().unwrap_or(&options.dir);
        let upstreams = container.upstreams();
        self.of = Of {
            identity: ublk::identity(dir, container.uuid(), &place),
            waits: can_wait(container.uuid(), !upstreams.is_empty()),
            upstreams,
            has_image: container.has_image(),
        };
        let waiting = self.waiting.as_ref().and_then(Reserved::info);
        match waiting.is_some_and(|info| info.identity != self.of.identity || !self.of.waits) {
            true => Err(told::another_volume(&options.dir)),
            false => {
                let own = waiting.map(|info| info.number);
                ublk::refuse_waited_for(&mut self.control, self.of.identity, own)
            }
        }
    }

    pub(super) fn mount(
        mut self,
        (volume, data): (&Arc<Volume>, &Disk),
        options: &Options,
        output: &Output,
        failed: impl Fn(xtent_export::Error) -> Failure,
    ) -> Result<Mount> {
        let is_asked_for = self.is_asked_for;
        let prepared = match self.waiting.take() {
            Some(waiting) => self.take_over(waiting, (volume, data), &options.dir, output)?,
            None => match self.make((volume, data), options) {
                Ok(prepared) => prepared,
                Err(failure) if is_asked_for => return Err(failure),
                Err(failure) => {
                    told::by_fuse(&failure);
                    return Mount::new(Arc::clone(volume), options).map_err(failed);
                }
            },
        };
        let (reserved, started) = prepared;
        tracing::info!(
            device = %ublk::device(started.info.number).display(),
            taken_over = started.is_taken_over,
            "mounting by ublk"
        );
        reserved.mount(started, options).map_err(failed)
    }

    /// A new device, which is started.
    fn make(
        self,
        (volume, data): (&Arc<Volume>, &Disk),
        options: &Options,
    ) -> Result<(Reserved, Started)> {
        let Self {
            mut control, of, ..
        } = self;
        let mut reserved = Reserved::new(options)?;
        let info = control.add(volume, of.identity, of.waits)?;
        let mut made = Made {
            control: Some(control),
            info,
        };
        reserved.note(&info)?;
        let node = format!("/dev/ublkc{}", info.number);
        expect(Path::new(&node), FileTypeExt::is_char_device)?;
        let serving = of.ready(&info, volume)?.serve(&info)?;
        made.start()?;
        expect_device(info.number)?;
        ublk::stop_at_loss(data, &info)?;
        let control = made.keep()?;
        Ok((reserved, of.started(control, info, volume, serving, false)))
    }

    /// The device that waits, with the threads of this process.
    fn take_over(
        self,
        waiting: Reserved,
        (volume, data): (&Arc<Volume>, &Disk),
        dir: &Path,
        output: &Output,
    ) -> Result<(Reserved, Started)> {
        let Self {
            mut control, of, ..
        } = self;
        let Some(info) = waiting.info().copied() else {
            return Err(told::another_volume(dir));
        };
        expect_device(info.number)?;
        control.check(&info, volume)?;
        let ready = of.ready(&info, volume)?;
        let lost = |error| told::lost(dir, error);
        ublk::hand_over(&mut control, info.number, output).map_err(lost)?;
        let serving = ready.serve(&info).map_err(lost)?;
        control.start(info.number, true).map_err(lost)?;
        ublk::stop_at_loss(data, &info)?;
        Ok((waiting, of.started(control, info, volume, serving, true)))
    }
}

impl Of {
    /// Threads that wait for the device. They are in the sandbox, as far as it is a thread's. This one keeps its
    /// privileges, since unmounting needs them.
    fn ready(&self, info: &Info, volume: &Arc<Volume>) -> Result<Ready> {
        let failed = |e| Failure::system("cannot prepare to serve", e);
        let shutdown = Shutdown::new().map_err(failed)?;
        let needs = sandbox::Needs {
            upstreams: self.upstreams.clone(),
            has_image: self.has_image,
            ..sandbox::Needs::default()
        };
        ublk::spawn_confined(Server::new(info, volume, &shutdown)?, &needs)
    }

    fn started(
        &self,
        control: Control,
        info: Info,
        volume: &Volume,
        serving: Serving,
        is_taken_over: bool,
    ) -> Started {
        Started {
            control,
            info,
            serving,
            is_taken_over,
            waits: self.waits,
            is_read_only: volume.is_read_only(),
            users: ublk::users,
        }
    }
}

/// Fails unless a node of the driver's is there, as it is not in the `/dev` of a container.
fn expect(node: &Path, is_it: impl Fn(&std::fs::FileType) -> bool) -> Result<()> {
    match node.metadata() {
        Ok(metadata) if is_it(&metadata.file_type()) => Ok(()),
        _ => Err(Failure::new(
            Exit::Device,
            format!(
                "the kernel has made a device, but {} is not there: this /dev is not the system's",
                node.display()
            ),
        )),
    }
}

/// Fails unless the device's node is there, and this device's: block devices' numbers are given again, and the
/// `/dev` of a container may be a copy of what the system's was once.
fn expect_device(number: u32) -> Result<()> {
    let is_it = |node: &Path| {
        let rdev = node.metadata().ok()?.rdev();
        let wanted = std::fs::read_to_string(format!("/sys/class/block/ublkb{number}/dev")).ok()?;
        let has = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
        (wanted.trim() == has).then_some(())
    };
    let node = ublk::device(number);
    expect(&node, |it| it.is_block_device() && is_it(&node).is_some())
}

/// A device that was made. Dropped before it is kept, it is gone again.
struct Made {
    control: Option<Control>,
    info: Info,
}

impl Made {
    fn start(&mut self) -> Result<()> {
        match &mut self.control {
            Some(control) => Ok(control.start(self.info.number, false)?),
            None => Ok(()),
        }
    }

    fn keep(mut self) -> Result<Control> {
        let control = self.control.take();
        control.ok_or_else(|| Failure::parameters("the device is kept already"))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(mut control) = self.control.take()
            && let Err(error) = control.delete(self.info.number)
        {
            tracing::warn!(
                error = %xtent_store::chain(&error),
                "{} is left without a server",
                ublk::device(self.info.number).display()
            );
        }
    }
}
