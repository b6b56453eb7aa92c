//! The Verilator model, by `model/xtent_model.h`.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;

use libloading::{Library, Symbol};

/// `XTENT_MODEL_ABI`.
const ABI: u32 = 1;

/// What goes into the model, all through a cycle. Names are those of the ports.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Inputs {
    pub m_axi_rdata: [u64; 2],
    pub s_axil_wdata: u32,
    pub s_axil_awaddr: u16,
    pub s_axil_araddr: u16,
    pub aresetn: bool,
    pub s_axil_awvalid: bool,
    pub s_axil_wstrb: u8,
    pub s_axil_wvalid: bool,
    pub s_axil_bready: bool,
    pub s_axil_arvalid: bool,
    pub s_axil_rready: bool,
    pub m_axi_awready: bool,
    pub m_axi_wready: bool,
    pub m_axi_bid: u8,
    pub m_axi_bresp: u8,
    pub m_axi_bvalid: bool,
    pub m_axi_arready: bool,
    pub m_axi_rid: u8,
    pub m_axi_rresp: u8,
    pub m_axi_rlast: bool,
    pub m_axi_rvalid: bool,
}

/// What comes out of it in that cycle, before the clock's edge that ends it. Bits are of one byte
/// each: other values than 0 and 1 would be the model's mistake, so they are not `bool`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Outputs {
    pub m_axi_wdata: [u64; 2],
    pub m_axi_awaddr: u64,
    pub m_axi_araddr: u64,
    pub s_axil_rdata: u32,
    pub m_axi_wstrb: u16,
    pub interrupt: u16,
    pub s_axil_awready: u8,
    pub s_axil_wready: u8,
    pub s_axil_bresp: u8,
    pub s_axil_bvalid: u8,
    pub s_axil_arready: u8,
    pub s_axil_rresp: u8,
    pub s_axil_rvalid: u8,
    pub m_axi_awid: u8,
    pub m_axi_awlen: u8,
    pub m_axi_awsize: u8,
    pub m_axi_awburst: u8,
    pub m_axi_awvalid: u8,
    pub m_axi_wlast: u8,
    pub m_axi_wvalid: u8,
    pub m_axi_bready: u8,
    pub m_axi_arid: u8,
    pub m_axi_arlen: u8,
    pub m_axi_arsize: u8,
    pub m_axi_arburst: u8,
    pub m_axi_arvalid: u8,
    pub m_axi_rready: u8,
}

/// `struct xtent_model`.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

type Tick = unsafe extern "C" fn(*mut Opaque, *const Inputs, *mut Outputs);

/// Why a model cannot be used.
#[derive(Debug)]
pub enum Error {
    /// The library is not there.
    Missing,
    /// It cannot be opened, or has not got a function that it must have.
    Library(libloading::Error),
    /// It was built for another version of this program.
    Abi(u32),
    /// It has no memory, it says.
    Create,
    /// The path of a trace is none that C can have.
    Path,
    /// It was built without traces.
    NoTrace,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("it is not built"),
            Self::Library(error) => write!(f, "it cannot be opened: {error}"),
            Self::Abi(version) => write!(f, "it is of version {version}, not {ABI}"),
            Self::Create => f.write_str("it does not start"),
            Self::Path => f.write_str("the trace's path has a zero byte"),
            Self::NoTrace => f.write_str("it was built without traces"),
        }
    }
}

impl std::error::Error for Error {}

/// A co-processor, cycle by cycle.
pub struct Model {
    model: NonNull<Opaque>,
    tick: Tick,
    library: Library,
    /// Used by one thread at a time.
    not_sync: PhantomData<*mut ()>,
}

// SAFETY: all of a model's state is in the object and its context, which one owner has and passes
// explicitly; what Verilator keeps for a thread is a cache of whose turn it is.
unsafe impl Send for Model {}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").finish_non_exhaustive()
    }
}

impl Model {
    /// Opens the library that `model.sh` built, and makes a model before its first cycle.
    ///
    /// # Errors
    /// [`Error`]: the library is not there, is no model, or is an old one.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if !path.exists() {
            return Err(Error::Missing);
        }
        // SAFETY: what the user names as a model is trusted as this program is; its initialisers
        // are those of Verilator's run time.
        let library = unsafe { Library::new(path) }.map_err(Error::Library)?;
        // SAFETY: the type is the header's.
        let abi: Symbol<'_, unsafe extern "C" fn() -> u32> =
            unsafe { library.get("xtent_model_abi") }.map_err(Error::Library)?;
        // SAFETY: it has no conditions.
        let version = unsafe { abi() };
        if version != ABI {
            return Err(Error::Abi(version));
        }
        // SAFETY: the type is the header's.
        let tick = *unsafe { library.get::<Tick>("xtent_model_tick") }.map_err(Error::Library)?;
        // SAFETY: the type is the header's.
        let create: Symbol<'_, unsafe extern "C" fn() -> *mut Opaque> =
            unsafe { library.get("xtent_model_create") }.map_err(Error::Library)?;
        // SAFETY: it has no conditions.
        let model = NonNull::new(unsafe { create() }).ok_or(Error::Create)?;
        Ok(Self {
            model,
            tick,
            library,
            not_sync: PhantomData,
        })
    }

    /// One cycle.
    pub fn tick(&mut self, inputs: &Inputs) -> Outputs {
        let mut outputs = Outputs::default();
        // SAFETY: the model is alive, the structures are those of the header, and nobody else uses
        // them during the call.
        unsafe { (self.tick)(self.model.as_ptr(), inputs, &raw mut outputs) };
        outputs
    }

    /// Writes all signals from now on to a VCD file.
    ///
    /// # Errors
    /// [`Error::NoTrace`] if the model was built without that.
    pub fn trace(&mut self, path: &Path) -> Result<(), Error> {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Error::Path)?;
        // SAFETY: the type is the header's.
        let trace: Symbol<'_, unsafe extern "C" fn(*mut Opaque, *const std::ffi::c_char) -> i32> =
            unsafe { self.library.get("xtent_model_trace") }.map_err(Error::Library)?;
        // SAFETY: the model is alive, and the path ends with a zero.
        match unsafe { trace(self.model.as_ptr(), path.as_ptr()) } {
            0 => Ok(()),
            _ => Err(Error::NoTrace),
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: the type is the header's.
        let destroy: Result<Symbol<'_, unsafe extern "C" fn(*mut Opaque)>, _> =
            unsafe { self.library.get("xtent_model_destroy") };
        if let Ok(destroy) = destroy {
            // SAFETY: the model is alive until here, and nobody uses it after.
            unsafe { destroy(self.model.as_ptr()) };
        }
    }
}
