# An image of what `make dist` made, built in the folder with the tarball:
#
#   docker build --file Dockerfile --tag slurm-graphite \
#       --build-arg SLURM='libslurm42 slurm-wlm-basic-plugins' target/dist
#
# SLURM: Debian's packages of the library, of the cluster's release or up to two before. Without
# them it reads the statistics if slurm.conf and munge's socket are mounted (`--volume
# /etc/slurm:/etc/slurm:ro --volume /run/munge:/run/munge`), or asks slurmrestd.
ARG DEBIAN=trixie

FROM debian:${DEBIAN}-slim AS files
ADD slurm-graphite-*-linux-*.tar.gz /
RUN DESTDIR=/files sh /slurm-graphite-*-linux-$(uname -m)/install.sh --prefix /usr

FROM debian:${DEBIAN}-slim
LABEL org.opencontainers.image.title="slurm-graphite" \
    org.opencontainers.image.description="Slurm's scheduler statistics in Graphite" \
    org.opencontainers.image.source="https://example.org/slurm-graphite" \
    org.opencontainers.image.licenses="GPL-3.0-or-later"
ARG SLURM=
RUN apt-get update && \
    apt-get install --yes --no-install-recommends ca-certificates $SLURM && \
    rm -rf /var/lib/apt/lists/*
COPY --from=files /files /
# munge tells slurmctld this number, so it must be that of no user of the cluster. Neither Debian
# nor systemd assigns it.
RUN install -d -m 700 -o 60999 -g 60999 /var/lib/slurm-graphite && install -d -o 60999 -g 60999 /run/slurm-graphite
ENV RUNTIME_DIRECTORY=/run/slurm-graphite
USER 60999:60999
HEALTHCHECK CMD ["/usr/bin/slurm-graphite", "status"]
ENTRYPOINT ["/usr/bin/slurm-graphite"]
CMD ["run"]
