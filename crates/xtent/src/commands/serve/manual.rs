//! What `xtent serve --help` says beside its options.

pub(super) const MANUAL: &str = "\
EXAMPLES:
  Serve on the default socket; the URI to give to clients is printed:
    xtent serve disk.img
  In the background of a shell, where no passphrase can be asked for:
    xtent serve --nbd unix:/tmp/disk.sock --key-file key disk.img &
  Several, each an export under its file's name; one more later, and one less:
    xtent serve root.img data.img
    xtent attach more.img
    xtent detach data.img
  What a configuration file says, in a sandbox of its own before and after:
    xtent serve --config /etc/xtent/gateway.toml --check
    xtent serve --config /etc/xtent/gateway.toml
  Serve read-only on a TCP port of this machine, with a key file:
    xtent serve --read-only --nbd tcp:localhost:10809 --key-file key disk.img
  To other machines, with TLS, for the client whose certificate says that it is alice:
    xtent serve --nbd tcp:0.0.0.0 --tls-certificates /etc/xtent/tls --tls-verify-peer \\
      --tls-client alice disk.img
  Use it, with libnbd, QEMU or the kernel's client (as root):
    nbdinfo 'nbd+unix:///?socket=/tmp/disk.sock'
    qemu-img convert -p 'nbd+unix:///?socket=/tmp/disk.sock' copy.raw
    nbd-client -unix /tmp/disk.sock /dev/nbd0 && mount /dev/nbd0 /mnt
  As a systemd service with socket activation, the passphrase a credential
  (disk.socket, disk.service, and how the credential is made):
    [Socket]
    ListenStream=/run/disk.sock
    SocketMode=0600

    [Service]
    Type=notify
    LoadCredentialEncrypted=xtent.passphrase:/etc/xtent/disk.cred
    ExecStart=/usr/local/bin/xtent serve /var/lib/disk.img

    systemd-creds encrypt --name=xtent.passphrase key /etc/xtent/disk.cred
  Back up a plain image encrypted, without an encrypted copy here: make a header
  for it, which changes nothing in the image, and serve what it would be encrypted:
    xtent format --header disk.header disk.raw
    xtent serve --encrypt --header disk.header --run 'nbdcopy \"$uri\" /backup/disk.luks' disk.raw
    cp disk.header /backup && xtent decrypt --header /backup/disk.header /backup/disk.luks disk.raw
  Serve a volume in a QCOW2 image, by way of another server, which sees ciphertext only:
    qemu-nbd --persistent --format=qcow2 --socket=/tmp/far.sock disk.qcow2 &
    xtent serve 'nbd+unix:///?socket=/tmp/far.sock'
  Serve a volume in a Ceph cluster, and one of its snapshots:
    xtent serve rbd:pool/disk
    xtent serve --read-only rbd:pool/disk@monday:id=backup
  Where a second machine is to take over when the first is gone, on both of them:
    xtent serve --standby --nbd tcp:0.0.0.0 --tls-certificates /etc/xtent/tls --tls-verify-peer \\
      rbd:pool/disk
  As the disk of a virtual machine of QEMU, whose memory has to be shared (a new
  QEMU has reconnect-ms=1000 in place of reconnect=1):
    xtent serve --vhost-user /tmp/disk.vhost disk.img &
    qemu-system-x86_64 -m 2G -object memory-backend-memfd,id=m,size=2G,share=on \\
      -machine memory-backend=m -chardev socket,id=d,path=/tmp/disk.vhost,reconnect=1 \\
      -device vhost-user-blk-pci,chardev=d ...
  With a cipher engine, here a simulated one that is to have every request (docs/coprocessor.md):
    xtent serve --engine vfio-user:/tmp/engine.sock --engine-threshold 0 disk.img
  For one command, which finds the URI in $uri and the socket in $unixsocket:
    xtent serve --read-only --run 'nbdcopy \"$uri\" - | zstd >copy.zst' disk.img

