# The binary and the Python of the code-execution tool, run by a user without rights:
#
#     docker build -t loopwright .
#     docker run -p 127.0.0.1:8080:8080 -v loopwright:/data \
#       -e LOOPWRIGHT_UPSTREAM=http://models.corp:8000/v1 -e LOOPWRIGHT_API_KEY="$(openssl rand -hex 32)" \
#       -v ./docker/loopwright.toml:/etc/loopwright.toml:ro loopwright serve --config /etc/loopwright.toml
#
# Without any API key loopwright refuses to listen on an address that the network can reach, and inside a container every
# published port is one: the file above names the variable that holds the key. docker/compose.yml does all of this.
# With the seccomp profile docker/seccomp.json (docker run --security-opt seccomp=docker/seccomp.json …) code runs in the
# strongest isolation; without it, in what a plain container allows.
# The demo: docker run --rm --network host loopwright demo

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# What cargo downloads and builds is kept between builds; the binary is copied out, as these mounts are not in the image.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin loopwright \
    && install -D target/release/loopwright /out/loopwright \
    && mkdir /out/data

# Without Python and without a shell: docker build --target minimal.
FROM gcr.io/distroless/cc-debian12:nonroot AS minimal
COPY --from=build /out/loopwright /usr/local/bin/loopwright
COPY --from=build --chown=nonroot:nonroot /out/data /data
WORKDIR /data
VOLUME /data
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/loopwright"]
CMD ["serve", "--listen", "0.0.0.0:8080"]

# The same Debian release as above, for its C library; Python and its packages for the code-execution tool.
FROM python:3.13-slim-bookworm
COPY docker/python-packages.txt /tmp/
RUN pip install --no-cache-dir --root-user-action ignore --require-hashes --only-binary :all: \
        --requirement /tmp/python-packages.txt \
    && rm /tmp/python-packages.txt \
    && useradd --system --uid 65532 --user-group --no-create-home --shell /usr/sbin/nologin nonroot
COPY --from=build /out/loopwright /usr/local/bin/loopwright
# A new volume takes over the owner of the directory that it is mounted on.
COPY --from=build --chown=nonroot:nonroot /out/data /data
USER nonroot
# The default session store, sqlite:loopwright.db, lies in the working directory.
WORKDIR /data
VOLUME /data
EXPOSE 8080
# No HEALTHCHECK: let the orchestrator probe /healthz and /readyz.
ENTRYPOINT ["/usr/local/bin/loopwright"]
CMD ["serve", "--listen", "0.0.0.0:8080"]
