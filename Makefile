# What there is to do in this tree. `make` alone lists it.

CARGO ?= cargo
PREFIX ?= /usr/local
SYSTEMDDIR ?= $(PREFIX)/lib/systemd
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
# `dev` builds in a third of the time what is a third as fast.
PROFILE ?= release
FUZZ_SECONDS ?= 30
# Rounds of each attack in the soak, with each of four seeds; as many kills of a server's storage, ten times as many of a server.
SOAK_ROUNDS ?= 100
# Of kernel-test and rtl-test: --rest leaves out what `make test` has run.
PART ?=
# Of engine-kernel-test.
BEDS ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)
CIPHER_BENCH := --manifest-path bench/ciphers/Cargo.toml --target-dir $(TARGET)
BUILT := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))

.PHONY: help build demo test test-later test-all soak kernel-test kernel-vectors kernel-test-all kernel-stress kernel-series rtl-test engine-demo engine-test engine-kernel-test rtl-test-full rtl-report test-constant-time test-aarch64 test-uml612 test-ublk static test-static fuzz bench bench-adiantum bench-volume bench-far bench-tls bench-direct bench-rbd bench-guest bench-engine bench-papers bench-soc bench-kernel man install install-system deb test-deb tour test-boot test-fido2 test-ceph test-container install-lib package-check check audit clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the xtent command and its helper for tokens, optimised
	@scripts/setup.sh build
	$(CARGO) build --profile $(PROFILE) --package xtent --package xtent-token-plugin

demo: ## make, serve, use and cross-check an encrypted volume
	@scripts/setup.sh demo
	@scripts/demo.sh

test: ## every crate with every peer, the kernel module, one core of each design: some 25 minutes on two cores with the first build
	@scripts/setup.sh test
	@scripts/setup.sh kernel
	@scripts/setup.sh rtl
	@scripts/setup.sh ceph || echo "NOT RUN: tests of volumes in a Ceph cluster, whose packages are missing"
	@scripts/test.sh

test-later: ## servers against every peer again, on the driver for stores that complete later; needs a disk below TMPDIR
	@scripts/setup.sh test
	XTENT_SERVE_OPTIONS=--direct-io $(CARGO) test --workspace --test matrix --test nbd_clients --test wide_block --test faults --test kills

test-all: PART := --rest
test-all: test test-later kernel-test rtl-test engine-test soak test-constant-time ## make test, and all that takes longer but no special machine

soak: ## SOAK_ROUNDS (100) of each attack by clients, ten times as many kills of a server under load, as many of the storage behind it, what many volumes cost; long
	@scripts/setup.sh test
	@scripts/setup.sh kernel
	@scripts/setup.sh ceph || echo "NOT RUN: kills of gateways of an image, since Ceph's packages are missing"
	XTENT_SOAK_ROUNDS=$(SOAK_ROUNDS) $(CARGO) test --workspace --test kills --test far_kills --test hostile_clients --test many --test standby --test vhost_user --test ublk -- --ignored soak --nocapture

# The kernel of User Mode Linux has no disk that completes in interrupts. The job about nothing but those takes four to nine
# minutes in QEMU: kernel-test-all has it.
kernel-test: ## all jobs of dm-xtent in User Mode Linux, against dm-crypt, and in QEMU the ways of requests that complete in interrupts; block devices and virtual machines' disks that a process serves
	@scripts/setup.sh kernel
	@kernel/test/run.sh $(PART)
	@JOBS='ways of requests' kernel/test/run.sh x86-6.1
	$(CARGO) test --workspace --test kernel_modules --test ublk --test ublk_mount --test vhost_user -- --ignored --skip soak --skip linux_612 --skip qemu
	@$(MAKE) kernel-vectors SOURCE=source-6.1

# By the kernel's own test vectors, of its source.
kernel-vectors:
	XTENT_TESTMGR=$$(scripts/kernel.sh $(SOURCE))/crypto/testmgr.h $(CARGO) test --workspace --lib -- --ignored kernel_vectors