NOTES:
  It runs in the foreground until SIGINT or SIGTERM, then finishes the requests
  under way, flushes, and ends with exit code 0 if everything is on the disk (with
  --run: 130 or 143, since the command was cut short). A
  second signal ends it at once (exit code 130 or 143).

  It does not end with the terminal it was started on: somebody may be using the
  disk.

  A volume whose size the header does not fix grows with its device, for clients that
  connect from then on. NBD has no way to tell the others: they see the old size until
  they connect again. A device that has become larger is noticed in about 20 seconds, and at
  once at SIGHUP and `xtent resize`, without which the server of another export is not
  asked. A device that became smaller is logged, and what is missing fails.
  SIGUSR1 and SIGUSR2 are ignored.

  Of several DEVICEs each is an export under the name of its file, whole (disk.img); of
  one, under the empty name. Options that are meant for one volume are refused for several.
  Each volume has threads and memory of its own while it has clients: one whose disk is slow
  holds up no other. All are opened, or none is served. `xtent attach`, `xtent detach` and
  `xtent resize` change a server that runs, `xtent status` shows what it has.
  What a server for each volume has over that is a failure, a restart and a sandbox for
  each: the Debian package has a template unit for that, xtent-serve@.service, whose
  `systemctl reload` looks at the size again, and xtent-gateway@.service for a configuration
  file, whose reload attaches and detaches what has changed in it.

  A client that has chosen an export may be silent for as long as it likes: an
  idle virtual machine keeps its disk. One that does not get so far in 30 seconds
  is disconnected. Clients beyond --connections are refused, which is logged with
  their address or process; those that are connected keep what they have.

  With -v the log has a line for each connection and its end, with what it read
  and wrote. A request that fails is logged with its client always. Where standard
  error is systemd's journal, entries have a priority and fields: XTENT_EXPORT,
  XTENT_DEVICE, XTENT_CLIENT (a connection's number), XTENT_PEER (its address or process),
  and the other values of the line, as in `journalctl XTENT_EXPORT=web`.

  Once the volume is open it gives up all capabilities and confines itself
  (Landlock, seccomp) to the open volume and its clients; with -v it says what
  the kernel had to offer.

  Keys can be changed with `xtent key` or cryptsetup while it serves.

  TLS is version 1.3, with certificates in files named as libnbd, nbdkit and QEMU name them
  (docs/gateway.md has how to make some). --tls allow can be taken away by whoever is
  between a client and the server, unless the client insists. Without --tls-verify-peer
  everybody is let in; nobody else can read along.

  DEVICE may be nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH; with TLS nbds:// and
  nbds+unix://, and tls-certificates=DIR and tls-hostname=NAME among the parameters. When the
  connection is lost, requests wait while it is made again (--reconnect), and what was written
  and not flushed is written again first. That one process only writes to an export is seen to
  among this user's on this machine; the server has to keep others away.

  DEVICE may be rbd:POOL/[NAMESPACE/]IMAGE[@SNAPSHOT][:id=USER][:conf=FILE], an image in a Ceph
  cluster (Debian package librbd1). A server that writes has the image's exclusive lock: another
  writer, also `xtent key`, is refused with the address of the one that has it. A server whose
  lock was taken away by force answers no request any more, parts from the clients of that
  volume, and ends with exit code 5, at once if it has no other. Snapshots are served with
  --read-only. Requests wait for a cluster that is away, however long.

  With --standby it asks for the passphrase at once, without locking or writing anything, and
  waits while another server has the volume, looking once a second. Then it reads the header
  again, refuses another volume than the one it was told of, listens and serves. Where the
  other one still listens there, it waits for up to 30 seconds. A signal ends the wait at once.
  `xtent takeover` has it take an image away from a server that lives. After a server of an image
  was killed or lost the network, that takes as long as the cluster keeps its place (30 seconds,
  osd_client_watch_timeout). docs/gateway.md says what clients see.

  With --encrypt the same image and header give the same bytes each time, so that
  a backup can be incremental; who compares two backups sees which sectors changed,
  as on any encrypted disk. Without the header nobody can open the backup.

  With --discard allow, holes in the image show which sectors are in use, and
  discarded sectors read back as noise. LUKS2's persistent flag allow-discards
  counts as --discard allow, unless the option says otherwise.

  The page cache keeps what was read and written. Clients that cache themselves, as guests
  do, have no use for a second copy in memory: give --direct-io. Hundreds of requests can
  then wait for the disk at a time, in the kernel (io_uring), and less of the CPU is used;
  where the kernel has or allows no io_uring, eight threads wait for them, as without the option.

  A TCP port, on loopback too, is open to every user of this machine: NBD asks for no
  password, only --tls-verify-peer for a certificate. A Unix socket is its owner's.

CONFIGURATION:
  The file of --config is TOML. Paths in it are relative to its folder. It has to be
  root's or the user's own, and closed to other writers, as all folders above it. What is
  not known is refused.
    [server]                                  all of it can be left out
    nbd = [\"unix:/run/xtent/gateway.sock\"]    as --nbd
    allow-remote = false                      as --allow-remote
    connections = 1000                        as --connections
    user = \"nbd\"                              as --user
    pid-file = \"/run/gateway.pid\"             as --pid-file
    metrics = [\"tcp:localhost:9600\"]          as --metrics
    tls-certificates = \"/etc/xtent/tls\"       as --tls-certificates
    tls = \"require\"                           as --tls
    tls-verify-peer = true                    as --tls-verify-peer

    [volume.root]                             a table for each volume, by its export
    device = \"/srv/root.img\"
    header = \"/etc/xtent/root.header\"         detached
    partition = 1
    export = \"the root\"                       where it is not the table's name
    key-file = \"/etc/xtent/root.key\"          one of these, or none: as without options
    credential = \"root\"                       of systemd
    key-command = [\"/usr/bin/fetch\", \"root\"]  prints the passphrase; run without a shell
    volume-key-file = \"/etc/xtent/root.vk\"
    keyfile-offset = 0                        with key-file
    keyfile-size = 32
    key-slot = 0
    no-tokens = true
    cpu = \"portable\"                          as the options of these names
    cipher-threads = \"auto\"
    engine = \"vfio:0000:03:00.0\"              and engine-threshold, -model, -tweaks, -failure
    discard = \"never\"
    holes = \"noise\"
    expect-header = [\"@root.pin\"]
    read-only = true
    direct-io = true
    reconnect = 10
    clients = [\"host\"]                        as --tls-client

  The program of key-command is looked for in $PATH if it has no / in its name. It gets no
  input and has a minute. Its output is the passphrase byte for byte, as a key file's; what it
  writes to standard error is shown.

  Options of volumes (--read-only, --key-file, ...) are refused beside --config: write them into
  the file. Those of the server may be given there, and count in place of the file's.

FILES:
  /run/xtent/NAME.sock, $XDG_RUNTIME_DIR/xtent/NAME.sock
      The default socket, for root and for users. Whoever can connect can read
      and write the plaintext; sockets are made for their owner only. Without
      $XDG_RUNTIME_DIR, as under su or cron, the folder is /run/user/UID/xtent,
      or /tmp/xtent-UID where that is not there either.
      With --run it is NAME.PID.sock, of this server alone.";
