# The binary and the Python of the code-execution tool, run by a user without rights. The first build takes about 15 minutes.
#
#     docker build -t loopwright:0.1.0 -t loopwright .
#
# The demo, on http://127.0.0.1:8080, without a model server and without a key:
#
#     docker run --rm --network host loopwright demo
#
# In front of a model server on this machine, which has to listen on more than loopback:
#
#     export LOOPWRIGHT_API_KEY=$(openssl rand -hex 32)
#     docker run --detach --name loopwright --publish 127.0.0.1:8080:8080 --volume loopwright:/data \
#       --add-host host.docker.internal:host-gateway --security-opt seccomp=docker/seccomp.json \
#       --env LOOPWRIGHT_API_KEY --env LOOPWRIGHT_UPSTREAM=http://host.docker.internal:8000/v1 loopwright
#     curl http://127.0.0.1:8080/v1/models -H "authorization: Bearer $LOOPWRIGHT_API_KEY"
#
# It serves with the settings of docker/loopwright.toml; for your own, add --volume "$PWD/my.toml:/etc/loopwright.toml:ro".
# Without any API key loopwright refuses to listen on an address that the network can reach, and inside a container every
# published port is one: the file names the variable that holds the key.
# With the seccomp profile docker/seccomp.json code runs in the strongest isolation; without that option, in what a plain
# container allows.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# What `loopwright --version` says: docker build --build-arg LOOPWRIGHT_COMMIT="$(git rev-parse --short HEAD)" .
ARG LOOPWRIGHT_COMMIT
# What cargo downloads and builds is kept between builds; the binary is copied out, as these mounts are not in the image.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin loopwright \
    && install -D target/release/loopwright /out/loopwright \
    && mkdir /out/data

# What both images have besides the binary.
FROM scratch AS files
COPY docker/loopwright.toml /etc/loopwright.toml
COPY LICENSE-MIT LICENSE-APACHE CHANGELOG.md /usr/share/doc/loopwright/

# Without Python and without a shell: docker build --target minimal.
FROM gcr.io/distroless/cc-debian12:nonroot AS minimal
LABEL org.opencontainers.image.title="loopwright" \
      org.opencontainers.image.description="OpenAI-compatible inference proxy that runs server-side tools and returns one clean answer" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.source="https://github.com/loopwright/loopwright"
COPY --from=files / /
COPY --from=build /out/loopwright /usr/local/bin/loopwright
COPY --from=build --chown=nonroot:nonroot /out/data /data
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/usr/local/bin/loopwright", "health"]
ENTRYPOINT ["/usr/local/bin/loopwright"]
CMD ["serve", "--config", "/etc/loopwright.toml"]

# The same Debian release as above, for its C library; Python and its packages for the code-execution tool.
FROM python:3.13-slim-bookworm
LABEL org.opencontainers.image.title="loopwright" \
      org.opencontainers.image.description="OpenAI-compatible inference proxy that runs server-side tools and returns one clean answer" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.source="https://github.com/loopwright/loopwright"
COPY docker/python-packages.txt /tmp/
RUN pip install --no-cache-dir --root-user-action ignore --require-hashes --only-binary :all: \
        --requirement /tmp/python-packages.txt \
    && rm /tmp/python-packages.txt \
    && useradd --system --uid 65532 --user-group --no-create-home --shell /usr/sbin/nologin nonroot
COPY --from=files / /
COPY --from=build /out/loopwright /usr/local/bin/loopwright
# A new volume takes over the owner of the directory that it is mounted on.
COPY --from=build --chown=nonroot:nonroot /out/data /data
USER nonroot
# The working directory of code; the settings put the session store here, too.
WORKDIR /data
VOLUME /data
EXPOSE 8080
# For Docker, Compose and Swarm; Kubernetes asks /healthz and /readyz itself.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/usr/local/bin/loopwright", "health"]
ENTRYPOINT ["/usr/local/bin/loopwright"]
CMD ["serve", "--config", "/etc/loopwright.toml"]
