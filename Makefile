# The one entry point: what a person types, CI runs too.

PREFIX ?= /usr/local
TARGET ?= $(or $(CARGO_TARGET_DIR),target)
# The folder with the programs that `make install` installs.
BUILT ?= $(TARGET)/release

.DEFAULT_GOAL := help
.PHONY: help packages build man deb rpm dist packages-test dist-test demo test lints headers releases
.PHONY: bench bench-scale scale-out soak loss-long finished-long ha-long golden dashboards grafana
.PHONY: screenshots audit install clean release

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS='	' read -r target text; do \
		printf '  make %-13s %s\n' "$$target" "$$text"; done

packages: ## install what building and testing need (as root), or say what is missing
	@sh tests/packages.sh

build: ## build the three programs for `make install`, and what `make man` does
	@sh tests/packages.sh build
	cargo build --release --locked -p slurm-graphite -p slurm-reader -p rest-reader -p manual-pages
	@$(MAKE) --no-print-directory man

man: ## write the manual pages and completions of what was built
	$(BUILT)/manual-pages $(BUILT)/manual

deb: ## Debian packages of the daemon and of its readers, for this host's libslurm and for slurmrestd
	@sh tests/packages.sh debian
	@$(MAKE) --no-print-directory build
	@sh packaging/deb.sh $(BUILT) $(TARGET)/deb

rpm: ## the same as RPMs
	@sh tests/packages.sh rpm
	@$(MAKE) --no-print-directory build
	@sh packaging/rpm.sh $(BUILT) $(TARGET)/rpm

dist: ## packages for every distribution, with all readers: Debian's, and SLURM_HEADERS=DIR
	@sh tests/packages.sh dist
	@sh packaging/dist.sh

# Needs root, for chroots, and Debian's mirror.
packages-test: packages deb rpm ## the packages, installed, upgraded and removed in a clean Debian
	@sh tests/packages.sh chroot
	cargo build --locked --workspace
	cargo test --locked -p live-tests -- packages_chroot:: --ignored --test-threads=1 --skip dist::

# The same; the other way round too: from the packages of single readers to the one, and back.
dist-test: packages dist deb rpm ## `make dist` in clean chroots of Debian 11, 12, 13 and sid
	@sh tests/packages.sh chroot
	cargo build --locked --workspace
	cargo test --locked -p live-tests -- packages_chroot::dist:: --ignored --test-threads=1

release: ## all of a release but the push: VERSION=X.Y.Z; DRY=1 only says it; SUITES=no, SIGN=no
	@VERSION='$(VERSION)' MAKE='$(MAKE)' sh packaging/release.sh

# In one command: cargo unites the features of what it builds together, and compiles the rest again.
demo: ## a real cluster, and a real Carbon that is killed, as a table and a picture; KEEP=1 leaves them up
	@sh tests/packages.sh demo
	cargo build --locked -p slurm-graphite -p slurm-reader -p tools \
		--bin slurm-graphite --bin slurm-graphite-reader --bin demo
	@$(TARGET)/debug/demo

test: packages ## everything CI runs: format, lints, unit and live tests, documentation
	@sh tests/stages.sh

lints: ## what `make test` leaves out: links in comments, and lints of what runs once a release
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps
	cargo clippy --locked -p tools --all-features --all-targets -- -D warnings

headers: ## the reader with the headers of every release: Debian's, and SLURM_HEADERS=DIR
	@sh tests/releases/headers.sh

releases: ## every reader against its slurmctld: Debian's (20 minutes), and SLURM_GIT=DIR
	@sh tests/packages.sh releases
	@sh tests/releases/run.sh

bench: packages ## CPU and memory of a reading next to a bare C loop and a forked sdiag (PYSLURM=DIR; 35 minutes)
	cargo build --release --locked --workspace
	cargo build --release --locked -p slurm-graphite --features fast-clock --target-dir $(TARGET)/fast
	SLURM_GRAPHITE_FAST_BIN=$(abspath $(TARGET))/fast/release/slurm-graphite \
		cargo run --quiet --release --locked -p tools --bin bench $(BENCH); tick=$$?; \
		cargo run --quiet --release --locked -p tools --bin bench_delivery && exit $$tick

