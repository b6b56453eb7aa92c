//! Serves a file as a volume without a header and with a fixed key, to try and
//! to measure the server: `serve_plain IMAGE SOCKET [SECTOR_SIZE]`. Stop it by
//! closing its standard input.

use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use sector_cipher::{SectorCount, SectorSize};
use xtent_export::Shutdown;
use xtent_export::nbd::{Export, Exports, Options, bind_unix, serve};
use xtent_secret::SecretBytes;
use xtent_store::{Access, FileStore, Store};
use xtent_volume::{Config, DiscardPolicy, Holes, Volume};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, image, socket, rest @ ..] = &args[..] else {
        return Err("usage: serve_plain IMAGE SOCKET [SECTOR_SIZE]".into());
    };
    let sector_size = rest.first().map_or(Ok(512), |arg| arg.parse())?;
    let store = FileStore::open(Path::new(image), Access::ReadWrite)?;
    let config = Config {
        cipher: "aes-xts-plain64".parse().map_err(|_| "unknown cipher")?,
        sector_size: SectorSize::new(sector_size)?,
        sector_count: SectorCount::Units512,
        offset: 0,
        length: store.size(),
        iv_offset: 0,
        read_only: false,
        discard: DiscardPolicy::Allow,
        holes: Holes::Noise,
        backend: None,
    };
    let key: Vec<u8> = (0..64).collect();
    let volume = Volume::open(Arc::new(store), &SecretBytes::copy_of(&key)?, &config)?;
    let (listener, _file) = bind_unix(Path::new(socket))?;
    println!("{}", listener.uri("", false)?);

    let shutdown = Shutdown::new()?;
    let trigger = shutdown.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        trigger.trigger();
    });
    let exports = Exports::new();
    exports.add(Export {
        name: String::new(),
        description: "a trial".into(),
        volume: Arc::new(volume),
        allowed: Vec::new(),
    })?;
    serve(vec![listener], &exports, Options::default(), &shutdown)?;
    Ok(())
}