kernel-test-all: ## the same for every kernel, with power-offs; long, needs root
	@scripts/setup.sh kernel-all
	@status=0; kernel/test/run.sh all || status=1; \
		$(CARGO) test --workspace --test kernel_modules --test kernel612 -- --ignored || status=1; exit $$status

kernel-stress: ## dm-xtent with all that it can do at once, for MINUTES (30), in the kernel BED (uml-7-smp)
	@scripts/setup.sh $(if $(filter x86-7%,$(BED)),kernel-all,kernel)
	@kernel/test/stress.sh $(or $(BED),uml-7-smp) $(or $(MINUTES),30)

kernel-series: ## the patch series for Linux 7.3: mails, checks, builds, guests; PART=... does one part; half an hour and more
	@scripts/setup.sh kernel-series
	@scripts/kernel-series.sh $(PART)

rtl-test: ## lint, prove and simulate the hardware cores, the quick tests
	@scripts/setup.sh rtl
	@rtl/test/run.sh $(PART) --build $(TARGET)/rtl

engine-demo: ## a volume whose cipher is the simulated co-processor, read back by the CPU and by dm-crypt; minutes
	@scripts/setup.sh engine
	@scripts/engine-demo.sh

engine-test: ## the simulated co-processor as a device, and the driver in user space against it
	@scripts/setup.sh engine
	@scripts/engine-test.sh

engine-kernel-test: ## Linux's driver for the co-processor against its simulation, in User Mode Linux; BEDS=--all: every kernel, in QEMU too
	@scripts/setup.sh engine-kernel
	@scripts/engine-kernel-test.sh $(BEDS)

rtl-test-full: ## every design and configuration of them with thousands of sectors, an hour
	@scripts/setup.sh rtl
	@rtl/test/run.sh --full --build $(TARGET)/rtl

rtl-report: ## cycles, area and speed of the hardware cores: rtl/REPORT.md
	@scripts/setup.sh rtl-report
	rtl/syn/report.py --build $(TARGET)/rtl --markdown rtl/REPORT.md $(RTL_REPORT)

test-constant-time: ## step through every cipher and back-end, some minutes
	$(CARGO) test --workspace --test constant_time -- --ignored trace::

test-aarch64: ## the ciphers' tests for 64-bit ARM, emulated; needs root
	@scripts/setup.sh aarch64
	@scripts/test-aarch64.sh

test-uml612: ## HCTR2 and Adiantum against a kernel 6.12, built the first time; its block devices that a process serves
	@scripts/setup.sh uml612
	@scripts/kernel.sh uml-6.12
	@scripts/kernel.sh uml-6.12-fast
	$(CARGO) test --workspace --test kernel612 -- --ignored
	$(CARGO) test --workspace --test ublk --test ublk_mount -- --ignored linux_612
	@$(MAKE) kernel-vectors SOURCE=source-6.12

test-ublk: ## block devices that a process serves, in QEMU on x86-64 with Linux 6.12 and 7: several queues, growth; needs root
	@scripts/setup.sh kernel-all
	$(CARGO) test --workspace --test ublk -- --ignored qemu

check: ## format, lints, licences, locked dependencies, documentation
	@scripts/setup.sh build
	@scripts/dependencies.py
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --package xtent --no-default-features -- -D warnings
	$(CARGO) clippy --package xtent-rbd --features bench --all-targets -- -D warnings
	$(CARGO) fmt --manifest-path bench/ciphers/Cargo.toml --check
	$(CARGO) clippy $(CIPHER_BENCH) --no-default-features --all-targets -- -D warnings
	$(CARGO) fmt --manifest-path rtl/cosim/Cargo.toml --check
	$(CARGO) clippy --manifest-path rtl/cosim/Cargo.toml --target-dir $(TARGET)/cosim --all-targets -- -D warnings
	@rtl/engine/generate.py --check
	@scripts/package-check.sh --quick
	@scripts/licences.py
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items

audit: ## known holes in the crates that we depend on; needs the network
	@scripts/audit.sh

