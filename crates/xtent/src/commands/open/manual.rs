//! What `xtent open --help` says below the options.

pub(super) const MANUAL: &str = "\
EXAMPLES:
  Open a volume as /dev/mapper/secret, mount its file system, and undo both:
    xtent open secret /dev/sdb1
    mount /dev/mapper/secret /mnt
    umount /mnt && xtent close secret
  An image file goes through a loop device, which goes with the mapping:
    xtent open secret disk.img
  Have no key of it in memory for a while, and go on:
    xtent suspend secret
    xtent resume secret
  Insist on the kernel's dm-crypt, or on dm-xtent:
    xtent open --target crypt secret /dev/sdb1
  A volume of plain dm-crypt, made with the defaults of cryptsetup up to 2.6:
    xtent open --type plain --cipher aes-cbc-essiv:sha256 --key-size 256 \\
        --hash ripemd160 secret /dev/sdb1
  Have a process of this program serve the device; taken over with the same command if
  that is killed:
    xtent open --ublk secret /dev/sdb1
    mount /dev/xtent/secret /mnt
    umount /mnt && xtent close secret

NOTES:
  Without --ublk the kernel encrypts: dm-xtent if it is loaded (kernel/README.md in the sources),
  else dm-crypt; a line on standard error says which, and why. The mapping is as
  cryptsetup would make it: `cryptsetup status` and `close`, and dmsetup, know it.
  cryptsetup does not know dm-xtent, however: its `status`, `close` and `luksSuspend` then fail
  and change nothing; `xtent close` and `suspend`, and dmsetup, do it. It requires root. `xtent serve`
  and `xtent mount` do without the kernel's ciphers.

  The volume key gets to the kernel through this thread's keyring, for LUKS1 as
  well, and is taken out again once the target has it: no table shows it.
  `cryptsetup resize` and `luksResume` of a LUKS1 volume, which expect otherwise,
  want it opened by cryptsetup. Without a header (--type plain) the key is in the table, as
  with cryptsetup, where root can have it shown (`dmsetup table --showkeys`).

  LUKS2's persistent flags count, as with cryptsetup: allow-discards,
  same-cpu-crypt, submit-from-crypt-cpus, no-read-workqueue, no-write-workqueue,
  high-priority. kernel/README.md says what they mean to dm-xtent.

  EME2, AEZ10 and XCB are in no kernel: `xtent serve` and `xtent mount` do them.
  FAST is there once kernel/xtent_fast.ko is loaded.

  Where udev runs it makes /dev/mapper/NAME, and is waited for, as by cryptsetup; where
  it does not, this command makes and removes it.

  SIGINT and SIGTERM before the mapping is complete leave nothing of it, later ones
  and other signals leave it complete. After SIGKILL, `xtent close NAME` clears up.

  With --ublk the kernel (Linux 6.1 or newer, `modprobe ublk_drv`) asks a process of this
  program, which goes into the background and into the sandbox of the servers. The device
  outlives it: requests wait, and the same command takes the device over, if it is the same
  volume in the same place; those that were under way are carried out once more. SIGINT and
  SIGTERM end the process in order and leave the device waiting as well: close it before the
  system goes down. A volume without a header, or on an NBD server, is not taken over: its
  requests fail. An image in a Ceph cluster that another client has been given ends the
  device: its users see errors. A takeover that is killed halfway leaves a device that cannot
  be taken over any more; the next one says so, and `xtent close --force` gives it up. On
  Linux 6.16 and newer the device grows with its storage (`xtent resize NAME`); with older
  ones it keeps its size until it is closed and opened again. Partitions on it are looked for
  by partx(8) only. It is not for swap space: the process may be what has to be swapped in.

FILES:
  /dev/mapper/NAME
      The plaintext, as a block device.
  /dev/xtent/NAME
      The same with --ublk: a link to /dev/ublkbN.";
