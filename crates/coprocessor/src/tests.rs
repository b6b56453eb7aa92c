//! The driver against the model of the device.

mod ciphers;
