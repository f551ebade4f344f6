# An image of what `make dist` made, built in the folder with the tarball:
#
#   docker build --file Dockerfile --tag slurm-graphite --build-arg SLURM='libslurm42 slurm-wlm-basic-plugins' target/dist
#
# SLURM: Debian's packages of the library, of the cluster's release or up to two before; without them it asks slurmrestd.
ARG DEBIAN=trixie

FROM debian:${DEBIAN}-slim AS files
ADD slurm-graphite-*-linux-*.tar.gz /
RUN DESTDIR=/files sh /slurm-graphite-*/install.sh --prefix /usr

FROM debian:${DEBIAN}-slim
ARG SLURM=
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates $SLURM && rm -rf /var/lib/apt/lists/*
COPY --from=files /files /
# munge tells slurmctld a number, which needs no name.
RUN install -d -m 750 -o 1000 -g 1000 /var/lib/slurm-graphite && install -d -o 1000 -g 1000 /run/slurm-graphite
ENV RUNTIME_DIRECTORY=/run/slurm-graphite
USER 1000:1000
HEALTHCHECK CMD ["/usr/bin/slurm-graphite", "status"]
ENTRYPOINT ["/usr/bin/slurm-graphite"]
CMD ["run"]