static: ## a statically linked xtent, for any Linux of this machine's kind
	@scripts/setup.sh static
	@PROFILE=$(PROFILE) scripts/static.sh

test-static: ## build it with musl and with glibc, and use it where there is nothing else; needs root
	@scripts/setup.sh static-test
	@PROFILE=$(PROFILE) scripts/test-static.sh

fuzz: ## every fuzz target, FUZZ_SECONDS (30) each: docs/fuzzing.md
	@scripts/setup.sh test
	@scripts/fuzz.sh --seconds $(FUZZ_SECONDS)

bench: ## the ciphers against other libraries, the first time with the network; BENCH="..." gives it options
	@scripts/setup.sh bench
	$(CARGO) run $(CIPHER_BENCH) --release -- --output $(TARGET)/bench-ciphers $(BENCH)

bench-adiantum: ## Adiantum against the code that Linux has for it on x86, built for user space
	@scripts/setup.sh kernel
	$(CARGO) build --release --package sector-cipher-c
	bench/adiantum/compare.py --library $(TARGET)/release/libsector_cipher.a --output $(TARGET)/bench-adiantum $(BENCH)

bench-volume: build ## the server against qemu-nbd and nbdkit
	@scripts/setup.sh bench
	bench/volume/compare.py --xtent $(TARGET)/release/xtent --output $(TARGET)/bench-volume $(BENCH)

bench-far: build ## volumes behind an NBD server that takes its time, against qemu-nbd
	@scripts/setup.sh bench
	bench/volume/far.py --xtent $(TARGET)/release/xtent --output $(TARGET)/bench-volume $(BENCH)

bench-tls: build ## the server and its client of other servers with TLS and without
	@scripts/setup.sh bench
	bench/volume/tls.py --xtent $(TARGET)/release/xtent --output $(TARGET)/bench-volume $(BENCH)

bench-direct: build ## volumes on this disk, past the page cache and through it
	@scripts/setup.sh bench
	bench/volume/direct.py --xtent $(TARGET)/release/xtent --folder $(TARGET) --output $(TARGET)/bench-volume $(BENCH)

bench-rbd: build ## volumes in a Ceph cluster of this machine's own, against librbd's own encryption
	@scripts/setup.sh ceph
	@scripts/setup.sh bench
	$(CARGO) build --release --package xtent-rbd --features bench --example load
	bench/volume/rbd.py --xtent $(TARGET)/release/xtent --load $(TARGET)/release/examples/load --output $(TARGET)/bench-volume $(BENCH)

bench-guest: build ## a virtual machine's disk, encrypted outside it by xtent or qemu-storage-daemon, or inside it
	@scripts/setup.sh kernel
	@scripts/setup.sh bench
	bench/guest/disk.py --xtent $(TARGET)/release/xtent --output $(TARGET)/bench-guest $(BENCH)

bench-engine: ## the co-processor's cycles beside the papers' figures: docs/coprocessor-figures.md
	@scripts/setup.sh engine
	rtl/cosim/model.sh --models $(TARGET)/rtl/cosim ecb ecb-bus8 ecb-bus4 xts-512 xts-512-bus8 xts-512-bus4 xts xts-bus8 xts-bus4
	$(CARGO) build --release --manifest-path rtl/cosim/Cargo.toml --target-dir $(TARGET)/cosim
	bench/engine/figures.py --models $(TARGET)/rtl/cosim --measure $(TARGET)/cosim/release/xtent-engine-measure $(BENCH)

bench-papers: ## the tables and figures of the papers, in simulated time; BENCH=pays, by this machine's: from where on an engine pays: docs/experiments.md
	@scripts/setup.sh engine
	@scripts/setup.sh kernel
	rtl/cosim/model.sh --models $(TARGET)/rtl/cosim ecb-bus4 xts-512-bus4 xts-bus4
	$(CARGO) build --release --manifest-path rtl/cosim/Cargo.toml --target-dir $(TARGET)/cosim
	bench/papers/$(if $(filter pays,$(BENCH)),pays.py,run.py) --sim $(TARGET)/cosim/release/xtent-engine-sim --models $(TARGET)/rtl/cosim --output $(TARGET)/bench-papers $(filter-out pays,$(BENCH))

