//! The AXI4-Lite master: one register access at a time, in order.

use std::fmt;

use crate::model::{Inputs, Outputs};

/// A register access.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Of the register at this offset.
    Read(u16),
    /// And what it gets.
    Write(u16, u32),
}

/// Without what is written, which may be of a key: this goes into errors.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(at) => write!(f, "Read({at:#x})"),
            Self::Write(at, _) => write!(f, "Write({at:#x})"),
        }
    }
}

/// What is left of the access under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    access: Access,
    address: bool,
    data: bool,
}

/// Carries out accesses on the model's pins.
#[derive(Debug, Default)]
pub struct Lite {
    left: Option<Left>,
}

impl Lite {
    /// Whether the next access may start.
    pub fn is_idle(&self) -> bool {
        self.left.is_none()
    }

    /// Starts an access; the one before is done.
    pub fn start(&mut self, access: Access) {
        assert!(self.is_idle(), "one register access at a time");
        self.left = Some(Left {
            access,
            address: true,
            data: matches!(access, Access::Write(..)),
        });
    }

    /// Forgets the access under way: the model is being reset.
    pub fn reset(&mut self) {
        self.left = None;
    }

    /// Sets its pins for the next cycle.
    pub fn drive(&self, inputs: &mut Inputs) {
        inputs.s_axil_awvalid = false;
        inputs.s_axil_wvalid = false;
        inputs.s_axil_arvalid = false;
        inputs.s_axil_bready = true;
        inputs.s_axil_rready = true;
        let Some(left) = self.left else { return };
        match left.access {
            Access::Read(offset) => {
                inputs.s_axil_arvalid = left.address;
                inputs.s_axil_araddr = offset;
            }
            Access::Write(offset, value) => {
                inputs.s_axil_awvalid = left.address;
                inputs.s_axil_awaddr = offset;
                inputs.s_axil_wvalid = left.data;
                inputs.s_axil_wdata = value;
                inputs.s_axil_wstrb = 0xf;
            }
        }
    }

    /// Sees how the cycle went. The access that ended with it, and what was read: all ones where
    /// the model answers with an error, as a bus without an answer gives.
    ///
    /// # Errors
    /// What the model did that AXI4-Lite does not allow.
    pub fn see(
        &mut self,
        inputs: &Inputs,
        outputs: &Outputs,
    ) -> Result<Option<(Access, u32)>, String> {
        let answered = (outputs.s_axil_bvalid != 0, outputs.s_axil_rvalid != 0);
        let Some(left) = &mut self.left else {
            return match answered {
                (false, false) => Ok(None),
                _ => Err("an answer on s_axil to no access".into()),
            };
        };
        // An answer comes after what it answers, not in its cycle.
        let asked = !left.address && !left.data;
        let done = match (left.access, answered) {
            (_, (false, false)) => None,
            (Access::Write(..), (true, false)) if asked => Some(0),
            (Access::Read(_), (false, true)) if asked => Some(if outputs.s_axil_rresp == 0 {
                outputs.s_axil_rdata
            } else {
                u32::MAX
            }),
            (access, _) => {
                return Err(format!(
                    "an answer on s_axil that {access:?} did not ask for"
                ));
            }
        };
        let address_taken = match left.access {
            Access::Read(_) => inputs.s_axil_arvalid && outputs.s_axil_arready != 0,
            Access::Write(..) => inputs.s_axil_awvalid && outputs.s_axil_awready != 0,
        };
        left.address &= !address_taken;
        left.data &= !(inputs.s_axil_wvalid && outputs.s_axil_wready != 0);
        let access = left.access;
        if done.is_some() {
            self.left = None;
        }
        Ok(done.map(|value| (access, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signals of the slave: awready, wready, bvalid, arready, rvalid.
    fn slave([awready, wready, bvalid, arready, rvalid]: [u8; 5]) -> Outputs {
        Outputs {
            s_axil_awready: awready,
            s_axil_wready: wready,
            s_axil_bvalid: bvalid,
            s_axil_arready: arready,
            s_axil_rvalid: rvalid,
            s_axil_rdata: 7,
            ..Outputs::default()
        }
    }

    /// The valid signals of each cycle (awvalid, wvalid, arvalid), and what ends in the last.
    fn run(access: Access, cycles: &[[u8; 5]]) -> Result<(Vec<[bool; 3]>, Option<u32>), String> {
        let mut lite = Lite::default();
        lite.start(access);
        let mut valid = Vec::new();
        let mut done = None;
        for &cycle in cycles {
            let mut inputs = Inputs::default();
            lite.drive(&mut inputs);
            valid.push([
                inputs.s_axil_awvalid,
                inputs.s_axil_wvalid,
                inputs.s_axil_arvalid,
            ]);
            done = lite.see(&inputs, &slave(cycle))?;
        }
        assert_eq!(lite.is_idle(), done.is_some());
        Ok((valid, done.map(|(_, value)| value)))
    }

    #[test]
    fn each_part_is_offered_until_it_is_taken() {
        let write = Access::Write(4, 5);
        let (valid, done) = run(
            write,
            &[[0; 5], [0, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 0, 0]],
        )
        .unwrap();
        assert_eq!(
            valid,
            [
                [true, true, false],
                [true, true, false],
                [true, false, false],
                [false; 3]
            ]
        );
        assert_eq!(done, Some(0));
        let (valid, done) =
            run(Access::Read(4), &[[0; 5], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]).unwrap();
        assert_eq!(
            valid,
            [[false, false, true], [false, false, true], [false; 3]]
        );
        assert_eq!(done, Some(7));
    }

    #[test]
    fn answers_that_nobody_asked_for_are_found() {
        assert!(run(Access::Read(0), &[[0, 0, 0, 0, 1]]).is_err());
        assert!(run(Access::Read(0), &[[0, 0, 0, 1, 0], [0, 0, 1, 0, 0]]).is_err());
        // The error does not say what was written.
        assert_eq!(
            run(
                Access::Write(0x80, 0xabab),
                &[[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]]
            ),
            Err("an answer on s_axil that Write(0x80) did not ask for".into())
        );
        let mut lite = Lite::default();
        assert!(
            lite.see(&Inputs::default(), &slave([0, 0, 1, 0, 0]))
                .is_err()
        );
    }
}