# Not in a folder on a disk: slurmctld writes a file for each job.
bench-scale: packages ## the same for 100,000 jobs (20 minutes; SCALE_SECONDS=, SCALE=surveys|accounting)
	cargo build --release --locked --workspace
	@TMPDIR=/dev/shm cargo run --quiet --release --locked -p tools --features release --bin bench_scale $(SCALE)

soak: packages ## random faults for half an hour; SOAK_FAULTS=, _SEED=, _LONGEST=1, _ONLY=, _TLS=1
	cargo build --locked --workspace
	@cargo run --quiet --locked -p tools --bin soak

loss-long: packages ## the losses that take minutes: a Carbon that hangs for 15 of them; each crash of the queue
	cargo build --locked --workspace
	cargo test --locked -p live-tests -- loss:: --ignored
	cargo test --release --locked -p carbon --lib -- enumeration:: --ignored --nocapture

finished-long: packages ## every finished job is counted once while all parts end and hang (SOAK_SEED=)
	cargo build --locked --workspace
	cargo test --locked -p live-tests -- finished:: --ignored --nocapture

ha-long: packages ## two controllers through cables, kills, freezes, takeovers (20 minutes, root; SOAK_SEED=)
	cargo build --locked --workspace
	cargo test --locked -p live-tests -- follow:: --ignored --nocapture

golden: ## write the golden files, docs/metrics.md and THIRD-PARTY-NOTICES again
	# Programs and tests are built with this one.
	UPDATE_GOLDEN=1 cargo test --quiet --locked -p slurm-graphite the_shipped_file
	UPDATE_GOLDEN=1 cargo test --locked --workspace --exclude live-tests
	python3 packaging/third-party.py > $(TARGET)/notices
	mv $(TARGET)/notices THIRD-PARTY-NOTICES

dashboards: ## write config/grafana and config/graphite-web again: dashboards and alert rules
	cargo run --quiet --locked -p tools --bin dashboards -- config/grafana

grafana: ## every panel drawn by Grafana's own components, and Grafana's types (Node.js 20)
	@sh tests/packages.sh grafana
	@sh tests/tools/grafana/build.sh $(TARGET)/grafana/panels
	@node tests/live/dashboards/types.mjs config/grafana $(TARGET)/grafana
	cargo build --locked --workspace
	GRAFANA_PANELS=$(abspath $(TARGET))/grafana/panels \
		cargo test --locked -p live-tests -- dashboards::panels:: --ignored --nocapture

scale-out: packages ## 100,000 points a tick over three stores, one stopped, one killed (Debian's mirror)
	sh tests/scale_out/run.sh

screenshots: ## draw docs/images again; INCIDENTS=DIR draws what three incidents look like instead
	@sh tests/packages.sh grafana
	@sh tests/tools/grafana/build.sh $(TARGET)/grafana/panels
	cargo build --locked --workspace
	@GRAFANA_PANELS=$(abspath $(TARGET))/grafana/panels \
		cargo run --quiet --locked -p tools --features release --bin screenshots

audit: ## known vulnerabilities of the dependencies: needs cargo-audit, and RustSec's database in ADVISORIES=DIR
	@command -v cargo-audit >/dev/null || \
		{ echo 'audit: cargo-audit is missing: cargo install --locked cargo-audit' >&2; exit 1; }
	@[ -d '$(ADVISORIES)/crates' ] || \
		{ echo 'audit: the database is missing: git clone https://github.com/RustSec/advisory-db,' \
			'then make audit ADVISORIES=advisory-db' >&2; exit 1; }
	cargo audit --no-fetch --deny warnings --db '$(ADVISORIES)'

install: ## install what `make build` built: PREFIX=/usr/local, DESTDIR=, SYSCONFDIR=, UNITS=, ZSH=
	@DESTDIR='$(DESTDIR)' SYSCONFDIR='$(SYSCONFDIR)' UNITS='$(UNITS)' ZSH='$(ZSH)' BUILT='$(BUILT)' \
		sh packaging/install.sh --prefix '$(PREFIX)'

clean: ## remove what was built
	cargo clean