bench-soc: ## a CPU and the co-processor on one bus, step by step, beside the papers' figures: rtl/soc/README.md
	@scripts/setup.sh rtl
	rtl/soc/measure.py --build $(TARGET)/rtl/soc --readme rtl/soc/README.md $(BENCH)

bench-kernel: ## dm-xtent against dm-crypt in User Mode Linux; BENCH="..." gives it options
	@scripts/setup.sh kernel
	bench/kernel/compare.py --output $(TARGET)/bench-kernel $(BENCH)

man: build ## the manual pages, in target/man
	@rm -rf $(TARGET)/man && mkdir -p $(TARGET)/man
	@$(BUILT)/xtent man $(TARGET)/man
	@ls $(TARGET)/man | sed 's|^|$(TARGET)/man/|'

install: build man ## command, manual pages and completions below PREFIX (/usr/local)
	install -Dm755 $(BUILT)/xtent $(DESTDIR)$(PREFIX)/bin/xtent
	install -Dm755 $(BUILT)/xtent-token-plugin $(DESTDIR)$(PREFIX)/libexec/xtent/xtent-token-plugin
	install -d $(DESTDIR)$(PREFIX)/share/man/man7 $(DESTDIR)$(PREFIX)/share/man/man8
	install -m644 $(TARGET)/man/*.7 $(DESTDIR)$(PREFIX)/share/man/man7/
	install -m644 $(TARGET)/man/*.8 $(DESTDIR)$(PREFIX)/share/man/man8/
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	    $(DESTDIR)$(ZSHDIR) $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(BUILT)/xtent completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/xtent
	$(BUILT)/xtent completions zsh >$(DESTDIR)$(ZSHDIR)/_xtent
	$(BUILT)/xtent completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/xtent.fish

install-system: install ## and systemd units, crypttab, initramfs; with PREFIX=/usr
	DESTDIR="$(DESTDIR)" scripts/install-system.sh $(PREFIX) $(SYSTEMDDIR)

deb: ## Debian packages, in target/deb
	@scripts/setup.sh deb
	@scripts/deb.sh

test-deb: ## install and remove the packages in a fresh Debian 12; needs root
	@scripts/setup.sh deb-test
	@scripts/test-deb.sh

tour: ## type docs/tour.md, a first session, in a fresh Debian 12 with the package of make deb; needs root
	@scripts/setup.sh deb-test
	@scripts/tour.sh

test-boot: ## boot a root file system that the packages open, with a software TPM too; needs root
	@scripts/setup.sh boot
	@scripts/test-boot.sh

test-container: ## build the image of the Containerfile and serve a volume from it; needs root
	@scripts/setup.sh container
	@scripts/test-container.sh

test-fido2: ## tokens of FIDO2 security keys, in software, in a guest with uhid: two minutes
	@scripts/setup.sh fido2
	$(CARGO) build --package xtent --package xtent-token-plugin
	XTENT_BIN=$(abspath $(TARGET))/debug/xtent $(CARGO) test --config 'target."cfg(all())".runner="scripts/in-guest.sh"' \
	    --package xtent-tests --test fido2 -- --ignored --test-threads=1

test-ceph: ## volumes in a Ceph cluster of this machine's own: librbd, QEMU, fencing, faults; two minutes
	@scripts/setup.sh ceph
	$(CARGO) test --package xtent-rbd --package xtent-tests --test rbd --test rbd_faults --test standby
	$(CARGO) test --package xtent-tests --test rbd_faults -- --ignored --test-threads=1

install-lib: ## the ciphers' C library, header and pkg-config file below PREFIX
	@scripts/setup.sh build
	$(CARGO) build --release --package sector-cipher-c
	DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' crates/sector-cipher-c/install.sh $(TARGET)/release

package-check: ## the crates that may be published: packed, and built from their packages
	@scripts/package-check.sh

clean: ## remove what was built
	$(CARGO) clean
